/* The controller: who is admitted, and how a slot passes from one incarnation, or one job, to another. */

#define OPEN 0                  /* the first incarnation's entries are on the switch */
#define CLOSED 1                /* nobody's */
#define HANDED_OVER 2           /* the second one's */
byte gate = OPEN;
bit lost;                       /* a member was killed or declared lost: the others raise WorkerLost */
byte queried = NUMBERS;         /* newest number that a query of both cells has found */

#ifdef HAND_OVER
#ifdef BREAK_EPOCH_IGNORED      /* members are known by their addresses alone */
#define ADMITTED(i) (gate == HANDED_OVER || (gate == OPEN && (i) == 0))
#else
#define ADMITTED(i) ((gate == OPEN && (i) == 0) || (gate == HANDED_OVER && (i) == 1))
#endif
#else
#define ADMITTED(i) 1
#endif
#define ALL_LEFT (left[0] && left[1] && (WORKERS < 3 || left[2]))
#define ANY_LEFT (left[0] || left[1] || (WORKERS > 2 && left[2]))
#ifdef BREAK_EARLY_HAND_OVER    /* the first member that leaves gives the slot away */
#define IS_FREE (ANY_LEFT || lost)
#else
#define IS_FREE (ALL_LEFT || lost)
#endif

#define NEWEST ((seen[0] && (!seen[1] || !((number_of[1] + NUMBERS - number_of[0]) % NUMBERS < NUMBERS / 2))) \
    -> number_of[0] : (seen[1] -> number_of[1] : NUMBERS))
#ifdef BREAK_START_AT_ONE       /* numbers do not outlive jobs */
#define START FIRST
#else
#define START (queried == NUMBERS -> FIRST : (queried + 1) % NUMBERS)
#endif

#define CAN_CLOSE (gate == OPEN && IS_FREE)
#define CAN_HAND_OVER (gate == CLOSED)
inline close() {
    gate = CLOSED
}

inline hand_over() {
    queried = NEWEST;
    gate = HANDED_OVER;
    base[1] = START
}

proctype Controller() {
end:
    do
#ifdef KILLS
    :: d_step { gate == OPEN && !lost && !ALL_LEFT -> lost = 1 }
#endif
#ifdef BREAK_QUERY_BEFORE_CLOSE
    :: d_step { CAN_CLOSE && queried == NUMBERS && NEWEST != NUMBERS -> queried = NEWEST }
    :: d_step { CAN_CLOSE && (queried != NUMBERS || NEWEST == NUMBERS) -> close() }
    :: d_step { CAN_HAND_OVER -> gate = HANDED_OVER; base[1] = START }
#else
    :: d_step { CAN_CLOSE -> close() }
    :: d_step { CAN_HAND_OVER -> hand_over() }
#endif
    od
}

#define LIVE (INCARNATIONS - 1)
#define LIVE_FINISHED(w) (MEMBERS(LIVE) <= w || IS_FINISHED(LIVE, w))
/* An orderly end of the first incarnation includes that nobody was left without its last result. */
#define FORMER_FINISHED(w) (LIVE == 0 || lost || MEMBERS(0) <= w || IS_FINISHED(0, w))
/* Who has left cannot help the others after a clear; they end with an error that names it. */
#define IS_EXCUSED (clears > 0 && INCARNATIONS > 1 && gate == OPEN && ANY_LEFT)
#define IS_OVER (IS_EXCUSED || (LIVE_FINISHED(0) && LIVE_FINISHED(1) && LIVE_FINISHED(2) \
    && FORMER_FINISHED(0) && FORMER_FINISHED(1) && FORMER_FINISHED(2)))

inline prepare() {
    base[0] = FIRST;
    next_block[0] = NONE;
    next_block[1] = NONE
}
