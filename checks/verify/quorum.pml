/* Operations that may go on without some ranks: the controller decides who takes part, and switches keep what it said.
 *
 * Ranks ask the controller (host/api/quorum.py), which decides once (controller/jobs/agreement.py).  It writes the
 * decision to the root and to a leaf before it tells anybody (controller/service/agreements.py).  Ranks that go on
 * without the others have a job of their own, the set's job, which is on both switches before a decision names it.
 * Frames are left out: an operation ends on a rank when the whole set has begun it.
 *
 * A write to a switch may fail.  The controller may be killed between any two writes, and another one reads the switches.
 * The former one's answers may come late: it stood by, or they were on their way.  A switch may come back empty, and
 * rank 2 may die.  Broken rules are macros; checks/verify/quorums.py lists them. */

#ifndef OPERATIONS
#define OPERATIONS 3
#endif
#ifndef QUORUM
#define QUORUM 2
#endif
#ifndef KEEP                    /* members keep the results of so many operations */
#define KEEP 1
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef FAILURES                /* of writes */
#define FAILURES 0
#endif
#ifndef CLEARS                  /* of switches */
#define CLEARS 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif

#define RANKS 3
#define ALL 7
#define BIT(w) (1 << (w))
#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))

/* Ranks. */
#define IDLE 0                  /* it computes */
#define ASKS 1
#define TOLD 2                  /* it knows who takes part, and joins the set's job */
#define ADDS 3
#define LOST 4                  /* it lacks more results than are kept */
byte phase[RANKS];
byte has[RANKS];                /* the latest operation whose result it has */
byte number[RANKS], view[RANKS];        /* the operation that it is in, and who takes part, as it was told */
byte part[RANKS];               /* the operations in which it took part, as bits */
#ifdef GIVES_MODEL              /* a rank that lacks more results than are kept is given the model, and what is kept */
byte oldest[RANKS];             /* it keeps the results from this one on */
#endif
byte deaths;                    /* of rank 2 */

/* The controller. */
bit is_up = 1;
byte latest, takes_part;        /* its latest decision */
byte asking, after[RANKS];
byte jobs;                      /* the sets that have a job, as bits */
byte next_part;                 /* the decision that is being written */
bit stands;                     /* all switches had the latest one at some time, so somebody may have been told */
#define QUIET 0
#define JOB_TO_ROOT 1
#define JOB_TO_LEAF 2
#define ENTRY_TO_ROOT 3
#define ENTRY_TO_LEAF 4
byte writes = QUIET;
byte former, former_part;       /* the latest decision that a controller before this one may have told */

/* Switches: 0 is the root, 1 a leaf. */
bit there[2];                   /* 0: it is empty */
byte entry[2], entry_part[2], entry_jobs[2];

byte crashes, failures, clears;
byte truth[OPERATIONS + 1];     /* who takes part, as the first rank was told */

#define LIVES(w) (phase[w] != LOST && !(deaths && (w) == 2))
#define AGREES(s) (there[s] && entry[s] == latest && entry_part[s] == takes_part && entry_jobs[s] == jobs)
#define IS_SETTLED (AGREES(0) && AGREES(1))
#define HAS_BEGUN(w, n) ((number[w] == (n) && phase[w] == ADDS) || (part[w] & BIT(n)))
#define HAVE_BEGUN(set, n) ((!((set) & 1) || HAS_BEGUN(0, n)) && (!((set) & 2) || HAS_BEGUN(1, n)) \
    && (!((set) & 4) || HAS_BEGUN(2, n)))
#define IS_TO_HEAR(w, n, set) (has[w] < (n) && ((set) & BIT(w)))

#ifdef BREAK_TELLS_UNSETTLED    /* a new controller tells what it has read before all switches have it */
#define STANDS 1
#else
#define STANDS (IS_SETTLED)
#endif
#define MAY_TELL (is_up && writes == QUIET && stands && STANDS)

#define IS_NEW(w) (is_up && writes == QUIET && !(asking & BIT(w)) && !IS_TO_HEAR(w, latest, takes_part))
#ifdef GIVES_MODEL
#define ASKS_ALWAYS
#endif
#ifdef BREAK_NO_LIMIT
#define ASKS_ALWAYS
#endif
inline note(w) {
    assert(has[w] <= latest);           /* ranks know of nothing that the controller does not */
#ifdef ASKS_ALWAYS
    asking = asking | BIT(w); after[w] = has[w]
#else
    if
    :: latest - has[w] > KEEP -> phase[w] = LOST
    :: else -> asking = asking | BIT(w); after[w] = has[w]
    fi
#endif
}

