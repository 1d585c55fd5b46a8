/* The switch: p4src/slot.p4, rule by rule, for the two versions of one slot.
 *
 * A second switch (leaf and root) is a second pair of cells: cells are named by an index everywhere. */

#define CELLS 2
#define CELL(number) ((number) & 1)

byte number_of[CELLS];
byte seen[CELLS];               /* who has contributed; 0: the cell was never used */
byte tag[CELLS];
byte next_block[CELLS];
byte next_exponent[CELLS];
bit has_payload[CELLS];
bit mismatch[CELLS];
byte added[CELLS * MOST];       /* the lanes: how often each worker's block was added, up to 2 */
byte lanes_of[CELLS];           /* and to which round of which incarnation they belong, as OF + 1; 0: to several */
hidden byte named, named_exponent;
byte clears;
bit reliable;                   /* from now on nothing is lost, and nothing old arrives */

/* Results on their way, as bits by round: right ones, wrong ones and the last wrong one's fault. */
short right[INCARNATIONS * MOST];
short wrong[INCARNATIONS * MOST];
byte fault[INCARNATIONS * MOST];
#define DOUBLE_ADDITION 1
#define MISSING 2
#define FOREIGN_LANES 3
#define WRONG_NEXT 4
#define WRONG_FLAGS 5

#define BIT(w) (1 << (w))
#define AGE(n) (((n) + NUMBERS - number_of[CELL(n)]) % NUMBERS)
#define IS_OLD(n) (AGE(n) >= NUMBERS / 2)

/* Rows of protocol/slot_rules.py as questions.  BREAK_ macros are rules that a switch might get wrong. */
#ifdef BREAK_ROW_3
#define IS_STALE(n) 0
#else
#define IS_STALE(n) (seen[CELL(n)] != 0 && IS_OLD(n))
#endif
#ifdef BREAK_ROWS_4_5
#define STARTS_AFRESH(i, n) (seen[CELL(n)] == 0)
#else
#define STARTS_AFRESH(i, n) (seen[CELL(n)] == 0 || AGE(n) != 0)
#endif
#ifdef BREAK_ROWS_10_11
#define IS_REPEAT(i, w, n) (seen[CELL(n)] == EVERYBODY(i))
#else
#define IS_REPEAT(i, w, n) (seen[CELL(n)] & BIT(w))
#endif
#define IS_COMPLETE(i, n) (seen[CELL(n)] == EVERYBODY(i))

/* Whether the arrival of a contribution makes any difference: it is not dropped, and not answered in vain. */
#define CHANGES(i, w, r, n) (!IS_STALE(n) && (STARTS_AFRESH(i, n) || !IS_REPEAT(i, w, n) || \
    (IS_COMPLETE(i, n) && r >= done[AT(i, w)] && !((right[AT(i, w)] | wrong[AT(i, w)]) & (1 << r)))))

inline forget_lanes(c) {
    added[c * MOST] = 0; added[c * MOST + 1] = 0; added[c * MOST + 2] = 0;
    lanes_of[c] = 0
}

inline open(c, n) {
    number_of[c] = n;
    seen[c] = 0;
    next_block[c] = NONE;
    next_exponent[c] = 0;
    has_payload[c] = 0;
    mismatch[c] = 0;
    tag[c] = 0;
    forget_lanes(c)             /* they stay, and nobody can see them: the first lanes overwrite them */
}

/* Rule 4: the first lanes overwrite, later ones are added. */
inline combine(c, i, w, r) {
    if
    :: !has_payload[c] ->
        forget_lanes(c);
        lanes_of[c] = OF(i, r) + 1;
        added[c * MOST + w] = 1;
        has_payload[c] = 1
    :: else ->
        if
        :: lanes_of[c] != OF(i, r) + 1 -> lanes_of[c] = 0
        :: else
        fi;
        if
        :: added[c * MOST + w] < 2 -> added[c * MOST + w] = added[c * MOST + w] + 1
        :: else
        fi
    fi
}

