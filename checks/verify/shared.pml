/* Shared slots: two jobs of two members, one cell that belongs to nobody, and a fallback that serves whoever has it not.
 *
 * This is a model of a design that is not built.  Before an operation each member claims the cell.  The switch stamps
 * the claim `ours` (with the cell's epoch) or `taken`, and passes it on.  The fallback alone completes the claim, says
 * `cell` only if all members' stamps were `ours` of one epoch, and answers repeats.  The operation's only round then
 * goes through the cell, with that epoch in each contribution, or through the fallback.  A member that has the result
 * releases the cell; what nobody will release expires.  A member whose cell is not its own any more goes to the
 * fallback with its contribution, and so do the others when they hear of it, also those that have the result.
 *
 * The network is a set, as in model.pml.  Broken rules are macros; checks/verify/shared.py lists them. */

#ifndef OPERATIONS
#define OPERATIONS 2
#endif
#ifndef CLEARS                  /* how often the switch is killed and comes back without cells */
#define CLEARS 0
#endif
#ifndef FALLBACK_CLEARS
#define FALLBACK_CLEARS 0
#endif
#ifndef KILLS                   /* 1: a member of job 0 may be killed at any time */
#define KILLS 0
#endif

#define JOB(x) ((x) / 2)        /* x: member x % 2 of job x / 2 */
#define MATE(x) ((x) ^ 1)
#define BIT(x) (1 << ((x) & 1))
#define BOTH 3

#define IDLE 0
#define CLAIMS 1
#define IN_CELL 2
#define IN_FALLBACK 3
byte operation[4], phase[4], epoch_of[4];       /* the epoch that the verdict named; 0: the fallback */
byte last_epoch[4];                             /* likewise, of the operation before */
bit dead[2];                                    /* a job whose member was killed: the other one gives up */

#define NOBODY 2
byte owner = NOBODY, owner_operation, epoch;
byte seen, released, added[2];                  /* of the cell; `added` by member, up to 2 */
bit foreign;                                    /* lanes of another job or operation are in it */

/* Stamped claims on their way to the fallback, of the operation that each member claims for. */
short ours[4];                                  /* bits by epoch */
bit taken[4];

/* The fallback, by job. */
byte f_operation[2], f_stamp[4];                /* the stamps of the claim; 0: none came, TAKEN, or the epoch */
byte f_verdict[2];                              /* likewise, of all */
#define TAKEN 15
byte f_sum_operation[2], f_seen[2], f_added[4];     /* the round; an operation's number is its place, plus 1 */
byte clears, f_clears;

#define HAS_CLAIMED(x) (phase[x] == CLAIMS && !dead[JOB(x)])
#define IS_OURS(x) (owner == JOB(x) && owner_operation == operation[x])

inline claim(x) {
    if
    :: owner == NOBODY ->
        owner = JOB(x); owner_operation = operation[x]; epoch++;
        seen = 0; released = 0; added[0] = 0; added[1] = 0; foreign = 0;
        ours[x] = ours[x] | (1 << epoch)
    :: else ->
        if
        :: IS_OURS(x) -> ours[x] = ours[x] | (1 << epoch)
        :: else -> taken[x] = 1
        fi
    fi
}
#define CLAIM_CHANGES(x) (HAS_CLAIMED(x) && (owner == NOBODY -> epoch < 12 : (IS_OURS(x) -> !(ours[x] & (1 << epoch)) : !taken[x])))

inline open_claim(x) {
    if
    :: f_operation[JOB(x)] < operation[x] + 1 ->
        f_operation[JOB(x)] = operation[x] + 1; f_verdict[JOB(x)] = 0; f_stamp[x] = 0; f_stamp[MATE(x)] = 0
    :: else
    fi
}
#define IS_CLAIM_OPEN(x) (f_operation[JOB(x)] < operation[x] + 1 \
    || (f_operation[JOB(x)] == operation[x] + 1 && f_stamp[x] == 0))
#ifdef BREAK_ANY_OURS           /* one stamp `ours` is enough */
#define VERDICT(x) (f_stamp[x] != TAKEN -> f_stamp[x] : f_stamp[MATE(x)])
#else
#ifdef BREAK_EPOCHS_DIFFER      /* stamps `ours` of different epochs are taken for one */
#define VERDICT(x) (f_stamp[x] != TAKEN && f_stamp[MATE(x)] != TAKEN -> f_stamp[x] : TAKEN)
#else
#define VERDICT(x) (f_stamp[x] == f_stamp[MATE(x)] -> f_stamp[x] : TAKEN)
#endif
#endif
inline stamp(x, what) {
    open_claim(x);
    f_stamp[x] = what;
    if
    :: f_stamp[MATE(x)] != 0 -> f_verdict[JOB(x)] = VERDICT(x)
    :: else
    fi
}

