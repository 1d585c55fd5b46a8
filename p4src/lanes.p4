// Wide lanes: the payload of one cell, 64 lanes of 32 bits (or 128 of 16, 256 of 8, 32 of 64) combined at a time.

#ifndef LANES_P4
#define LANES_P4

#include "headers.p4"

// One double word 32 times over.
#define TIMES_4(word) word ++ word ++ word ++ word
#define TIMES_16(word) TIMES_4(word) ++ TIMES_4(word) ++ TIMES_4(word) ++ TIMES_4(word)
#define TIMES_32(word) (TIMES_16(word) ++ TIMES_16(word))

// A mask of a chunk, which the packet's lane format chooses.
#define MASK(mask, int32, int16, int8, int64) \
        if (h.agg.format == FORMAT_INT32) { \
            mask = TIMES_32(int32); \
        } else if (h.agg.format == FORMAT_INT16) { \
            mask = TIMES_32(int16); \
        } else if (h.agg.format == FORMAT_INT8) { \
            mask = TIMES_32(int8); \
        } else { \
            mask = TIMES_32(int64); \
        }
// The top bit of every lane, and all bits but those.
#define TOP_MASK MASK(top, 64w0x8000000080000000, 64w0x8000800080008000, 64w0x8080808080808080, 64w0x8000000000000000)
#define LOW_MASK MASK(low, 64w0x7FFFFFFF7FFFFFFF, 64w0x7FFF7FFF7FFF7FFF, 64w0x7F7F7F7F7F7F7F7F, 64w0x7FFFFFFFFFFFFFFF)

// How far the top bit of a lane is from its lowest.
#define TOP_BIT \
        (h.agg.format == FORMAT_INT32 ? 8w31 : (h.agg.format == FORMAT_INT16 ? 8w15 \
            : (h.agg.format == FORMAT_INT8 ? 8w7 : 8w63)))

// What a packet's lanes and those of its cell do to each other: with `give` the packet's join the cell's, or become them
// if the cell is `empty`; the packet that makes the round `complete` gets the cell's. An overflow is noted in `flags`.
//
// BMv2 takes longer to write a chunk into a variable than for twenty operations on chunks, and to reset a variable for
// every packet and copy it for every replica is not free either. So what can be computed again is not kept.
control Lanes(inout headers_t h, in bit<32> cell, inout flags_t flags, in bool give, in bool empty, in bool complete) {
    // A cell's chunks lie side by side, in the order of the payload.
    register<chunk_t>(CELLS * CHUNKS) sums;

    chunk_t old;
    chunk_t low;
    chunk_t top;

#define STORE_CHUNK(i) sums.write(cell * CHUNKS + i, h.lanes.c##i);
    action store() {
        EACH_CHUNK(STORE_CHUNK)
    }

#define FETCH_CHUNK(i) sums.read(h.lanes.c##i, cell * CHUNKS + i);
    action fetch() {
        h.lanes.setValid();
        EACH_CHUNK(FETCH_CHUNK)
    }

#define DIFFERENT(i) (old ^ h.lanes.c##i)

    // Without the top bit of each lane no carry leaves a lane; the top bits are added by exclusive or. A lane
    // overflowed where the top bits are alike and the carry into them is not. (BMv2 computes slowly with ~x.)
#define LOW_SUM(i) ((old & low) + (h.lanes.c##i & low))
#define ADD_CHUNK(i) \
        sums.read(old, cell * CHUNKS + i); \
        flags = flags | ((low | DIFFERENT(i) | (old ^ LOW_SUM(i))) != (low | DIFFERENT(i)) ? FLAG_OVERFLOW : 0); \
        sums.write(cell * CHUNKS + i, LOW_SUM(i) ^ DIFFERENT(i) ^ (DIFFERENT(i) & low));
    action add() {
        LOW_MASK
        EACH_CHUNK(ADD_CHUNK)
    }

    // The largest or the smallest, as signed numbers. Without its top bit, a lane of `old` is the greater one where
    // adding the other's complement reaches the top bit; where the top bits differ, the one without it is. Its top bit
    // says so in GREATER; brought down and added to `low` it leaves the lanes that are not greater, whole.
#define REACHES(i) ((old & low) + ((h.lanes.c##i & low) ^ low))
#define GREATER(i) ((REACHES(i) ^ ((REACHES(i) ^ h.lanes.c##i) & DIFFERENT(i))) & top)
#define CHOOSE_CHUNK(i) \
        sums.read(old, cell * CHUNKS + i); \
        sums.write(cell * CHUNKS + i, (h.agg.operator == OPERATOR_MIN ? h.lanes.c##i : old) \
            ^ (DIFFERENT(i) & ((((GREATER(i) >> TOP_BIT) & low) + low) ^ top)));
    action choose() {
        LOW_MASK
        TOP_MASK
        EACH_CHUNK(CHOOSE_CHUNK)
    }

#define UNITE_CHUNK(i) \
        sums.read(old, cell * CHUNKS + i); \
        sums.write(cell * CHUNKS + i, old | h.lanes.c##i);
    action unite() {
        EACH_CHUNK(UNITE_CHUNK)
    }

    apply {
        if (give) {
            if (empty) {
                store();
            } else if (h.agg.operator == OPERATOR_SUM) {
                add();
            } else if (h.agg.operator == OPERATOR_OR) {
                unite();
            } else {
                choose();
            }
        }
        if (complete) {
            if (!(empty && flags & FLAG_PAYLOAD == 0)) {
                fetch();
            }
        }
    }
}

#endif
