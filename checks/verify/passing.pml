/* Shared slots as they are built: two jobs of two members, one slot that belongs to nobody, and a fallback.
 *
 * The rules are those of protocol/shared_rules.py.  They need less than shared.pml: no stamps, no verdict, no release.
 *
 * An operation has three rounds: the first one is without lanes and *claims* the slot.  A claim takes the slot if it is
 * free, and is passed on to the fallback in any case, which completes it.  So a claim waits for nobody else's slot.
 * A later round's contribution is added in the slot if the operation owns it, and passed on to the fallback if not.  The
 * last result goes to the fallback, which alone gives it to members: so a member that has it may leave (`LEAVES`).  The
 * slot is free when the fallback has said the last result, or when nothing came for long; its cells are emptied when
 * another operation takes it.  An operation that met a taken slot gets it with a result of the fallback, if it is free
 * then; such a result may be late, or come again.  A member repeats until it has the result, always to the switch: where
 * that leads to may have changed.  HELD goes to all members of the job, and who is one round further then repeats the
 * round before.
 *
 * Results are not kept on the way: a copy for each member is lost or taken; a repeat asks where it leads to.  Frames to
 * the fallback come in any order, and `STRAYS` of them twice.  Broken rules are macros; checks/verify/designs.py. */

#ifndef OPERATIONS
#define OPERATIONS 1
#endif
#ifndef CLEARS                  /* how often the switch is killed and comes back empty */
#define CLEARS 0
#endif
#ifndef FALLBACK_CLEARS
#define FALLBACK_CLEARS 0
#endif
#ifndef EXPIRIES                /* how often a slot is taken for an orphan although its operation goes on */
#define EXPIRIES 0
#endif
#ifndef STRAYS                  /* how many frames come again, however old they are */
#define STRAYS 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef LEAVES                  /* 1: who has the last result answers nobody any more */
#define LEAVES 0
#endif

#ifndef PER
#define PER 3
#endif
#define TOTAL (PER * OPERATIONS)
#define IS_CLAIM(r) ((r) % PER == 0)
#define IS_LAST(r) ((r) % PER == PER - 1)
#define VERSION(r) ((r) & 1)

#define JOB(x) ((x) / 2)        /* x: member x % 2 of job x / 2 */
#define MATE(x) ((x) ^ 1)
#define BIT(x) (1 << ((x) & 1))
#define BOTH 3

byte round[4];                  /* the round that a member waits in; TOTAL: it has all results */
byte copy_of[4];                /* a result on its way to a member: its round, plus 1 */
bit dead[2];                    /* a job whose member was killed: the other one gives up */

#define NOBODY 2
byte owner = NOBODY, owner_operation;
bit is_free;
byte number[2], seen[2], added[4];      /* by version; `added` by version and member */
byte lanes_job[2], lanes_round[2];      /* what the lanes are of */

bit last_of[2];                 /* the last result, on its way to the fallback */
short passed[4];                /* contributions on their way to the fallback, a bit for each round */
byte f_number[4], f_seen[4], f_added[8];        /* the fallback, by job and version */
byte clears, f_clears, expiries, strays;

#define WAITS(x) (round[x] < TOTAL && !dead[JOB(x)])
#define PLACE(x, r) (2 * JOB(x) + VERSION(r))

#ifdef BREAK_NO_OWNER           /* whoever has sent it, a contribution is added if somebody owns the slot */
#define OWNS(x, r) (owner != NOBODY)
#else
#define OWNS(x, r) (owner == JOB(x) && owner_operation == (r) / PER)
#endif
#define IN_SLOT(x, r) (!IS_CLAIM(r) && OWNS(x, r))
#define TAKES(x, r) (IS_CLAIM(r) && (owner == NOBODY || (owner == JOB(x) && owner_operation < (r) / PER) \
    || (is_free && !(owner == JOB(x) && owner_operation == (r) / PER))))
#define JOINS(x, r) (seen[VERSION(r)] == 0 || number[VERSION(r)] < (r) \
    || (number[VERSION(r)] == (r) && !(seen[VERSION(r)] & BIT(x))))
#define FALLS(x, r) (f_seen[PLACE(x, r)] == 0 || f_number[PLACE(x, r)] < (r) \
    || (f_number[PLACE(x, r)] == (r) && !(f_seen[PLACE(x, r)] & BIT(x))))
#ifdef BREAK_LAST_FROM_SLOT     /* the slot gives the last result, too, and is free then */
#define IS_KEPT_THERE(r) 0
#else
#define IS_KEPT_THERE(r) IS_LAST(r)
#endif
#define IS_ASKED_FOR_LAST(x, r) (IS_KEPT_THERE(r) && !last_of[JOB(x)] && number[VERSION(r)] == (r) \
    && seen[VERSION(r)] == BOTH && !(f_number[PLACE(x, r)] == (r) && f_seen[PLACE(x, r)] == BOTH))
