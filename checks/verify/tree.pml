/* Two levels: a root, two leaf switches, two workers behind the first leaf and one behind the second; one slot.
 *
 * protocol/tree_rules.py has the rules.  The network is a set, as in model.pml: whatever was sent may arrive, any number
 * of times, at any later moment, or never, and at any moment it may lose all that is under way and be reliable from then
 * on.  Blocks, exponents and numbers that wrap are left out, model.pml has them: here each worker has a block in each
 * round, and a round's number is its place.
 *
 * With MOVES the job goes over to another root while it runs.  The old one goes on with what it gets, as a switch does
 * from which only the controller is cut off; that it takes part until the last leaf has moved is what is searched for.
 * The leaves move one after the other, and workers hear of it after that, as of a switch that was cleared.  With
 * MOVES_MEMBER worker 2, which stands for a switch below with its workers, moves from leaf 1 to leaf 0 as well: so leaf
 * 0, whose partial is another one then, begins again with empty cells.  The new root may be the same switch as the old one.
 *
 * Broken rules are macros; checks/verify/trees.py lists them. */

#ifndef ROUNDS
#define ROUNDS 3
#endif
#ifndef ROOT_CLEARS             /* how often the root is killed and comes back with empty registers */
#define ROOT_CLEARS 0
#endif
#ifndef LEAF_CLEARS             /* and the leaves, in all */
#define LEAF_CLEARS 0
#endif

#ifdef MOVES_MEMBER
#define MOVES
#endif
#ifdef MOVES
#define UPPERS 2                /* the old root and the new one */
#else
#define UPPERS 1
#endif

#ifdef ONE_WORKER_EACH          /* worker 1 is left out */
#define HAS_1 0
#else
#define HAS_1 1
#endif

#define WORKERS 3
#define LEAVES 2
#define BIT(place) (1 << (place))
#ifdef MOVES_MEMBER
#define HAS_GROWN (moved & 1)
#define LEAF(w) ((w) == 2 -> 1 - moved / 2 : 0)
#define PLACE(w) (w)
#define MEMBERS(l) ((l) == 0 -> 1 + 2 * HAS_1 + 4 * HAS_GROWN : 4)
#define ALL_LEAVES(u) ((u) == 0 -> 3 : 1)
#else
#define HAS_GROWN 0
#define LEAF(w) ((w) / 2)
#define PLACE(w) ((w) % 2)
#define MEMBERS(l) ((l) == 0 -> 1 + 2 * HAS_1 : 1)
#define ALL_LEAVES(u) 3
#endif
#define CELLS (4 + 2 * UPPERS)
#define LEAF_CELL(l, r) ((l) * 2 + ((r) & 1))
#define ROOT_CELL(u, r) (4 + 2 * (u) + ((r) & 1))
#ifdef MOVES
#define ABOVE(l) ((moved >> (l)) & ((l) == 0 || !IS_MEMBER_MOVED))
#else
#define ABOVE(l) 0
#endif
#ifdef MOVES_MEMBER
#define IS_MEMBER_MOVED 1       /* leaf 1 stays below the old root */
#else
#define IS_MEMBER_MOVED 0
#endif
#define WAY(l, u) ((l) + LEAVES * (u))
#define UP(l) WAY(l, ABOVE(l))  /* from a leaf to the root to which it sends */

byte number_of[CELLS];
byte seen[CELLS];               /* by place among the switch's own members; 0: the cell was never used */
bit is_final[CELLS];            /* of a leaf: the lanes are the result that came from above */
byte added[CELLS * WORKERS];    /* the lanes: how often each worker's block is in them, up to 2 */
byte lanes_of[CELLS];           /* and to which round they belong, plus 1; 0: to several */

/* On their way, as bits by round.  What is wrong in a frame is told by the last wrong one of its kind. */
#define WAYS (LEAVES * UPPERS)
byte partials[WAYS];            /* from a leaf up */
byte finals[WAYS];              /* a leaf's final result, up */
byte results[WAYS];             /* from the root down */
byte answers[WORKERS];          /* from a leaf to a worker */
byte spoilt[WAYS];              /* results from the root that are wrong; the leaf's lanes then belong to no round */

byte done[WORKERS];             /* as in worker.pml */
bit sends[WORKERS];
bit is_told[WORKERS];
bit outstanding[WORKERS];

