// SPDX-License-Identifier: Apache-2.0
//
// P4 has neither arrays of fields nor loops. CHUNKS_EACH(F) writes F(0) F(1) ..., once for each chunk of a payload,
// CHUNKS_PADDING(F) once for each chunk of the padding, and CHUNKS_PAIRS(F) F(i, j) once for each chunk i of the payload's
// first half and j of its second.

#ifndef CHUNKS_P4
#define CHUNKS_P4

#include "config.p4"

#define CHUNKS_2(F) F(0) F(1)
#define CHUNKS_4(F) CHUNKS_2(F) F(2) F(3)
#define CHUNKS_30(F) CHUNKS_4(F) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16) F(17) \
    F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) F(26) F(27) F(28) F(29)
#define CHUNKS_32(F) CHUNKS_30(F) F(30) F(31)
#define CHUNKS_PAIRS_16(F) F(0, 16) F(1, 17) F(2, 18) F(3, 19) F(4, 20) F(5, 21) F(6, 22) F(7, 23) F(8, 24) F(9, 25) \
    F(10, 26) F(11, 27) F(12, 28) F(13, 29) F(14, 30) F(15, 31)

// BMv2 aborts when a frame grows by more than 512 bytes, which are two chunks: a contribution without payload is padded by
// the rest, so that it can become a result with payload. 128 lanes need no padding.
#if LANES == 128
#define CHUNKS_EACH(F) CHUNKS_2(F)
#define CHUNKS_PAIRS(F) F(0, 1)
#define CHUNKS_PADDING(F)
#elif LANES == 256
#define CHUNKS_EACH(F) CHUNKS_4(F)
#define CHUNKS_PAIRS(F) F(0, 2) F(1, 3)
#define CHUNKS_PADDING(F) CHUNKS_2(F)
#elif LANES == 2048
#define CHUNKS_EACH(F) CHUNKS_32(F)
#define CHUNKS_PAIRS(F) CHUNKS_PAIRS_16(F)
#define CHUNKS_PADDING(F) CHUNKS_30(F)
#else
#error "LANES must be 128, 256 or 2048"
#endif

#endif