inline merge_next(c, i, w, r) {
    named = OWN_NEXT(i, w, r);
    named_exponent = OWN_EXPONENT(i, w, named);
    if
    :: named < next_block[c] -> next_block[c] = named; next_exponent[c] = named_exponent
    :: named == next_block[c] && named_exponent > next_exponent[c] -> next_exponent[c] = named_exponent
    :: else
    fi
}

/* What is the matter with a result: compare the cell with the truth about the round. */
#define ADDED_OFTEN(c) (added[c * MOST] > 1 || added[c * MOST + 1] > 1 || added[c * MOST + 2] > 1)
#define IS_ADDED(c, i, w, r) (added[c * MOST + (w)] == ((w) < MEMBERS(i) && PAYS(i, w, r)))
#define ALL_ADDED(c, i, r) (IS_ADDED(c, i, 0, r) && IS_ADDED(c, i, 1, r) && IS_ADDED(c, i, 2, r))
#define WRONGNESS(c, i, r) ( \
    mismatch[c] != IS_MIXED(i, r) -> WRONG_FLAGS : (mismatch[c] -> 0 : ( \
    has_payload[c] && lanes_of[c] != OF(i, r) + 1 -> FOREIGN_LANES : ( \
    ADDED_OFTEN(c) -> DOUBLE_ADDITION : ( \
    !ALL_ADDED(c, i, r) || has_payload[c] != (block_of[OF(i, r)] != NONE) -> MISSING : ( \
    next_block[c] != TRUE_NEXT(i, r) || next_exponent[c] != TRUE_EXPONENT(i, TRUE_NEXT(i, r)) \
        || tag[c] != TRUE_TAG(i, r) -> WRONG_NEXT : 0))))))

inline answer(c, i, w, r) {
    if
    :: r >= done[AT(i, w)] ->   /* the worker would drop any other */
        if
        :: WRONGNESS(c, i, r) == 0 -> right[AT(i, w)] = right[AT(i, w)] | (1 << r)
        :: else -> wrong[AT(i, w)] = wrong[AT(i, w)] | (1 << r); fault[AT(i, w)] = WRONGNESS(c, i, r)
        fi
    :: else
    fi
}

/* A contribution of an admitted member arrives; its number is not stale. */
inline contribute(i, w, r, n, pays) {
    if
    :: STARTS_AFRESH(i, n) -> open(CELL(n), n); tag[CELL(n)] = OWN_TAG(i, w, r)
    :: else
    fi;
    if
    :: IS_REPEAT(i, w, n) -> answer(CELL(n), i, w, r)
    :: else ->
        seen[CELL(n)] = seen[CELL(n)] | BIT(w);
        if
        :: tag[CELL(n)] != OWN_TAG(i, w, r) -> mismatch[CELL(n)] = 1
        :: else ->
            merge_next(CELL(n), i, w, r);
            if
            :: pays -> combine(CELL(n), i, w, r)
            :: else
            fi
        fi;
        /* Rule 5 */
        if
        :: IS_COMPLETE(i, n) ->
            answer(CELL(n), i, 0, r);
            answer(CELL(n), i, 1, r);
            if
            :: MEMBERS(i) > 2 -> answer(CELL(n), i, 2, r)
            :: else
            fi
        :: else
        fi
    fi
}

/* The switch is killed and comes back: entries as they were, registers empty. */
inline clear() {
    open(0, 0);
    open(1, 0);
    clears++;
    is_told[0] = 0; is_told[1] = 0; is_told[2] = 0;
#if INCARNATIONS > 1
    is_told[3] = 0; is_told[4] = 0; is_told[5] = 0
#endif
}

inline lose_results() {
    right[0] = 0; right[1] = 0; right[2] = 0; wrong[0] = 0; wrong[1] = 0; wrong[2] = 0;
    fault[0] = 0; fault[1] = 0; fault[2] = 0;
#if INCARNATIONS > 1
    right[3] = 0; right[4] = 0; right[5] = 0; wrong[3] = 0; wrong[4] = 0; wrong[5] = 0;
    fault[3] = 0; fault[4] = 0; fault[5] = 0
#endif
}
