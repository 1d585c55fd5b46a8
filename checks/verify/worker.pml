/* The workers: host/engine/machine.py, host/engine/contribution.py and host/engine/recovery.py, for one slot.
 * Macros without a definition here come from host/engine/rules.py by way of worker_rules.py.
 *
 * A member that was declared lost may still be running: it takes what comes, and repeats in vain. */

byte done[INCARNATIONS * MOST];     /* rounds whose result this worker has */
bit sends[INCARNATIONS * MOST];     /* it has contributed to the round after those and waits for its result */
bit failed[INCARNATIONS * MOST];    /* it raised OperationMismatch */
bit left[INCARNATIONS * MOST];
bit is_told[INCARNATIONS * MOST];   /* heartbeats have told it of the latest clear */
bit outstanding[INCARNATIONS * MOST];      /* the switch may have forgotten its last round, which others may still need */

#define SENT(i, w) (done[AT(i, w)] + sends[AT(i, w)])
#define IS_FINISHED(i, w) (done[AT(i, w)] == total[i] || failed[AT(i, w)])

/* A contribution may wait: for the transport, or for the caller to begin the next operation. */
#define CAN_CONTRIBUTE(i, w) (ADMITTED(i) && !sends[AT(i, w)] && !IS_FINISHED(i, w) && !left[AT(i, w)])
#define HAS_RESULT(i, w) (TAKES_RESULT && sends[AT(i, w)] && ((right[AT(i, w)] | wrong[AT(i, w)]) & (1 << done[AT(i, w)])))
#ifdef HAND_OVER
#define CAN_LEAVE(i, w) ((i) == 0 && !left[AT(i, w)] && IS_FINISHED(i, w))
#else
#define CAN_LEAVE(i, w) 0
#endif

/* The news of a clear comes at any time after it.  From then on a slot's last round is outstanding, or the one that it
 * waits in: the result that it gets there may be an old copy, of which the switch knows nothing any more.  That ends
 * when it contributes anew: the result of what is sent after the news comes from the cleared switch. */
#if CLEARS > 0
#define CAN_BE_TOLD(i, w) (!is_told[AT(i, w)] && clears > 0 && !left[AT(i, w)])
#else
#define CAN_BE_TOLD(i, w) 0
#endif
inline tell(i, w) {
    is_told[AT(i, w)] = 1;
    outstanding[AT(i, w)] = outstanding[AT(i, w)] || (sends[AT(i, w)] -> NOTES_WAITING : NOTES_IDLE)
}

/* An answer about the last round says nothing: it may be an old copy, too. */
#define IS_ACKNOWLEDGED(i, w) \
    (ANSWER_ACKNOWLEDGES && outstanding[AT(i, w)] && !sends[AT(i, w)] && done[AT(i, w)] > 0 && !reliable)

inline begin(i, w) {
    sends[AT(i, w)] = 1;
    outstanding[AT(i, w)] = outstanding[AT(i, w)] && !NEXT_ACKNOWLEDGES
}

/* What a worker sends again and again: the last two contributions, even if the switch holds the later one, and the last
 * one of a slot that has nothing more to do while it is outstanding. */
#ifdef BREAK_HELD_STOPS
#define REPEATS_FORMER(i, w, r) (!(number_of[CELL(NUMBER(i, r + 1))] == NUMBER(i, r + 1) \
    && (seen[CELL(NUMBER(i, r + 1))] & BIT(w))))
#else
#define REPEATS_FORMER(i, w, r) REPEATS_BOTH
#endif
#define REPEATS_IDLE(i, w) (RESENDS_IDLE && outstanding[AT(i, w)])
#define REPEATS(i, w, r) (!left[AT(i, w)] && !failed[AT(i, w)] && (sends[AT(i, w)] \
    -> ((r == done[AT(i, w)] && REPEATS_WAITING) || (r + 1 == done[AT(i, w)] && REPEATS_FORMER(i, w, r))) \
    : (r + 1 == done[AT(i, w)] && REPEATS_IDLE(i, w))))

inline receive(i, w) {
    if
    :: wrong[AT(i, w)] & (1 << done[AT(i, w)]) ->
        assert(fault[AT(i, w)] != DOUBLE_ADDITION);
        assert(fault[AT(i, w)] != MISSING);
        assert(fault[AT(i, w)] != FOREIGN_LANES);
        assert(fault[AT(i, w)] != WRONG_NEXT);
        assert(fault[AT(i, w)] != WRONG_FLAGS)
    :: else
    fi;
    failed[AT(i, w)] = IS_MIXED(i, done[AT(i, w)]);
    done[AT(i, w)] = done[AT(i, w)] + 1;
    sends[AT(i, w)] = 0;
    right[AT(i, w)] = right[AT(i, w)] & ~((1 << done[AT(i, w)]) - 1);
    wrong[AT(i, w)] = wrong[AT(i, w)] & ~((1 << done[AT(i, w)]) - 1)
}
