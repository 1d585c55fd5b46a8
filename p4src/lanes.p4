// Wide lanes: the payload of one cell, 64 lanes of 32 bits (or 128 of 16, or 256 of 8) combined at a time.

#ifndef LANES_P4
#define LANES_P4

#include "headers.p4"

// One word 64 times over: the top bit of every lane of a chunk, and all bits but those.
#define TIMES_4(word) word ++ word ++ word ++ word
#define TIMES_16(word) TIMES_4(word) ++ TIMES_4(word) ++ TIMES_4(word) ++ TIMES_4(word)
#define TIMES_64(word) (TIMES_16(word) ++ TIMES_16(word) ++ TIMES_16(word) ++ TIMES_16(word))

enum bit<2> LaneStep {
    NONE = 0,
    STORE = 1,      // the cell's lanes become the packet's
    COMBINE = 2     // the packet's lanes are added to the cell's
}

// `step` says what the packet's lanes do to those of `cell`; with `fetch_sums` the packet then gets the cell's lanes.
// Sets `overflow` when a lane overflowed.
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
        chunk_t top;
        chunk_t low;
        if (h.agg.format == FORMAT_INT32) {
            top = TIMES_64(32w0x80000000);
            low = TIMES_64(32w0x7FFFFFFF);
        } else if (h.agg.format == FORMAT_INT16) {
            top = TIMES_64(32w0x80008000);
            low = TIMES_64(32w0x7FFF7FFF);
        } else {
            top = TIMES_64(32w0x80808080);
            low = TIMES_64(32w0x7F7F7F7F);
        }
        chunk_t old;
        chunk_t sum;
        chunk_t signs = 0;
        EACH_CHUNK(ADD_CHUNK)
        overflow = signs & top != 0;
    }

    apply {
        overflow = false;
        if (step == LaneStep.STORE) {
            store();
        } else if (step == LaneStep.COMBINE) {
            add();
        }
        if (fetch_sums) {
            fetch();
        }
    }
}

#endif