#define MATTERS(x, r) (IN_SLOT(x, r) -> (JOINS(x, r) || IS_ASKED_FOR_LAST(x, r)) : (TAKES(x, r) || (!(passed[x] & (1 << (r))) && FALLS(x, r))))

inline take(x, r) {
    owner = JOB(x); owner_operation = (r) / PER; is_free = 0;
#ifndef BREAK_NOT_EMPTIED
    seen[0] = 0; seen[1] = 0
#endif
}

/* The fallback says the result of a round that is not the last one, and the slot is free. */
#define SAID(x, v) f_number[2 * JOB(x) + (v)]
#define GETS(x, v) (f_seen[2 * JOB(x) + (v)] == BOTH && !IS_LAST(SAID(x, v)) && (owner == NOBODY || is_free) \
    && !(owner == JOB(x) && owner_operation == SAID(x, v) / PER))

/* A contribution comes to the switch. */
inline arrive(x, r) {
    if
    :: IN_SLOT(x, r) ->
        if
        :: JOINS(x, r) ->
            if
            :: seen[VERSION(r)] == 0 || number[VERSION(r)] < r ->
                number[VERSION(r)] = r; seen[VERSION(r)] = 0;
                added[2 * VERSION(r)] = 0; added[2 * VERSION(r) + 1] = 0;
                lanes_job[VERSION(r)] = JOB(x); lanes_round[VERSION(r)] = r
            :: else
            fi;
            seen[VERSION(r)] = seen[VERSION(r)] | BIT(x);
            added[2 * VERSION(r) + (x & 1)] = added[2 * VERSION(r) + (x & 1)] + 1;
            assert(lanes_job[VERSION(r)] == JOB(x) && lanes_round[VERSION(r)] == r);
            if
            :: seen[VERSION(r)] == BOTH ->
                assert(added[2 * VERSION(r)] == 1 && added[2 * VERSION(r) + 1] == 1);
                if
                :: IS_KEPT_THERE(r) -> last_of[JOB(x)] = 1
                :: else ->
                    copy_of[x] = r + 1; copy_of[MATE(x)] = r + 1;
                    is_free = (IS_LAST(r) -> 1 : is_free)
                fi
            :: else
            fi
        :: IS_ASKED_FOR_LAST(x, r) && !(JOINS(x, r)) -> last_of[JOB(x)] = 1    /* a repeat: it goes there again */
        :: else
        fi
    :: else ->
        if
        :: TAKES(x, r) -> take(x, r)
        :: else
        fi;
        passed[x] = passed[x] | (1 << (r))
    fi
}

/* It comes to the fallback. */
inline fall(x, r) {
    if
    :: FALLS(x, r) ->
        if
        :: f_seen[PLACE(x, r)] == 0 || f_number[PLACE(x, r)] < r ->
            f_number[PLACE(x, r)] = r; f_seen[PLACE(x, r)] = 0;
            f_added[2 * PLACE(x, r)] = 0; f_added[2 * PLACE(x, r) + 1] = 0
        :: else
        fi;
        f_seen[PLACE(x, r)] = f_seen[PLACE(x, r)] | BIT(x);
        f_added[2 * PLACE(x, r) + (x & 1)] = f_added[2 * PLACE(x, r) + (x & 1)] + 1;
        if
        :: f_seen[PLACE(x, r)] == BOTH ->
            assert(f_added[2 * PLACE(x, r)] == 1 && f_added[2 * PLACE(x, r) + 1] == 1);
            copy_of[x] = r + 1; copy_of[MATE(x)] = r + 1
        :: else
        fi
    :: else
    fi
}

/* The last result of an operation comes to the fallback, and from there to the members.  The sum is the slot's. */
inline fall_last(x, r) {
    last_of[JOB(x)] = 0;
    if
    :: IN_SLOT(x, r) && number[VERSION(r)] == r && seen[VERSION(r)] == BOTH ->
        if
        :: f_seen[PLACE(x, r)] == 0 || f_number[PLACE(x, r)] <= r ->
            f_number[PLACE(x, r)] = r; f_seen[PLACE(x, r)] = BOTH;
            f_added[2 * PLACE(x, r)] = 1; f_added[2 * PLACE(x, r) + 1] = 1;
            copy_of[x] = r + 1; copy_of[MATE(x)] = r + 1; is_free = 1
        :: else
        fi
    :: else
    fi
}