/* A fallback that has lost the verdict hears it from a member that knows. */
#ifdef BREAK_NO_REMINDER
#define KNOWS(x) 0
#else
#define KNOWS(x) ((phase[x] == IN_CELL || phase[x] == IN_FALLBACK) && !dead[JOB(x)] && f_clears > 0 \
    && (f_operation[JOB(x)] <= operation[x] || (f_operation[JOB(x)] == operation[x] + 1 && f_verdict[JOB(x)] == 0)))
#endif
inline remind(x) {
    open_claim(x);
    f_verdict[JOB(x)] = (epoch_of[x] == 0 -> TAKEN : epoch_of[x])
}

#define HAS_VERDICT(x) (HAS_CLAIMED(x) && f_operation[JOB(x)] == operation[x] + 1 && f_verdict[JOB(x)] != 0)
inline hear(x) {
    if
    :: f_verdict[JOB(x)] == TAKEN -> phase[x] = IN_FALLBACK; epoch_of[x] = 0
    :: else -> phase[x] = IN_CELL; epoch_of[x] = f_verdict[JOB(x)]
    fi;
    ours[x] = 0; taken[x] = 0
}

/* Contributions to the cell: of the member's operation. */
#ifdef BREAK_NO_EPOCH
#define IS_ITS_CELL(x) (owner != NOBODY)
#else
#define IS_ITS_CELL(x) (owner == JOB(x) && epoch == epoch_of[x])
#endif
#define CAN_ADD(x) (phase[x] == IN_CELL && !dead[JOB(x)] && IS_ITS_CELL(x) && !(seen & BIT(x)))
inline add(x) {
    seen = seen | BIT(x);
    if
    :: IS_OURS(x) ->
        if
        :: added[x & 1] < 2 -> added[x & 1] = added[x & 1] + 1
        :: else
        fi
    :: else -> foreign = 1
    fi
}

inline finish(x) {
    last_epoch[x] = epoch_of[x];
    operation[x]++;
    phase[x] = IDLE;
    epoch_of[x] = 0
}

#define HAS_CELLS_RESULT(x) (phase[x] == IN_CELL && !dead[JOB(x)] && IS_ITS_CELL(x) && seen == BOTH)
inline take_from_cell(x) {
    assert(!foreign && added[0] == 1 && added[1] == 1);
    finish(x)
}

/* `not yours`: the contribution goes to the fallback. */
#define IS_NOT_ITS(x) (phase[x] == IN_CELL && !dead[JOB(x)] && !IS_ITS_CELL(x))

/* Who sends to the fallback: who was told to, and who has the result and hears that another one asks for it there. */
#define ASKS_FALLBACK(x) (phase[x] == IN_FALLBACK && !dead[JOB(x)])
#ifdef BREAK_FINISHED_ARE_SILENT
#define HELPS(x) 0
#else
#define HELPS(x) (operation[x] > 0 && !dead[JOB(x)] && ASKS_FALLBACK(MATE(x)) && operation[MATE(x)] + 1 == operation[x])
#endif
#define HEARS_OF_MOVE(x) (phase[x] == IN_CELL && !dead[JOB(x)] && ASKS_FALLBACK(MATE(x)) \
    && operation[MATE(x)] == operation[x] && f_sum_operation[JOB(x)] == operation[x] + 1)
#define FALLS(x, r) (f_sum_operation[JOB(x)] < (r) || (f_sum_operation[JOB(x)] == (r) && !(f_seen[JOB(x)] & BIT(x))))
inline fall(x, r) {
    if
    :: f_sum_operation[JOB(x)] < r ->
        f_sum_operation[JOB(x)] = r; f_seen[JOB(x)] = 0; f_added[x] = 0; f_added[MATE(x)] = 0
    :: else
    fi;
    f_seen[JOB(x)] = f_seen[JOB(x)] | BIT(x);
    f_added[x] = f_added[x] + 1
}
#define HAS_FALLBACKS_RESULT(x) (ASKS_FALLBACK(x) && f_sum_operation[JOB(x)] == operation[x] + 1 && f_seen[JOB(x)] == BOTH)
inline take_from_fallback(x) {
    assert(f_added[x] == 1 && f_added[MATE(x)] == 1);
    finish(x)
}

