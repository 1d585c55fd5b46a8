// Wide lanes: the payload of one cell, 64 lanes of 32 bits (or 128 of 16, 256 of 8, 32 of 64) combined at a time.

#ifndef LANES_P4
#define LANES_P4

#include "headers.p4"

// One double word 32 times over.
#define TIMES_4(word) word ++ word ++ word ++ word
#define TIMES_16(word) TIMES_4(word) ++ TIMES_4(word) ++ TIMES_4(word) ++ TIMES_4(word)
#define TIMES_32(word) (TIMES_16(word) ++ TIMES_16(word))

// The top bit of every lane of a chunk, all bits but those, and how far the top bit is from the lowest.
#define DIVIDE_INTO_LANES \
        chunk_t top; \
        chunk_t low; \
        bit<8> down; \
        if (h.agg.format == FORMAT_INT32) { \
            top = TIMES_32(64w0x8000000080000000); \
            low = TIMES_32(64w0x7FFFFFFF7FFFFFFF); \
            down = 31; \
        } else if (h.agg.format == FORMAT_INT16) { \
            top = TIMES_32(64w0x8000800080008000); \
            low = TIMES_32(64w0x7FFF7FFF7FFF7FFF); \
            down = 15; \
        } else if (h.agg.format == FORMAT_INT8) { \
            top = TIMES_32(64w0x8080808080808080); \
            low = TIMES_32(64w0x7F7F7F7F7F7F7F7F); \
            down = 7; \
        } else { \
            top = TIMES_32(64w0x8000000000000000); \
            low = TIMES_32(64w0x7FFFFFFFFFFFFFFF); \
            down = 63; \
        }

enum bit<2> LaneStep {
    NONE = 0,
    STORE = 1,      // the cell's lanes become the packet's
    COMBINE = 2     // the packet's operator joins its lanes with the cell's
}

// `step` says what the packet's lanes do to those of `cell`; with `fetch_sums` the packet then gets the cell's lanes.
// Sets `overflow` when the sum in a lane overflowed.
control Lanes(inout headers_t h, in bit<32> cell, in LaneStep step, in bool fetch_sums, out bool overflow) {
    // A cell's chunks lie side by side, in the order of the payload.
    register<chunk_t>(CELLS * CHUNKS) sums;

#define STORE_CHUNK(i) sums.write(cell * CHUNKS + i, h.lanes.c##i);
    action store() {
        EACH_CHUNK(STORE_CHUNK)
    }

#define FETCH_CHUNK(i) sums.read(h.lanes.c##i, cell * CHUNKS + i);
    action fetch() {
        h.lanes.setValid();
        EACH_CHUNK(FETCH_CHUNK)
    }

    // Without the top bit of each lane no carry leaves a lane; the top bits are added by exclusive or. A lane
    // overflowed where the sum's sign is that of neither summand.
#define ADD_CHUNK(i) \
        sums.read(old, cell * CHUNKS + i); \
        sum = ((old & low) + (h.lanes.c##i & low)) ^ ((old ^ h.lanes.c##i) & top); \
        signs = signs | ((old ^ sum) & (h.lanes.c##i ^ sum)); \
        sums.write(cell * CHUNKS + i, sum);
    action add() {
        DIVIDE_INTO_LANES
        chunk_t old;
        chunk_t sum;
        chunk_t signs = 0;
        EACH_CHUNK(ADD_CHUNK)
        overflow = signs & top != 0;
    }

    // The largest or the smallest, as signed numbers. Without its top bit, a lane of `old` is the greater one where
    // adding the other's complement reaches the top bit; where the top bits differ, the one without it is. `keep` has
    // the top bit of each lane that stays; brought down and added to `low` it leaves the lanes that do not, whole.
#define CHOOSE_CHUNK(i) \
        sums.read(old, cell * CHUNKS + i); \
        differ = old ^ h.lanes.c##i; \
        greater = (old & low) + ((h.lanes.c##i & low) ^ low); \
        keep = ((greater ^ ((greater ^ h.lanes.c##i) & differ)) & top) ^ least; \
        keep = keep >> down; \
        sums.write(cell * CHUNKS + i, old ^ (differ & (((keep & low) + low) ^ top)));
    action choose() {
        DIVIDE_INTO_LANES
        chunk_t least = h.agg.operator == OPERATOR_MIN ? top : 0;
        chunk_t old;
        chunk_t differ;
        chunk_t greater;
        chunk_t keep;
        EACH_CHUNK(CHOOSE_CHUNK)
    }

#define UNITE_CHUNK(i) \
        sums.read(old, cell * CHUNKS + i); \
        sums.write(cell * CHUNKS + i, old | h.lanes.c##i);
    action unite() {
        chunk_t old;
        EACH_CHUNK(UNITE_CHUNK)
    }

    apply {
        overflow = false;
        if (step == LaneStep.STORE) {
            store();
        } else if (step == LaneStep.COMBINE) {
            if (h.agg.operator == OPERATOR_SUM) {
                add();
            } else if (h.agg.operator == OPERATOR_OR) {
                unite();
            } else {
                choose();
            }
        }
        if (fetch_sums) {
            fetch();
        }
    }
}

#endif
