/* What the workers want added, and what each round must therefore come to. */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef WORKERS_AFTER           /* members of the incarnation that inherits the slot */
#define WORKERS_AFTER WORKERS
#endif
#ifndef OPERATIONS
#define OPERATIONS 2
#endif
#ifndef BLOCKS                  /* of one column, 1 to 3 */
#define BLOCKS 2
#endif
#ifndef CLEARS                  /* how often the switch is killed and comes back with empty registers */
#define CLEARS 0
#endif
#ifndef FIRST
#define FIRST 30                /* numbers wrap at 32 on the way */
#endif
#ifdef HAND_OVER
#define INCARNATIONS 2
#else
#define INCARNATIONS 1
#endif

#define ROUNDS (OPERATIONS * (1 + BLOCKS))
#define MEMBERS(i) ((i) == 0 -> WORKERS : WORKERS_AFTER)
#define EVERYBODY(i) ((1 << MEMBERS(i)) - 1)
#define MOST 3                  /* workers for which arrays have room */

#define NONE 7                  /* no block */
#define NUMBERS 32
#define NUMBER(i, r) ((base[i] + (r)) % NUMBERS)
#define AT(i, w) ((i) * MOST + (w))
#define OF(i, r) ((i) * ROUNDS + (r))

/* Bit b of blocks[AT(i, w)]: block b of the column is not zero at worker w; the same in each operation. */
byte blocks[INCARNATIONS * MOST];
byte base[INCARNATIONS];        /* number of the first round */
byte total[INCARNATIONS];       /* rounds in all */
byte block_of[INCARNATIONS * ROUNDS];
byte operation_of[INCARNATIONS * ROUNDS];
byte odd_worker = MOST;         /* issues another operation than the others ... */
byte odd_operation;             /* ... in this place */

#define EXPONENT(w, b) (1 + (((w) + (b)) & 1))
#define HAS(i, w, b) ((blocks[AT(i, w)] >> (b)) & 1)
#define FIRST_FROM(set, b) (((set) >> (b)) & 1 -> (b) : (((set) >> ((b) + 1)) & 1 -> (b) + 1 : \
    (((set) >> ((b) + 2)) & 1 -> (b) + 2 : NONE)))
#define AFTER(b) ((b) == NONE -> 0 : (b) + 1)
#define LARGER(a, b) ((a) > (b) -> (a) : (b))
#define ALL_BLOCKS(i) (blocks[AT(i, 0)] | blocks[AT(i, 1)] | blocks[AT(i, 2)])

#define PAYS(i, w, r) (block_of[OF(i, r)] != NONE && HAS(i, w, block_of[OF(i, r)]))
#define OWN_NEXT(i, w, r) FIRST_FROM(blocks[AT(i, w)], AFTER(block_of[OF(i, r)]))
#define TRUE_NEXT(i, r) FIRST_FROM(ALL_BLOCKS(i), AFTER(block_of[OF(i, r)]))
#define OWN_EXPONENT(i, w, b) (HAS(i, w, b) -> EXPONENT(w, b) : 0)
#define TRUE_EXPONENT(i, b) ((b) == NONE -> 0 : \
    LARGER(OWN_EXPONENT(i, 0, b), LARGER(OWN_EXPONENT(i, 1, b), OWN_EXPONENT(i, 2, b))))
#define IS_MIXED(i, r) ((i) == 0 && odd_worker != MOST && operation_of[OF(i, r)] == odd_operation)
/* What all contributions to a round must agree in: operation, exponent, block. */
#define TRUE_TAG(i, r) (operation_of[OF(i, r)] * 32 + TRUE_EXPONENT(i, block_of[OF(i, r)]) * 8 + block_of[OF(i, r)])
#define OWN_TAG(i, w, r) (TRUE_TAG(i, r) + (IS_MIXED(i, r) && (w) == odd_worker -> 128 : 0))

/* Choose any blocks at any worker, and perhaps one who does something else; then lay out the rounds. */
inline choose_data() {
    byte at, o, b;
    at = 0;
    do
    :: at < INCARNATIONS * MOST && (at % MOST) < MEMBERS(at / MOST) ->
        b = 0;
        do
        :: b < BLOCKS -> blocks[at] = blocks[at] | (1 << b); b++
        :: b < BLOCKS -> b++
        :: b == BLOCKS -> break
        od;
        at++
    :: at < INCARNATIONS * MOST && (at % MOST) >= MEMBERS(at / MOST) -> at++
    :: at == INCARNATIONS * MOST -> break
    od;
#ifdef MIXED
    if
    :: skip
    :: odd_worker = 0
    :: odd_worker = WORKERS - 1
    fi;
    do
    :: odd_operation < OPERATIONS - 1 -> odd_operation++
    :: break
    od;
#endif
    skip;
    lay_out()
}

/* Which operation and block each round is of. */
inline lay_out() {
    d_step {
        i = 0;
        do
        :: i < INCARNATIONS ->
            o = 0;
            do
            :: o < OPERATIONS ->
                b = NONE;
                do
                :: true ->
                    block_of[OF(i, total[i])] = b;
                    operation_of[OF(i, total[i])] = o;
                    total[i] = total[i] + 1;
                    b = FIRST_FROM(ALL_BLOCKS(i), AFTER(b));
                    if
                    :: b == NONE -> break
                    :: else
                    fi
                od;
                o++
            :: else -> break
            od;
            i++
        :: else -> break
        od;
        at = 0; i = 0; o = 0; b = 0
    }
}