byte root_clears, leaf_clears;
byte moved;                     /* a bit for each step of the move: leaf 0, then leaf 1 or worker 2; or the other way round */
bit reliable;
#define HAS_MOVED (moved == 3)

#define SENT(w) (done[w] + sends[w])
#define REPEATS_IDLE(w) (RESENDS_IDLE && outstanding[w])
#define REPEATS(w, r) (sends[w] \
    -> ((r == done[w] && REPEATS_WAITING) || (r + 1 == done[w] && REPEATS_BOTH)) \
    : (r + 1 == done[w] && REPEATS_IDLE(w)))
#define ON_ITS_WAY(w, r) (reliable -> REPEATS(w, r) : r < SENT(w))
/* The copies of a round whose result the worker holds say so: they are not for an answer, but for the others' sake. */
#define IS_RECALL(w, r) (r < done[w])
#define WAITS(w, r) (sends[w] && done[w] == (r))

#define IS_STALE(c, r) (seen[c] != 0 && number_of[c] > (r))
#define STARTS_AFRESH(c, r) (seen[c] == 0 || number_of[c] < (r))
#define IS_COMPLETE(c, r, all) (seen[c] == (all) && number_of[c] == (r))
#define TAKES(c, r, bit) (!IS_STALE(c, r) && (STARTS_AFRESH(c, r) || !(seen[c] & (bit))))

/* What is the matter with lanes that a worker gets. */
#define OFTEN(c) (added[(c) * 3] > 1 || added[(c) * 3 + 1] > 1 || added[(c) * 3 + 2] > 1)
#define WHOLE(c) (added[(c) * 3] == 1 && added[(c) * 3 + 1] == HAS_1 && added[(c) * 3 + 2] == 1)
#define DOUBLE_ADDITION 1
#define MISSING 2
#define FOREIGN_LANES 3
#define WRONGNESS(c, r) (lanes_of[c] != (r) + 1 -> FOREIGN_LANES : (OFTEN(c) -> DOUBLE_ADDITION : (WHOLE(c) -> 0 : MISSING)))
/* Whether a partial is what it should be: each of the leaf's members once, nobody else. */
#define IS_PARTIAL(c, l, r) (lanes_of[c] == (r) + 1 \
    && added[(c) * 3] == ((l) == 0) && added[(c) * 3 + 1] == (HAS_1 && (l) == 0) \
    && added[(c) * 3 + 2] == ((l) == 1 || HAS_GROWN))

inline open(c, r) {
    number_of[c] = r;
    seen[c] = 0;
#ifndef BREAK_FINAL_STAYS       /* a new round inherits the flag of the one before */
    is_final[c] = 0;
#endif
    added[(c) * 3] = 0; added[(c) * 3 + 1] = 0; added[(c) * 3 + 2] = 0;
    lanes_of[c] = r + 1
}

inline add(c, w) {
    if
    :: added[(c) * 3 + w] < 2 -> added[(c) * 3 + w] = added[(c) * 3 + w] + 1
    :: else
    fi
}

/* The lanes become the right result of a round, or a wrong one. */
inline become(c, r, is_right) {
    added[(c) * 3] = 1; added[(c) * 3 + 1] = HAS_1; added[(c) * 3 + 2] = 1;
    lanes_of[c] = (is_right -> r + 1 : 0)
}

inline judge(c, r) {
    assert(WRONGNESS(c, r) != DOUBLE_ADDITION);
    assert(WRONGNESS(c, r) != MISSING);
    assert(WRONGNESS(c, r) != FOREIGN_LANES)
}

/* A worker that waits takes the first answer, so it is judged when it is sent. */
inline answer(c, w, r) {
    if
    :: WAITS(w, r) ->
        judge(c, r);
        answers[w] = answers[w] | BIT(r)
    :: else
    fi
}

inline answer_members(c, l, r) {
    if
    :: l == 0 -> answer(c, 0, r); answer(c, 1, r)
    :: else -> answer(c, 2, r)
    fi;
    if
    :: l == 0 && HAS_GROWN -> answer(c, 2, r)
    :: else
    fi
}

inline send_partial(c, l, r) {
    assert(IS_PARTIAL(c, l, r));
    partials[UP(l)] = partials[UP(l)] | BIT(r)
}

