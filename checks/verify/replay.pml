/* Whether the model does what a switch and a controller have done, step by step; replay.py writes them into steps.h.
 *
 * Each step is looked at by itself: the cells are made what they were before it, the model takes the contribution, and
 * what it did and what its cells are then must be what the switch did and what its cells were.  So is what the
 * controller did, which must be possible in the model. */

#define WORKERS workers         /* differs from step to step */
#define HAND_OVER

c_decl {
\#include "steps.h"
};

byte workers = 2;
#include "data.pml"
#include "slot.pml"
#include "worker.pml"
#include "controller.pml"

/* What became of a contribution, with relation.py's numbers. */
#define REFUSED 0
#define DROPPED 1
#define JOINED 2
#define HELD 3
#define REPEATED 4
#define COMPLETED 5
#define POSSIBLE 7

/* What the controller did, with hand_over.py's numbers. */
#define CLOSE 1
#define STAY 2
#define QUERY 3
#define HAND_OVER_TO 4

/* Places in a row of STEPS, in which each cell has eleven: data, gate, base, incarnation (or what the controller did),
 * rank, round (or NONE), decision, results (or the number handed over), cells before, cells after, left, lost. */
#define WAS(c) (8 + 11 * (c))
#define BECAME(c) (30 + 11 * (c))
#define VALUE(at) STEPS[now.step][at]

int step;
byte incarnation;
byte rank;
byte place;
byte decision;
byte results;                   /* who gets one, as bits */
bit differs;

#define LOAD(c) \
    now.number_of[c] = VALUE(WAS(c)); now.seen[c] = VALUE(WAS(c) + 1); now.tag[c] = VALUE(WAS(c) + 2); \
    now.next_block[c] = VALUE(WAS(c) + 3); now.next_exponent[c] = VALUE(WAS(c) + 4); \
    now.has_payload[c] = VALUE(WAS(c) + 5); now.mismatch[c] = VALUE(WAS(c) + 6); \
    now.added[c * 3] = VALUE(WAS(c) + 7); now.added[c * 3 + 1] = VALUE(WAS(c) + 8); \
    now.added[c * 3 + 2] = VALUE(WAS(c) + 9); now.lanes_of[c] = VALUE(WAS(c) + 10);
/* Nothing but `seen` means anything in a cell that is not used. */
#define IS_RIGHT(c) (now.seen[c] == VALUE(BECAME(c) + 1) && (!now.seen[c] || ( \
    now.number_of[c] == VALUE(BECAME(c)) && now.tag[c] == VALUE(BECAME(c) + 2) \
    && now.next_block[c] == VALUE(BECAME(c) + 3) && now.next_exponent[c] == VALUE(BECAME(c) + 4) \
    && now.has_payload[c] == VALUE(BECAME(c) + 5) && now.mismatch[c] == VALUE(BECAME(c) + 6) \
    && now.added[c * 3] == VALUE(BECAME(c) + 7) && now.added[c * 3 + 1] == VALUE(BECAME(c) + 8) \
    && now.added[c * 3 + 2] == VALUE(BECAME(c) + 9) && now.lanes_of[c] == VALUE(BECAME(c) + 10))))

inline load() {
    c_code {
        int each;
        const unsigned char *data = DATA[VALUE(0)];
        now.workers = data[0]; now.odd_worker = data[1]; now.odd_operation = data[2];
        for (each = 0; each < 6; each++) now.blocks[each] = data[3 + each];
        now.gate = VALUE(1); now.base[1] = VALUE(2); now.base[0] = FIRST;
        now.incarnation = VALUE(3); now.rank = VALUE(4); now.place = VALUE(5);
        for (each = 0; each < 6; each++) now.right[each] = now.wrong[each] = 0;
        now.total[0] = now.total[1] = 0;
        now.left[0] = VALUE(52) & 1; now.left[1] = (VALUE(52) >> 1) & 1; now.left[2] = (VALUE(52) >> 2) & 1;
        now.lost = VALUE(53); now.queried = NUMBERS;
        LOAD(0)
        LOAD(1)
    }
}

#define TOOK(w) (((right[AT(incarnation, w)] | wrong[AT(incarnation, w)]) >> place) & 1)
#define ARRIVES CHANGES(incarnation, rank, place, NUMBER(incarnation, place))

inline take() {
    if
    :: place == NONE ->
        if
        :: incarnation == CLOSE && CAN_CLOSE ->
            close();
            decision = (gate == CLOSED -> POSSIBLE : 0)
        :: incarnation == STAY && (lost || !CAN_CLOSE) && !CAN_HAND_OVER -> decision = POSSIBLE
        :: incarnation == QUERY && CAN_HAND_OVER -> decision = POSSIBLE
        :: incarnation == HAND_OVER_TO && CAN_HAND_OVER ->
            hand_over();
            decision = (gate == HANDED_OVER -> POSSIBLE : 0);
            results = base[1]
        :: else
        fi
    :: place != NONE && !ADMITTED(incarnation) -> decision = REFUSED
    :: place != NONE && ADMITTED(incarnation) ->
        if
        :: IS_STALE(NUMBER(incarnation, place)) -> decision = DROPPED; assert(!ARRIVES)
        :: else ->
            if
            :: (STARTS_AFRESH(incarnation, NUMBER(incarnation, place))
                || !IS_REPEAT(incarnation, rank, NUMBER(incarnation, place))) -> decision = JOINED
            :: else ->
                if
                :: IS_COMPLETE(incarnation, NUMBER(incarnation, place)) -> decision = REPEATED
                :: else -> decision = HELD; assert(!ARRIVES)
                fi
            fi;
            if
            :: decision != HELD ->
                assert(ARRIVES);
                contribute(incarnation, rank, place, NUMBER(incarnation, place), PAYS(incarnation, rank, place))
            :: else
            fi
        fi;
        results = TOOK(0) | (TOOK(1) << 1) | (TOOK(2) << 2);
        if
        :: decision == JOINED && results -> decision = COMPLETED
        :: else
        fi
    fi
}

init {
    byte i, at, o, b;
    do
    :: c_expr { now.step < STEP_COUNT } ->
        d_step { load(); decision = 0; results = 0 }
        lay_out();
        d_step {
            take();
            c_code {
                now.differs = !(now.decision == VALUE(6) && now.results == VALUE(7) && IS_RIGHT(0) && IS_RIGHT(1));
                if (now.differs) printf("differs in step %d: decision %d, results %d\n", now.step, now.decision, now.results);
            }
        }
        assert(!differs);
        step++
    :: c_expr { now.step >= STEP_COUNT } -> break
    od
}