#ifdef GIVES_MODEL
#define LACKS_NONE(w, n, set) (((set) & BIT(w)) && has[w] == (n) - 1)
#define GIVER(n, set) (LACKS_NONE(0, n, set) -> 0 : (LACKS_NONE(1, n, set) -> 1 : 2))
#define LATER(a, b) ((a) > (b) -> (a) : (b))
#define FROM(n, most) ((n) > (most) -> (n) - (most) : 1)
#ifdef BREAK_MODEL_ALONE        /* it is given no results beside the model */
#define OLDEST_GIVEN(n, set) (n)
#else
#define OLDEST_GIVEN(n, set) (LATER(oldest[GIVER(n, set)], FROM(n, KEEP)))
#endif
inline catch_up(w, n, set) {
    if
    :: has[w] == n - 1
    :: has[w] < n - 1 && n - 1 - has[w] <= KEEP -> assert(oldest[GIVER(n, set)] <= has[w] + 1)
    :: else -> oldest[w] = OLDEST_GIVEN(n, set)
    fi
}
#define FORGET(w) oldest[w] = LATER(oldest[w], FROM(number[w], KEEP - 1))
#else
#define catch_up(w, n, set) assert(n - 1 - has[w] <= KEEP)
#define FORGET(w) skip
#endif

/* A rank is told who takes part; one of them gives it what it lacks. */
inline learn(w, n, set) {
    assert(truth[n] == 0 || truth[n] == set);           /* all have been told the same */
    catch_up(w, n, set);                                /* and they keep it */
    truth[n] = set;
    number[w] = n;
    view[w] = set;
    phase[w] = (set == ALL -> ADDS : TOLD)
}

proctype Rank(byte w) {
end:
    do
    :: d_step { phase[w] == IDLE && LIVES(w) && has[w] < OPERATIONS -> phase[w] = ASKS }
    :: d_step { phase[w] == ASKS && LIVES(w) && IS_NEW(w) -> note(w) }
    :: d_step { phase[w] == ASKS && LIVES(w) && MAY_TELL && IS_TO_HEAR(w, latest, takes_part) -> learn(w, latest, takes_part) }
    :: d_step { phase[w] == ASKS && LIVES(w) && IS_TO_HEAR(w, former, former_part) -> learn(w, former, former_part) }
#ifdef BREAK_TELLS_FIRST
    :: d_step { phase[w] == ASKS && LIVES(w) && is_up && writes >= ENTRY_TO_ROOT && IS_TO_HEAR(w, latest + 1, next_part) ->
        learn(w, latest + 1, next_part) }
#endif
    :: d_step { phase[w] == TOLD && LIVES(w) && is_up && (jobs & BIT(view[w])) -> phase[w] = ADDS }
    :: d_step { phase[w] == ADDS && LIVES(w) && HAVE_BEGUN(view[w], number[w]) ->
        has[w] = number[w];
        FORGET(w);
        part[w] = part[w] | BIT(number[w]);
        phase[w] = IDLE }
    od
}

#define KNOWS ((asking & 1 && after[0] == latest) || (asking & 2 && after[1] == latest) \
    || (asking & 4 && after[2] == latest))
#ifdef BREAK_NOBODY_KNOWS       /* nobody who takes part need have the latest result */
#define MAY_DECIDE (COUNT(asking) >= QUORUM)
#else
#define MAY_DECIDE (COUNT(asking) >= QUORUM && KNOWS)
#endif
#ifdef BREAK_JOB_LAST           /* the set's job is made after the decision that names it */
#define FIRST_WRITE ENTRY_TO_ROOT
#else
#define FIRST_WRITE (next_part == ALL || (jobs & BIT(next_part)) -> ENTRY_TO_ROOT : JOB_TO_ROOT)
#endif

inline write(s, n, set, with) {
    there[s] = 1;
    entry[s] = n;
    entry_part[s] = set;
    entry_jobs[s] = with
}

