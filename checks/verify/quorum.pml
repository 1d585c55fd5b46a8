/* An operation that may go on without some ranks: all agree first, in a small round, on who takes part.
 *
 * This is a model of a design that is not built.  Each operation has a round of agreement without lanes, in a cell of
 * one switch, and then a round with lanes in another cell; both have two versions as in slot.pml.  When patience ends
 * the controller closes the first round by a frame from the CPU port, if enough ranks have contributed.  What it closed
 * stands in the switch's entries before anybody is told.  The network is a set, as in model.pml.
 *
 * Rank 2 may be late by any number of operations, or gone for good.  Broken rules are macros; checks/verify/quorums.py
 * lists them. */

#ifndef OPERATIONS
#define OPERATIONS 3
#endif
#ifndef CLEARS                  /* how often the switch is killed and comes back: entries as they were, cells empty */
#define CLEARS 0
#endif
#ifndef KEEPS                   /* for so many operations members keep a result that somebody may still ask for */
#define KEEPS 1
#endif

#define RANKS 3
#define QUORUM 2
#define ALL 7
#define BIT(w) (1 << (w))
#define CELL(r) ((r) & 1)
#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))

#define IDLE 0
#define ASKS 1                  /* it has contributed to the agreement */
#define ADDS 2                  /* it knows who takes part, is among them, and has contributed its lanes */
byte operation[RANKS];          /* the one that it is in, or begins next */
byte phase[RANKS];
byte view[RANKS];               /* who takes part, as it was told */
byte part[RANKS];               /* the operations in which it took part, as bits */
bit gone;                       /* rank 2 begins nothing any more */
bit lost[RANKS];                /* it was told WorkerLost: the result that it asks for is kept no longer */

#define EMPTY 0
#define OPEN 1
#define CLOSED 2
#define COMPLETE 3
byte number_of[2], seen[2], state[2];           /* of the agreements; a number is the operation's, plus 1 */
byte sum_number[2], sum_seen[2];                /* of the rounds with lanes */
byte decision[OPERATIONS];      /* entries: who takes part in what was closed; 0: nothing was */
byte asked[OPERATIONS];         /* what a query found, where closing is no single step */
byte clears, barred;            /* operations before it may have been told of as complete, and are not closed */

byte truth[OPERATIONS];         /* who takes part, as the first rank was told */
byte result[OPERATIONS];        /* whose lanes are in the result that a rank took first */

#define FULL(r) (decision[r] != 0 -> decision[r] : ALL)
#define SENT(w, r) ((r) < operation[w] || ((r) == operation[w] && phase[w] != IDLE))
#define SENT_LANES(w, r) ((part[w] & BIT(r)) || ((r) == operation[w] && phase[w] == ADDS))
#define NEWEST (operation[0] > operation[1] -> (operation[0] > operation[2] -> operation[0] : operation[2]) \
    : (operation[1] > operation[2] -> operation[1] : operation[2]))

#ifdef BREAK_ENTRIES_IGNORED    /* a cell that was cleared counts again what entries say is closed */
#define IS_DECIDED(r) 0
#else
#define IS_DECIDED(r) (decision[r] != 0)
#endif
#ifdef BREAK_CLOSE_AFTER_CLEAR
#define MAY_CLOSE(r) 1
#else
#define MAY_CLOSE(r) ((r) >= barred)
#endif

#define CHANGES(w, r) (!IS_DECIDED(r) && (number_of[CELL(r)] < (r) + 1 \
    || (number_of[CELL(r)] == (r) + 1 && state[CELL(r)] == OPEN && !(seen[CELL(r)] & BIT(w)))))
inline agree(w, r) {
    if
    :: number_of[CELL(r)] < r + 1 -> number_of[CELL(r)] = r + 1; seen[CELL(r)] = 0; state[CELL(r)] = OPEN
    :: else
    fi;
    seen[CELL(r)] = seen[CELL(r)] | BIT(w);
    if
    :: seen[CELL(r)] == ALL && state[CELL(r)] == OPEN -> state[CELL(r)] = COMPLETE
    :: else
    fi
}

#define CHANGES_SUM(w, r) (sum_number[CELL(r)] < (r) + 1 \
    || (sum_number[CELL(r)] == (r) + 1 && sum_seen[CELL(r)] != FULL(r) && !(sum_seen[CELL(r)] & BIT(w))))
inline add(w, r) {
    if
    :: sum_number[CELL(r)] < r + 1 -> sum_number[CELL(r)] = r + 1; sum_seen[CELL(r)] = 0
    :: else
    fi;
    sum_seen[CELL(r)] = sum_seen[CELL(r)] | BIT(w)
}

/* A rank is told who takes part. */
inline learn(w, set) {
    if
    :: set & BIT(w) ->
        assert(truth[operation[w]] == 0 || truth[operation[w]] == set);     /* all have been told the same */
        truth[operation[w]] = set;
        view[w] = set;
        phase[w] = ADDS
    :: else ->
        assert((truth[operation[w]] & BIT(w)) == 0);
        operation[w]++;         /* it keeps what it has in its error feedback */
        phase[w] = IDLE
    fi
}

inline take(w, set) {
    assert(set == view[w] && (result[operation[w]] == 0 || result[operation[w]] == set));
    result[operation[w]] = set;
    part[w] = part[w] | BIT(operation[w]);
    operation[w]++;
    phase[w] = IDLE;
    view[w] = 0
}

#define HEARS_COMPLETE(w) (phase[w] == ASKS && state[CELL(operation[w])] == COMPLETE \
    && number_of[CELL(operation[w])] == operation[w] + 1)
