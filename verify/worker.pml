/* The workers: host/machine.py, host/contribution.py and host/recovery.py, for one slot.
 *
 * A member that was declared lost may still be running: it takes what comes, and repeats in vain. */

byte done[INCARNATIONS * MOST];     /* rounds whose result this worker has */
bit sends[INCARNATIONS * MOST];     /* it has contributed to the round after those and waits for its result */
bit failed[INCARNATIONS * MOST];    /* it raised OperationMismatch */
bit left[INCARNATIONS * MOST];

#define SENT(i, w) (done[AT(i, w)] + sends[AT(i, w)])
#define IS_FINISHED(i, w) (done[AT(i, w)] == total[i] || failed[AT(i, w)])

/* A contribution may wait: for the transport, or for the caller to begin the next operation. */
#define CAN_CONTRIBUTE(i, w) (ADMITTED(i) && !sends[AT(i, w)] && !IS_FINISHED(i, w) && !left[AT(i, w)])
#define HAS_RESULT(i, w) (sends[AT(i, w)] && ((right[AT(i, w)] | wrong[AT(i, w)]) & (1 << done[AT(i, w)])))
#ifdef HAND_OVER
#define CAN_LEAVE(i, w) ((i) == 0 && !left[AT(i, w)] && IS_FINISHED(i, w))
#else
#define CAN_LEAVE(i, w) 0
#endif

/* What a worker sends again and again.  After a switch was cleared: the last two contributions, even if the switch
 * holds the later one, and the last one of a slot that has nothing more to do. */
#ifdef BREAK_REPEATS_ONE
#define REPEATS_FORMER(i, w, r) 0
#elif defined(BREAK_HELD_STOPS)
#define REPEATS_FORMER(i, w, r) (!(number_of[CELL(NUMBER(i, r + 1))] == NUMBER(i, r + 1) \
    && (seen[CELL(NUMBER(i, r + 1))] & BIT(w))))
#else
#define REPEATS_FORMER(i, w, r) 1
#endif
#ifdef BREAK_IDLE_IS_SILENT
#define REPEATS_IDLE 0
#else
#define REPEATS_IDLE (clears > 0)
#endif
#define REPEATS(i, w, r) (!left[AT(i, w)] && !failed[AT(i, w)] && (sends[AT(i, w)] \
    -> (r == done[AT(i, w)] || (r + 1 == done[AT(i, w)] && REPEATS_FORMER(i, w, r))) \
    : (r + 1 == done[AT(i, w)] && REPEATS_IDLE)))

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