/* A contribution of a worker reaches its leaf. */
inline contribute(c, l, w, r) {
    if
    :: STARTS_AFRESH(c, r) -> open(c, r)
    :: else
    fi;
    if
    :: seen[c] & BIT(PLACE(w)) -> skip
    :: else ->
        seen[c] = seen[c] | BIT(PLACE(w));
        if
        :: lanes_of[c] != r + 1 -> lanes_of[c] = 0
        :: else
        fi;
        add(c, w);
        if
        :: seen[c] == MEMBERS(l) && !is_final[c] -> send_partial(c, l, r)
        :: else
        fi
    fi
}

/* A repeat to a complete version that is not final sends the partial up again ...  One for which another member's stands
 * (row 19) is here one that comes later, for the same member's next repeat sends it up. */
#ifdef BREAK_NO_RESEND
#define SENDS_AGAIN(c, l, r) 0
#else
#define SENDS_AGAIN(c, l, r) (IS_COMPLETE(c, r, MEMBERS(l)) && !is_final[c] && !(partials[UP(l)] & BIT(r)))
#endif
/* ... to a final one gets the result ... */
#ifdef BREAK_PARTIAL_AS_RESULT  /* a complete version is taken for a result, final or not */
#define ANSWERS(c, l, w, r) (IS_COMPLETE(c, r, MEMBERS(l)) && WAITS(w, r) && !(answers[w] & BIT(r)))
#else
#define ANSWERS(c, l, w, r) (IS_COMPLETE(c, r, MEMBERS(l)) && is_final[c] && WAITS(w, r) && !(answers[w] & BIT(r)))
#endif
/* ... and one that recalls sends the final result up, for a root that may have forgotten it.  Row 19 as above. */
#ifdef BREAK_NO_RECALL
#define RECALLS(c, l, w, r) 0
#else
#define RECALLS(c, l, w, r) \
    (IS_COMPLETE(c, r, MEMBERS(l)) && is_final[c] && IS_RECALL(w, r) && !(finals[UP(l)] & BIT(r)))
#endif

inline deliver(u, r) {
    results[WAY(0, u)] = results[WAY(0, u)] | BIT(r);
    results[WAY(1, u)] = results[WAY(1, u)] | BIT(r);
    if
    :: WRONGNESS(ROOT_CELL(u, r), r) != 0 ->
        spoilt[WAY(0, u)] = spoilt[WAY(0, u)] | BIT(r);
        spoilt[WAY(1, u)] = spoilt[WAY(1, u)] | BIT(r)
    :: else
    fi
}

/* A leaf's partial reaches a root; one of the old tree does not have what has come to the leaf since. */
inline gather(c, l, u, r, is_old) {
    if
    :: STARTS_AFRESH(c, r) -> open(c, r)
    :: else
    fi;
    seen[c] = seen[c] | BIT(l);
    if
    :: l == 0 && HAS_1 -> add(c, 0); add(c, 1)
    :: l == 0 && !HAS_1 -> add(c, 0)
    :: else -> add(c, 2)
    fi;
    if
    :: l == 0 && u == 1 && HAS_GROWN && !is_old -> add(c, 2)
    :: else
    fi;
    if
    :: seen[c] == ALL_LEAVES(u) -> deliver(u, r)
    :: else
    fi
}

/* A result from above reaches a leaf, from its upstream port: it counts for the version's own round, when that is
 * complete, and once. */
#ifdef BREAK_ANY_NUMBER
#define NUMBER_FITS(c, r) 1
#else
#define NUMBER_FITS(c, r) (number_of[c] == (r))
#endif
#ifdef BREAK_OPEN_ROUND
#define IS_READY(c, l) (seen[c] != 0)
#else
#define IS_READY(c, l) (seen[c] == MEMBERS(l))
#endif
#define OVERWRITES(c, l, r) (NUMBER_FITS(c, r) && IS_READY(c, l) && !is_final[c])

/* Whether it makes a difference to one who waits that a result comes again, to a version that is final. */
#ifdef ACCEPTS_TWICE
#define IS_TAKEN_AGAIN(c, l, r) (IS_COMPLETE(c, r, MEMBERS(l)) && is_final[c] \
    && ((l) == 0 -> (WAITS(0, r) && !(answers[0] & BIT(r))) || (WAITS(1, r) && !(answers[1] & BIT(r))) \
        : WAITS(2, r) && !(answers[2] & BIT(r))))
#else
#define IS_TAKEN_AGAIN(c, l, r) 0
#endif