proctype Controller() {
end:
    do
    /* All have asked, or patience has ended. */
    :: d_step { is_up && writes == QUIET && latest < OPERATIONS && MAY_DECIDE ->
        assert(KNOWS);          /* somebody can give the others what they lack */
        next_part = asking;
        writes = FIRST_WRITE }
    :: d_step { is_up && writes == JOB_TO_ROOT ->
        write(0, latest, takes_part, jobs | BIT(next_part)); writes = JOB_TO_LEAF }
    :: d_step { is_up && writes == JOB_TO_LEAF ->
        write(1, latest, takes_part, jobs | BIT(next_part));
        jobs = jobs | BIT(next_part);
        writes = ENTRY_TO_ROOT }
    :: d_step { is_up && writes == ENTRY_TO_ROOT -> write(0, latest + 1, next_part, jobs); writes = ENTRY_TO_LEAF }
    :: d_step { is_up && writes == ENTRY_TO_LEAF ->
        write(1, latest + 1, next_part, jobs);
        latest++;
        takes_part = next_part;
#ifdef BREAK_JOB_LAST
        jobs = (next_part == ALL -> jobs : jobs | BIT(next_part));
#endif
        asking = 0;
        stands = 0;
        writes = QUIET }
    :: d_step { is_up && writes == QUIET && !stands && STANDS -> stands = 1 }
    /* What could not be written is as if it had not been decided. */
    :: d_step { is_up && writes != QUIET && failures < FAILURES -> failures++; writes = QUIET }
    :: d_step { is_up && writes == QUIET && !AGREES(0) && (there[1] || !there[0]) -> write(0, latest, takes_part, jobs) }
    :: d_step { is_up && writes == QUIET && !AGREES(1) -> write(1, latest, takes_part, jobs) }
    :: d_step { is_up && writes == QUIET && deaths && (asking & 4) -> asking = asking & ~4 }
    /* A controller that comes after this one: the root counts, unless it is empty. */
    :: d_step { !is_up ->
        latest = (there[0] -> entry[0] : entry[1]);
        takes_part = (there[0] -> entry_part[0] : entry_part[1]);
        jobs = (there[0] -> entry_jobs[0] : entry_jobs[1]);
        stands = 0;
        is_up = 1 }
    od
}

proctype Misfortune() {
end:
    do
    :: d_step { is_up && crashes < CRASHES ->
        crashes++;
        former = (stands -> latest : former);
        former_part = (stands -> takes_part : former_part);
        is_up = 0; writes = QUIET; asking = 0; next_part = 0 }
    :: d_step { clears < CLEARS && there[0] && there[1] -> clears++; there[0] = 0 }
    :: d_step { clears < CLEARS && there[0] && there[1] -> clears++; there[1] = 0 }
    :: d_step { deaths < DEATHS && phase[2] != LOST -> deaths++ }
    od
}

/* Who waits for a rank that died hears WorkerLost, and so do too few, or those who lack what died with others. */
#define WAITS_FOR_DEAD(w) ((phase[w] == TOLD || phase[w] == ADDS) && deaths && (view[w] & 4) && !HAS_BEGUN(2, number[w]))
#define IS_GOING_ON(w) (LIVES(w) && !WAITS_FOR_DEAD(w))
#define GOING_ON ((IS_GOING_ON(0) -> 1 : 0) + (IS_GOING_ON(1) -> 1 : 0) + (IS_GOING_ON(2) -> 1 : 0))
#define IS_KNOWN ((IS_GOING_ON(0) && has[0] == latest) || (IS_GOING_ON(1) && has[1] == latest) \
    || (IS_GOING_ON(2) && has[2] == latest))
#define IS_THROUGH(w) (!IS_GOING_ON(w) || has[w] == OPERATIONS \
    || (phase[w] == ASKS && (latest == OPERATIONS || GOING_ON < QUORUM || !IS_KNOWN)))

init {
    byte w;
    atomic {
        d_step { write(0, 0, 0, 0); write(1, 0, 0, 0) }
        do
        :: w < RANKS -> run Rank(w); w++
        :: else -> break
        od;
        run Controller();
        run Misfortune()
    }
    /* The one end that is no dead end. */
    IS_THROUGH(0) && IS_THROUGH(1) && IS_THROUGH(2)
}