/* A member that has the result gives the cell back.  One that was sent to the fallback does so, too. */
#ifdef BREAK_FIRST_RELEASES     /* the cell is free when the first member releases it */
#define ENOUGH(set) ((set) != 0)
#else
#define ENOUGH(set) ((set) == BOTH)
#endif
#ifdef BREAK_RELEASE_WITHOUT_EPOCH
#define MAY_RELEASE(x) (owner == JOB(x) && operation[x] > 0 && last_epoch[x] != 0)
#else
#define MAY_RELEASE(x) (owner == JOB(x) && ((operation[x] > 0 && last_epoch[x] == epoch) \
    || (phase[x] == IN_FALLBACK && owner_operation == operation[x])))
#endif
#define CAN_RELEASE(x) (MAY_RELEASE(x) && !dead[JOB(x)] && !(released & BIT(x)))
inline release(x) {
    released = released | BIT(x);
    if
    :: ENOUGH(released) -> owner = NOBODY
    :: else
    fi
}
/* An orphan: its job is dead, or both members are past the operation, so that nobody asks for it. */
#define IS_ORPHAN(j) (owner == (j) && (dead[j] || (operation[2 * (j)] > owner_operation && operation[2 * (j) + 1] > owner_operation)))

proctype Member(byte x) {
end:
    do
    :: d_step { phase[x] == IDLE && operation[x] < OPERATIONS && !dead[JOB(x)] -> phase[x] = CLAIMS }
    :: d_step { CLAIM_CHANGES(x) -> claim(x) }
    :: d_step { HAS_CLAIMED(x) && IS_CLAIM_OPEN(x) && taken[x] -> stamp(x, TAKEN) }
    :: d_step { HAS_CLAIMED(x) && IS_CLAIM_OPEN(x) && ours[x] != 0 && (ours[x] & (1 << epoch)) -> stamp(x, epoch) }
    :: d_step { HAS_CLAIMED(x) && IS_CLAIM_OPEN(x) && epoch > 1 && (ours[x] & (1 << (epoch - 1))) -> stamp(x, epoch - 1) }
    :: d_step { KNOWS(x) -> remind(x) }
    :: d_step { HAS_VERDICT(x) -> hear(x) }
    :: d_step { CAN_ADD(x) -> add(x) }
    :: d_step { HAS_CELLS_RESULT(x) -> take_from_cell(x) }
    :: d_step { IS_NOT_ITS(x) || HEARS_OF_MOVE(x) -> phase[x] = IN_FALLBACK; epoch_of[x] = 0 }
    :: d_step { ASKS_FALLBACK(x) && FALLS(x, operation[x] + 1) -> fall(x, operation[x] + 1) }
    :: d_step { HELPS(x) && FALLS(x, operation[x]) -> fall(x, operation[x]) }
    :: d_step { HAS_FALLBACKS_RESULT(x) -> take_from_fallback(x) }
    :: d_step { CAN_RELEASE(x) -> release(x) }
    od
}

proctype Misfortune() {
end:
    do
#ifndef BREAK_ORPHANS_STAY
    :: d_step { IS_ORPHAN(0) || IS_ORPHAN(1) -> owner = NOBODY }
#endif
    :: d_step { clears < CLEARS -> clears++; owner = NOBODY; epoch++; seen = 0 }
    :: d_step { f_clears < FALLBACK_CLEARS ->
        f_clears++;
        f_operation[0] = 0; f_operation[1] = 0; f_verdict[0] = 0; f_verdict[1] = 0;
        f_stamp[0] = 0; f_stamp[1] = 0; f_stamp[2] = 0; f_stamp[3] = 0;
        f_sum_operation[0] = 0; f_sum_operation[1] = 0; f_seen[0] = 0; f_seen[1] = 0;
        f_added[0] = 0; f_added[1] = 0; f_added[2] = 0; f_added[3] = 0 }
    :: d_step { KILLS && !dead[0] -> dead[0] = 1 }
    od
}

#define IS_THROUGH(x) (operation[x] == OPERATIONS || dead[JOB(x)])

init {
    atomic {
        run Member(0); run Member(1); run Member(2); run Member(3);
        run Misfortune()
    }
    /* The one end that is no dead end; and the cell is nobody's then. */
    IS_THROUGH(0) && IS_THROUGH(1) && IS_THROUGH(2) && IS_THROUGH(3) && owner == NOBODY
}