proctype Copies(byte w, r) {
end:
    do
    :: d_step { ON_ITS_WAY(w, r) && TAKES(LEAF_CELL(LEAF(w), r), r, BIT(PLACE(w))) ->
        contribute(LEAF_CELL(LEAF(w), r), LEAF(w), w, r) }
    :: d_step { ON_ITS_WAY(w, r) && SENDS_AGAIN(LEAF_CELL(LEAF(w), r), LEAF(w), r) ->
        send_partial(LEAF_CELL(LEAF(w), r), LEAF(w), r) }
    :: d_step { ON_ITS_WAY(w, r) && ANSWERS(LEAF_CELL(LEAF(w), r), LEAF(w), w, r) ->
        answer(LEAF_CELL(LEAF(w), r), w, r) }
    :: d_step { ON_ITS_WAY(w, r) && RECALLS(LEAF_CELL(LEAF(w), r), LEAF(w), w, r) ->
        judge(LEAF_CELL(LEAF(w), r), r);
        finals[UP(LEAF(w))] = finals[UP(LEAF(w))] | BIT(r) }
#ifdef BREAK_MEMBERS_PORT       /* a member's frame that claims to be the result is taken for one */
    :: d_step { WAITS(w, r) && OVERWRITES(LEAF_CELL(LEAF(w), r), LEAF(w), r) ->
        open(LEAF_CELL(LEAF(w), r), r);
        seen[LEAF_CELL(LEAF(w), r)] = MEMBERS(LEAF(w));
        is_final[LEAF_CELL(LEAF(w), r)] = 1;
        add(LEAF_CELL(LEAF(w), r), w);
        answer_members(LEAF_CELL(LEAF(w), r), LEAF(w), r) }
#endif
    od
}

/* A leaf takes results from the root to which it sends, and from no other one. */
#ifdef ACCEPTS_BOTH_ROOTS
#define IS_ABOVE(l, u) 1
#else
#define IS_ABOVE(l, u) (ABOVE(l) == (u))
#endif
#define HAS_COME(l, u, r) ((results[WAY(l, u)] & BIT(r)) && IS_ABOVE(l, u))

proctype Uplink(byte l, u, r) {
end:
    do
    :: d_step { (partials[WAY(l, u)] & BIT(r)) && TAKES(ROOT_CELL(u, r), r, BIT(l)) ->
        gather(ROOT_CELL(u, r), l, u, r, 0) }
#ifdef BREAK_SAME_COOKIES       /* the new root is the old switch, and does not know frames of the old tree by their cookies */
    :: d_step { u == 1 && (partials[WAY(l, 0)] & BIT(r)) && TAKES(ROOT_CELL(u, r), r, BIT(l)) ->
        gather(ROOT_CELL(u, r), l, u, r, 1) }
#endif
    :: d_step { ((partials[WAY(l, u)] | finals[WAY(l, u)]) & BIT(r)) && IS_COMPLETE(ROOT_CELL(u, r), r, ALL_LEAVES(u)) &&
            !(results[WAY(l, u)] & BIT(r)) ->
        results[WAY(l, u)] = results[WAY(l, u)] | BIT(r) }
    :: d_step { (finals[WAY(l, u)] & BIT(r)) && !IS_STALE(ROOT_CELL(u, r), r) &&
            !IS_COMPLETE(ROOT_CELL(u, r), r, ALL_LEAVES(u)) ->
        open(ROOT_CELL(u, r), r);
        seen[ROOT_CELL(u, r)] = ALL_LEAVES(u);
        become(ROOT_CELL(u, r), r, 1);
        deliver(u, r) }
    :: d_step { HAS_COME(l, u, r) && OVERWRITES(LEAF_CELL(l, r), l, r) ->
        become(LEAF_CELL(l, r), r, !(spoilt[WAY(l, u)] & BIT(r)));
        is_final[LEAF_CELL(l, r)] = 1;
        answer_members(LEAF_CELL(l, r), l, number_of[LEAF_CELL(l, r)]) }
    :: d_step { HAS_COME(l, u, r) && IS_TAKEN_AGAIN(LEAF_CELL(l, r), l, r) ->
        become(LEAF_CELL(l, r), r, !(spoilt[WAY(l, u)] & BIT(r)));
        answer_members(LEAF_CELL(l, r), l, r) }
    od
}