#ifdef BREAK_TELLS_FIRST        /* ranks are told by the switch that closes, before entries say so */
#define HEARS_CLOSED(w) (phase[w] == ASKS && state[CELL(operation[w])] == CLOSED \
    && number_of[CELL(operation[w])] == operation[w] + 1)
#define CLOSED_SET(w) seen[CELL(operation[w])]
#else
#define HEARS_CLOSED(w) (phase[w] == ASKS && decision[operation[w]] != 0)
#define CLOSED_SET(w) decision[operation[w]]
#endif
#define HAS_RESULT(w) (phase[w] == ADDS && sum_number[CELL(operation[w])] == operation[w] + 1 \
    && sum_seen[CELL(operation[w])] == FULL(operation[w]))
/* Two versions are not enough here: operations without this rank may have overwritten the result. */
#define IS_OVERWRITTEN(w) (phase[w] == ADDS && result[operation[w]] != 0 \
    && sum_number[CELL(operation[w])] > operation[w] + 1)
#define IS_KEPT(w) (NEWEST <= operation[w] + 2 + KEEPS)

proctype Copies(byte w, r) {
end:
    do
    :: d_step { SENT(w, r) && CHANGES(w, r) -> agree(w, r) }
    :: d_step { SENT_LANES(w, r) && CHANGES_SUM(w, r) -> add(w, r) }
    od
}

proctype Rank(byte w) {
end:
    do
    :: d_step { phase[w] == IDLE && operation[w] < OPERATIONS && !lost[w] && !(gone && w == 2) -> phase[w] = ASKS }
    :: d_step { HEARS_COMPLETE(w) -> learn(w, ALL) }
    :: d_step { HEARS_CLOSED(w) -> learn(w, CLOSED_SET(w)) }
    :: d_step { HAS_RESULT(w) -> take(w, sum_seen[CELL(operation[w])]) }
#ifndef BREAK_NOT_KEPT
    :: d_step { IS_OVERWRITTEN(w) && IS_KEPT(w) -> take(w, result[operation[w]]) }
    :: d_step { IS_OVERWRITTEN(w) && !IS_KEPT(w) && !lost[w] -> lost[w] = 1 }
#endif
    od
}

#define CAN_CLOSE(c) (state[c] == OPEN && COUNT(seen[c]) >= QUORUM && seen[c] != ALL && MAY_CLOSE(number_of[c] - 1))

#define CAN_DECIDE_AGAIN(c) (number_of[c] > 0 && asked[number_of[c] - 1] == 0 && sum_number[c] == number_of[c] \
    && COUNT(sum_seen[c]) >= QUORUM && sum_seen[c] != FULL(number_of[c] - 1))

/* A controller that restarts knows nothing but entries and cells, as this one at any time. */
proctype Controller(byte c) {
end:
    do
#ifdef BREAK_NOT_ATOMIC         /* it reads who has contributed, and writes that later */
    :: d_step { CAN_CLOSE(c) && asked[number_of[c] - 1] == 0 -> asked[number_of[c] - 1] = seen[c] }
    :: d_step { number_of[c] > 0 && asked[number_of[c] - 1] != 0 && decision[number_of[c] - 1] == 0 ->
        decision[number_of[c] - 1] = asked[number_of[c] - 1] }
#else
    :: d_step { CAN_CLOSE(c) -> state[c] = CLOSED }
    :: d_step { state[c] == CLOSED && decision[number_of[c] - 1] == 0 -> decision[number_of[c] - 1] = seen[c] }
#endif
#ifdef BREAK_DECIDES_AGAIN      /* a rank that stops after the agreement is left out of it */
    :: d_step { CAN_DECIDE_AGAIN(c) -> asked[number_of[c] - 1] = 1; decision[number_of[c] - 1] = sum_seen[c] }
#endif
    od
}

proctype Misfortune() {
end:
    do
    :: d_step { !gone && phase[2] == IDLE -> gone = 1 }
    :: d_step { clears < CLEARS ->
        clears++;
        barred = NEWEST + 1;
        number_of[0] = 0; number_of[1] = 0; seen[0] = 0; seen[1] = 0; state[0] = EMPTY; state[1] = EMPTY;
        sum_number[0] = 0; sum_number[1] = 0; sum_seen[0] = 0; sum_seen[1] = 0 }
    od
}

/* Who waits for somebody that will not come, where the round may not be closed: it waits as it would without a quorum. */
#define IS_ABSENT(w) (lost[w] || ((w) == 2 && gone && phase[2] == IDLE))
#define ARE_ABSENT (IS_ABSENT(0) + IS_ABSENT(1) + IS_ABSENT(2))
#define IS_EXCUSED(w) (phase[w] == ASKS && (ARE_ABSENT > RANKS - QUORUM || (ARE_ABSENT > 0 && operation[w] < barred)))
#define IS_THROUGH(w) (operation[w] == OPERATIONS || IS_ABSENT(w) || IS_EXCUSED(w))

init {
    byte w, r;
    atomic {
        do
        :: w < RANKS ->
            run Rank(w);
            do
            :: r < OPERATIONS -> run Copies(w, r); r++
            :: else -> break
            od;
            r = 0;
            w++
        :: else -> break
        od;
        run Controller(0);
        run Controller(1);
        run Misfortune()
    }
    /* The one end that is no dead end. */
    IS_THROUGH(0) && IS_THROUGH(1) && IS_THROUGH(2)
}
