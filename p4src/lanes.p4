// SPDX-License-Identifier: Apache-2.0
//
// Wide lanes: the payload of one cell, 64 lanes of 32 bits (or 128 of 16, 256 of 8, 32 of 64) combined at a time.

#ifndef LANES_P4
#define LANES_P4

#include "headers.p4"

// One double word 32 times over.
#define LANES_TIMES_4(word) word ++ word ++ word ++ word
#define LANES_TIMES_16(word) LANES_TIMES_4(word) ++ LANES_TIMES_4(word) ++ LANES_TIMES_4(word) ++ LANES_TIMES_4(word)
#define LANES_TIMES_32(word) (LANES_TIMES_16(word) ++ LANES_TIMES_16(word))

// A mask of a chunk, which the packet's lane format chooses.
#define LANES_MASK(mask, int32, int16, int8, int64) \
        if (WIRE_HAS_LANES_OF_32(hdr.agg.format)) { \
            mask = LANES_TIMES_32(int32); \
        } else if (WIRE_HAS_LANES_OF_16(hdr.agg.format)) { \
            mask = LANES_TIMES_32(int16); \
        } else if (WIRE_HAS_LANES_OF_8(hdr.agg.format)) { \
            mask = LANES_TIMES_32(int8); \
        } else { \
            mask = LANES_TIMES_32(int64); \
        }
// The top bit of every lane, and all bits but those.
#define LANES_TOP_MASK LANES_MASK(top, 64w0x8000000080000000, 64w0x8000800080008000, 64w0x8080808080808080, \
        64w0x8000000000000000)
#define LANES_LOW_MASK LANES_MASK(low, 64w0x7FFFFFFF7FFFFFFF, 64w0x7FFF7FFF7FFF7FFF, 64w0x7F7F7F7F7F7F7F7F, \
        64w0x7FFFFFFFFFFFFFFF)

// How far the top bit of a lane is from its lowest.
#define LANES_TOP_BIT \
        (WIRE_HAS_LANES_OF_32(hdr.agg.format) ? 8w31 \
            : (WIRE_HAS_LANES_OF_16(hdr.agg.format) ? 8w15 : (WIRE_HAS_LANES_OF_8(hdr.agg.format) ? 8w7 : 8w63)))