#ifdef BREAK_MOVES_UNTOLD       /* workers repeat nothing for it */
#define IS_NEWS 0
#else
#define IS_NEWS HAS_MOVED
#endif

/* The worker's rules are macros made from host/engine/rules.py, as for worker.pml. */
proctype Worker(byte w) {
end:
    do
    :: d_step { !sends[w] && done[w] < ROUNDS ->
        sends[w] = 1;
        outstanding[w] = outstanding[w] && !NEXT_ACKNOWLEDGES }
    :: d_step { TAKES_RESULT && sends[w] && (answers[w] & BIT(done[w])) ->
        done[w] = done[w] + 1;
        sends[w] = 0;
        answers[w] = 0 }
    :: d_step { !is_told[w] && (root_clears + leaf_clears > 0 || IS_NEWS) ->
        is_told[w] = 1;
        outstanding[w] = outstanding[w] || (sends[w] -> NOTES_WAITING : NOTES_IDLE) }
    od
}

inline forget(c) {
    open(c, 0);
    lanes_of[c] = 0;
    is_final[c] = 0
}

inline tell() {
    is_told[0] = 0; is_told[1] = 0; is_told[2] = 0
}

/* Lanes of both leaves, under the bit of one: from a tree in which the switch's bits were other members'. */
inline leave_behind(c) {
    seen[c] = BIT(1);
    lanes_of[c] = 1;
    add(c, 0)
}

/* Any switch that is killed is told to the workers of all leaves. */
proctype Network() {
end:
    do
#ifdef MOVES                    /* the new root has its entries from the start, and the old one keeps its own */
    :: d_step { !(moved & 1) ->
        moved = moved | 1;
#ifdef MOVES_MEMBER
#ifndef BREAK_KEEPS_CELLS       /* a switch whose members change goes on with what it has */
        forget(0); forget(1);
#endif
#endif
        if
        :: HAS_MOVED -> tell()
        :: else
        fi }
#ifdef MOVES_MEMBER
    :: d_step { moved == 1 -> moved = 3; tell() }
#else
    :: d_step { !(moved & 2) ->
        moved = moved | 2;
        if
        :: HAS_MOVED -> tell()
        :: else
        fi }
#endif
#endif
    :: d_step { root_clears < ROOT_CLEARS && !reliable ->
        root_clears++;
        forget(4); forget(5);
        tell() }
    :: d_step { leaf_clears < LEAF_CLEARS && !reliable ->
        leaf_clears++;
        forget(0); forget(1);
        tell() }
    :: d_step { leaf_clears < LEAF_CLEARS && !reliable ->
        leaf_clears++;
        forget(2); forget(3);
        tell() }
    :: d_step { !reliable ->
        reliable = 1;
        partials[0] = 0; partials[1] = 0; finals[0] = 0; finals[1] = 0;
        results[0] = 0; results[1] = 0; spoilt[0] = 0; spoilt[1] = 0;
#ifdef MOVES
        partials[2] = 0; partials[3] = 0; finals[2] = 0; finals[3] = 0;
        results[2] = 0; results[3] = 0; spoilt[2] = 0; spoilt[3] = 0;
#endif
        answers[0] = 0; answers[1] = 0; answers[2] = 0 }
    od
}

init {
    byte w, r;
    atomic {
#ifdef BREAK_OLD_CELLS          /* the new root was one before, and its cells were not cleared */
        leave_behind(ROOT_CELL(1, 0));
#endif
        do
        :: w == 1 && !HAS_1 -> w++
        :: w < WORKERS && (w != 1 || HAS_1) ->
            do
            :: r < ROUNDS -> run Copies(w, r); r++
            :: else -> break
            od;
            r = 0;
            run Worker(w);
            w++
        :: w == WORKERS -> break
        od;
        w = 0;
        do
        :: w < LEAVES ->
            do
            :: r < ROUNDS && UPPERS == 1 -> run Uplink(w, 0, r); r++
            :: r < ROUNDS && UPPERS == 2 -> run Uplink(w, 0, r); run Uplink(w, 1, r); r++
            :: else -> break
            od;
            r = 0;
            w++
        :: else -> break
        od;
        w = 0;
        run Network()
    }
    /* The one end that is no dead end. */
    done[0] == ROUNDS && done[1] == ROUNDS * HAS_1 && done[2] == ROUNDS
}