/* A result comes: the copy, or the answer to a repeat, from where that leads to. */
#define IS_DONE_IN_SLOT(r) (seen[VERSION(r)] == BOTH && number[VERSION(r)] == (r))
#define IS_DONE_IN_FALLBACK(x, r) (f_seen[PLACE(x, r)] == BOTH && f_number[PLACE(x, r)] == (r))
#define HAS_RESULT(x) (WAITS(x) && (copy_of[x] == round[x] + 1 \
    || (IN_SLOT(x, round[x]) && !(IS_KEPT_THERE(round[x]) && IS_DONE_IN_FALLBACK(x, round[x])) \
        -> IS_DONE_IN_SLOT(round[x]) && !IS_KEPT_THERE(round[x]) : IS_DONE_IN_FALLBACK(x, round[x]))))

/* HELD: the mate's repeat leads to where its contribution is, and this member's is missing there. */
#ifdef BREAK_HELD_ALONE         /* the sender of the repeat alone hears of it */
#define IS_ASKED(x) 0
#else
#define IS_ASKED(x) (round[x] > 0 && !(LEAVES && round[x] == TOTAL) && !dead[JOB(x)] && round[MATE(x)] + 1 == round[x] \
    && (IN_SLOT(MATE(x), round[MATE(x)]) \
        -> (number[VERSION(round[MATE(x)])] == round[MATE(x)] && seen[VERSION(round[MATE(x)])] == BIT(MATE(x))) \
        : (f_number[PLACE(x, round[MATE(x)])] == round[MATE(x)] && f_seen[PLACE(x, round[MATE(x)])] == BIT(MATE(x)))))
#endif

#define LAST_OF_OWNER (owner_operation * PER + PER - 1)

proctype Member(byte x) {
    byte r;
end:
    do
    :: d_step { WAITS(x) && MATTERS(x, round[x]) -> arrive(x, round[x]) }
    :: d_step { IS_ASKED(x) && MATTERS(x, round[x] - 1) -> r = round[x] - 1; arrive(x, r); r = 0 }
    :: d_step { passed[x] & (1 << round[x]) -> passed[x] = passed[x] & ~(1 << round[x]); r = round[x]; fall(x, r); r = 0 }
    :: d_step { round[x] > 0 && (passed[x] & (1 << (round[x] - 1))) ->
        passed[x] = passed[x] & ~(1 << (round[x] - 1)); r = round[x] - 1; fall(x, r); r = 0 }
    :: d_step { round[x] > 1 && (passed[x] & (1 << (round[x] - 2))) ->
        passed[x] = passed[x] & ~(1 << (round[x] - 2)); r = round[x] - 2; fall(x, r); r = 0 }
    :: d_step { last_of[JOB(x)] && (x & 1) == 0 -> fall_last(x, LAST_OF_OWNER) }
    :: d_step { last_of[JOB(x)] && (x & 1) == 0 -> last_of[JOB(x)] = 0 }
    :: d_step { (x & 1) == 0 && GETS(x, 0) -> r = SAID(x, 0); take(x, r); r = 0 }
    :: d_step { (x & 1) == 0 && GETS(x, 1) -> r = SAID(x, 1); take(x, r); r = 0 }
    :: d_step { HAS_RESULT(x) ->
        /* What the slot answers with is of this job and round. */
        assert(copy_of[x] == round[x] + 1 || IS_KEPT_THERE(round[x]) || !IN_SLOT(x, round[x])
            || (lanes_job[VERSION(round[x])] == JOB(x) && lanes_round[VERSION(round[x])] == round[x]));
        round[x] = round[x] + 1; copy_of[x] = 0 }
    :: d_step { copy_of[x] != 0 -> copy_of[x] = 0 }
    :: d_step { strays < STRAYS && round[x] > 0 -> strays++; r = round[x] - 1; arrive(x, r); r = 0 }
    :: d_step { strays < STRAYS && round[x] > 1 -> strays++; r = round[x] - 2; arrive(x, r); r = 0 }
    :: d_step { strays < STRAYS && round[x] > 2 -> strays++; r = round[x] - 3; arrive(x, r); r = 0 }
    od
}

proctype Misfortune() {
end:
    do
    :: d_step { expiries < EXPIRIES && owner != NOBODY && !is_free -> expiries++; is_free = 1 }
    :: d_step { clears < CLEARS -> clears++; owner = NOBODY; is_free = 0; seen[0] = 0; seen[1] = 0 }
    :: d_step { f_clears < FALLBACK_CLEARS -> f_clears++; f_seen[0] = 0; f_seen[1] = 0; f_seen[2] = 0; f_seen[3] = 0 }
    :: d_step { KILLS && !dead[0] -> dead[0] = 1 }
    od
}

#define IS_THROUGH(x) (round[x] == TOTAL || dead[JOB(x)])

init {
    atomic {
        run Member(0); run Member(1); run Member(2); run Member(3);
        run Misfortune()
    }
    /* The one end that is no dead end. */
    IS_THROUGH(0) && IS_THROUGH(1) && IS_THROUGH(2) && IS_THROUGH(3)
}
