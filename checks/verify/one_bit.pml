/* SwitchML's slot (NSDI 2021, algorithms 3 and 4): one bit tells a round from the next, not a number.
 *
 * The same network as in model.pml; with IN_ORDER it never lets a copy arrive after a later contribution of the same
 * worker, which is what this protocol needs. */

#ifndef WORKERS
#define WORKERS 2
#endif
#define ROUNDS 4
#define AT(w, r) ((w) * ROUNDS + (r))
#define EVERYBODY ((1 << WORKERS) - 1)

byte seen[2];
byte count[2];
bit twice[2];                   /* the lanes hold something that an earlier result had already */
byte rounds_in[2];              /* the lanes hold contributions to these rounds, as bits */
bit was_added[WORKERS * ROUNDS];
byte done[WORKERS];
byte latest[WORKERS];           /* round of the newest copy that has arrived */
byte right[WORKERS];            /* results on their way, as bits by round */
byte added_twice[WORKERS];
byte mixed[WORKERS];

#define VERSION(r) ((r) & 1)
#define WAITS(w) (done[w] < ROUNDS)
#ifdef IN_ORDER
#define ON_ITS_WAY(w, r) (r <= done[w] && r >= latest[w])
#else
#define ON_ITS_WAY(w, r) (r <= done[w])
#endif
#define IS_ANSWERED(w, r) (r < done[w] || ((right[w] | added_twice[w] | mixed[w]) & (1 << r)))
#define CHANGES(w, r) (!(seen[VERSION(r)] & (1 << w)) || (count[VERSION(r)] == 0 && !IS_ANSWERED(w, r)))

inline answer(v, w, r) {
    if
    :: r < done[w]
    :: r >= done[w] && twice[v] -> added_twice[w] = added_twice[w] | (1 << r)
    :: r >= done[w] && !twice[v] && rounds_in[v] != (1 << r) -> mixed[w] = mixed[w] | (1 << r)
    :: r >= done[w] && !twice[v] && rounds_in[v] == (1 << r) -> right[w] = right[w] | (1 << r)
    fi
}

inline contribute(w, r) {
    latest[w] = r;
    if
    :: !(seen[VERSION(r)] & (1 << w)) ->
        seen[VERSION(r)] = seen[VERSION(r)] | (1 << w);
        seen[1 - VERSION(r)] = seen[1 - VERSION(r)] & ~(1 << w);
        count[VERSION(r)] = (count[VERSION(r)] + 1) % WORKERS;
        if
        :: count[VERSION(r)] == 1 -> twice[VERSION(r)] = 0; rounds_in[VERSION(r)] = 0
        :: else
        fi;
        twice[VERSION(r)] = twice[VERSION(r)] || was_added[AT(w, r)];
        rounds_in[VERSION(r)] = rounds_in[VERSION(r)] | (1 << r);
        was_added[AT(w, r)] = 1;
        if
        :: count[VERSION(r)] == 0 ->
            answer(VERSION(r), 0, r);
            answer(VERSION(r), 1, r)
        :: else
        fi
    :: else ->
        answer(VERSION(r), w, r)
    fi
}

inline receive(w) {
    assert(!(added_twice[w] & (1 << done[w])));      /* DOUBLE_ADDITION */
    assert(!(mixed[w] & (1 << done[w])));       /* FOREIGN_LANES */
    done[w]++
}

#define HAS_RESULT(w) (WAITS(w) && ((right[w] | added_twice[w] | mixed[w]) & (1 << done[w])))
#define ARRIVE(w, r) :: WAITS(w) && ON_ITS_WAY(w, r) && CHANGES(w, r) -> d_step { contribute(w, r) }
#define WORKER_STEPS(w) ARRIVE(w, 0) ARRIVE(w, 1) ARRIVE(w, 2) ARRIVE(w, 3) \
    :: HAS_RESULT(w) -> d_step { receive(w) }

init {
    do
    WORKER_STEPS(0)
    WORKER_STEPS(1)
    :: !WAITS(0) && !WAITS(1) -> break
    od
}