// Combines the lanes of a frame with those of a cell, and gives the frame the cell's.
//
// gives       the frame's lanes join the cell's
// is_empty    the cell has no lanes of this round yet: the frame's become the cell's
// completes   the frame is the round's last contribution, or a repeat of one: it gets the cell's lanes, if there are any
// flags       what the frame does to the cell's flags; an overflow is noted there
//
// BMv2 takes longer to write a chunk into a variable than for twenty operations on chunks, and to reset a variable for
// every packet and copy it for every replica is not free either. So what can be computed again is not kept.
control Lanes(inout headers_t hdr, in bit<32> cell, inout flags_t flags, in bool gives, in bool is_empty,
        in bool completes) {
    // A cell's chunks lie side by side, in the order of the payload.
    register<chunk_t>(CELLS * CHUNKS) sums;

    chunk_t old;
    chunk_t low;
    chunk_t top;

    // Two chunks of lanes of 16 bits from one of 8: each byte without its sign, then with it.
    const chunk_t BYTES = LANES_TIMES_32(64w0x00FF00FF00FF00FF);
    const chunk_t BYTE_SIGNS = LANES_TIMES_32(64w0x7F807F807F807F80);
#define LANES_WIDEN_8(i, j) \
        hdr.lanes.c##i = ((hdr.narrow.c##i >> 8 & BYTES) + BYTE_SIGNS) ^ BYTE_SIGNS; \
        hdr.lanes.c##j = ((hdr.narrow.c##i & BYTES) + BYTE_SIGNS) ^ BYTE_SIGNS;
    action widen_from_8() {
        hdr.lanes.setValid();
        CHUNKS_PAIRS(LANES_WIDEN_8)
    }

    // Likewise lanes of 8 bits from halves of bytes.
    const chunk_t NIBBLES = LANES_TIMES_32(64w0x0F0F0F0F0F0F0F0F);
    const chunk_t NIBBLE_SIGNS = LANES_TIMES_32(64w0x7878787878787878);
#define LANES_WIDEN_4(i, j) \
        hdr.lanes.c##i = ((hdr.narrow.c##i >> 4 & NIBBLES) + NIBBLE_SIGNS) ^ NIBBLE_SIGNS; \
        hdr.lanes.c##j = ((hdr.narrow.c##i & NIBBLES) + NIBBLE_SIGNS) ^ NIBBLE_SIGNS;
    action widen_from_4() {
        hdr.lanes.setValid();
        CHUNKS_PAIRS(LANES_WIDEN_4)
    }

#define LANES_STORE(i) sums.write(cell * CHUNKS + i, hdr.lanes.c##i);
    action store() {
        CHUNKS_EACH(LANES_STORE)
    }

#define LANES_FETCH(i) sums.read(hdr.lanes.c##i, cell * CHUNKS + i);
    action fetch() {
        hdr.lanes.setValid();
        CHUNKS_EACH(LANES_FETCH)
    }

#define LANES_DIFFERENT(i) (old ^ hdr.lanes.c##i)

    // Without the top bit of each lane no carry leaves a lane; the top bits are added by exclusive or. A lane
    // overflowed where the top bits are alike and the carry into them is not. (BMv2 computes slowly with ~x.)
#define LANES_LOW_SUM(i) ((old & low) + (hdr.lanes.c##i & low))
#define LANES_ADD(i) \
        sums.read(old, cell * CHUNKS + i); \
        flags = flags | ((low | LANES_DIFFERENT(i) | (old ^ LANES_LOW_SUM(i))) != (low | LANES_DIFFERENT(i)) \
            ? FLAG_OVERFLOW : 0); \
        sums.write(cell * CHUNKS + i, LANES_LOW_SUM(i) ^ LANES_DIFFERENT(i) ^ (LANES_DIFFERENT(i) & low));
    action add() {
        LANES_LOW_MASK
        CHUNKS_EACH(LANES_ADD)
    }

    // The largest or the smallest, as signed numbers. Without its top bit, a lane of `old` is the greater one where
    // adding the other's complement reaches the top bit; where the top bits differ, the one without it is. Its top bit
    // says so in LANES_GREATER; brought down and added to `low` it leaves the lanes that are not greater, whole.
#define LANES_REACHES(i) ((old & low) + ((hdr.lanes.c##i & low) ^ low))
#define LANES_GREATER(i) ((LANES_REACHES(i) ^ ((LANES_REACHES(i) ^ hdr.lanes.c##i) & LANES_DIFFERENT(i))) & top)
#define LANES_CHOOSE(i) \
        sums.read(old, cell * CHUNKS + i); \
        sums.write(cell * CHUNKS + i, (hdr.agg.operator == operator_t.MIN ? hdr.lanes.c##i : old) \
            ^ (LANES_DIFFERENT(i) & ((((LANES_GREATER(i) >> LANES_TOP_BIT) & low) + low) ^ top)));
    action choose() {
        LANES_LOW_MASK
        LANES_TOP_MASK
        CHUNKS_EACH(LANES_CHOOSE)
    }

#define LANES_UNITE(i) \
        sums.read(old, cell * CHUNKS + i); \
        sums.write(cell * CHUNKS + i, old | hdr.lanes.c##i);
    action unite() {
        CHUNKS_EACH(LANES_UNITE)
    }

    apply {
        if (gives) {
            if (hdr.narrow.isValid()) {
                if (WIRE_HAS_HALVES_OF_8(hdr.agg.format)) {
                    widen_from_8();
                } else {
                    widen_from_4();
                }
            }
            if (is_empty) {
                store();
            } else if (hdr.agg.operator == operator_t.SUM) {
                add();
            } else if (hdr.agg.operator == operator_t.OR) {
                unite();
            } else {
                choose();
            }
        }
        if (completes) {
            if (!is_empty || (flags & FLAG_PAYLOAD) != 0) {
                fetch();
            }
        }
    }
}

#undef LANES_TIMES_4
#undef LANES_TIMES_16
#undef LANES_TIMES_32
#undef LANES_MASK
#undef LANES_TOP_MASK
#undef LANES_LOW_MASK
#undef LANES_TOP_BIT
#undef LANES_WIDEN_8
#undef LANES_WIDEN_4
#undef LANES_STORE
#undef LANES_FETCH
#undef LANES_DIFFERENT
#undef LANES_LOW_SUM
#undef LANES_ADD
#undef LANES_REACHES
#undef LANES_GREATER
#undef LANES_CHOOSE
#undef LANES_UNITE

#endif
