// SPDX-License-Identifier: Apache-2.0
//
// The aggregation header and its numbers. tools/frame_tables.py makes this file from switchsum_protocol/frame.py, and
// docs/fields.md says how to add a field.

#ifndef WIRE_P4
#define WIRE_P4

const bit<8> WIRE_VERSION = 4;
const bit<16> AGGREGATION_PORT = 21333;
const bit<16> AGGREGATION_BYTES = 48;

// Next block of a sender that has nothing more to send.
const bit<32> NO_BLOCK = 0xFFFFFFFF;

// What a frame is.
enum bit<8> kind_t {
    CONTRIBUTION = 1,
    RESULT = 2,
    HELD = 3,            // The switch already has this contribution; `bitmap` says from whom it has one
    REJECT = 4,          // The switch refused a contribution; `reason` says why
    HELLO = 5,           // A joining member shows its address; `number` and `digest` hold the controller's 64-bit nonce
    QUERY = 6,           // From the CPU port: tell the state of the version `number & 1` of the slot `slot`
    SET = 7,             // From the CPU port: set `number` and `bitmap` of that version, and clear its flags
    STATE = 8            // The answer to QUERY and SET
}
@noWarn("unused") const bit<8> KIND_LAST = 8;

// How contributions are combined, lane by lane; callers know an operator by its name in small letters.
enum bit<8> operator_t {
    SUM = 1,
    MAX = 2,
    MIN = 3,
    OR = 4
}
@noWarn("unused") const bit<8> OPERATOR_LAST = 4;

// How a payload is divided into lanes (two's complement).
enum bit<8> format_t {
    INT32 = 1,
    INT16 = 2,
    INT8 = 3,
    INT64 = 4,
    WIDENED = 7,    // Lanes of 16 bits, for which a contribution may have 8: the switch widens these
    NIBBLES = 8     // Lanes of 8 bits, for which a contribution may have 4: the switch widens these
}
@noWarn("unused") const bit<8> FORMAT_LAST = 4;    // without gaps

// The header's flags; docs/wire.md says who sets and who reads each.
typedef bit<8> flags_t;
@noWarn("unused") const flags_t FLAG_PAYLOAD = 1;     // Lanes follow.  In a result: some contribution had lanes
@noWarn("unused") const flags_t FLAG_OVERFLOW = 2;    // Some partial sum of the round overflowed its lane
@noWarn("unused") const flags_t FLAG_MISMATCH = 4;    // Members contributed different operations to the round
@noWarn("unused") const flags_t FLAG_MARK = 8;        // Congestion was met on the way
@noWarn("unused") const flags_t FLAG_REPEAT = 16;     // The sender has sent this contribution before
@noWarn("unused") const flags_t FLAG_FINAL = 32;
@noWarn("unused") const flags_t FLAG_RECALL = 64;
@noWarn("unused") const flags_t FLAG_SELECT = 128;

// Why the switch dropped a packet or answered it specially; the index of its counter.
enum bit<8> reason_t {
    NONE = 0,                    // nothing yet, or nothing worth counting
    TRUNCATED = 1,               // Shorter than its own headers say
    LENGTH = 2,                  // The lengths of frame, IPv4, UDP and flags do not agree
    VERSION = 3,
    KIND = 4,                    // A kind that this port may not send
    OPERATOR = 5,
    FORMAT = 6,
    CHECKSUM = 7,
    NOT_ADMITTED = 8,            // No member has this job, tree, rank, epoch, address and ingress port
    SLOT = 9,                    // Outside the job's slots
    PADDING = 10,                // Without payload and too short to become a result with payload on this switch
    STALE = 11,                  // A number older than the slot's
    HELD = 12,                   // Answered `held`: a repeat to a round that is not complete
    REPEATED = 13,               // Answered with the stored result: a repeat to a complete round
    MISMATCH = 14,
    OVERFLOW = 15,               // Combined, and a lane overflowed
    SPOOFED = 16,                // Ordinary traffic that bears the switch's own address as its source
    UNKNOWN_DESTINATION = 17,
    LOST_INGRESS = 18,           // Dropped by the drop simulator on arrival
    LOST_EGRESS = 19,            // Dropped by the drop simulator on departure (counted in egress)
    CONTRIBUTED = 20,            // Taken into a round
    COMPLETED = 21,              // Completed a round, whose result went to every member
    COOKIE = 22,                 // A contribution with another cookie than its member's; it gets no answer
    SPOOFED_INSIDE = 23,         // Within a tag or a tunnel, traffic that bears the switch's own address as its source
    OPAQUE = 24,                 // Tags or a tunnel in which this program cannot look for such an address
    TAKEN = 25
}
@noWarn("unused") const bit<8> REASON_LAST = 25;
const bit<32> REASONS = 32;

// Whether there is such a lane format, how wide lanes are, and halves of them where one may send these.
#define WIRE_IS_FORMAT(format) ((format) == format_t.INT32 || (format) == format_t.INT16 \
        || (format) == format_t.INT8 || (format) == format_t.INT64 || (format) == format_t.WIDENED \
        || (format) == format_t.NIBBLES)
#define WIRE_HAS_LANES_OF_8(format) ((format) == format_t.INT8 || (format) == format_t.NIBBLES)
#define WIRE_HAS_LANES_OF_16(format) ((format) == format_t.INT16 || (format) == format_t.WIDENED)
#define WIRE_HAS_LANES_OF_32(format) ((format) == format_t.INT32)
#define WIRE_HAS_LANES_OF_64(format) ((format) == format_t.INT64)
#define WIRE_IS_WIDENED(format) ((format) == format_t.WIDENED || (format) == format_t.NIBBLES)
#define WIRE_HAS_HALVES_OF_8(format) ((format) == format_t.WIDENED)
#define WIRE_HAS_HALVES_OF_4(format) ((format) == format_t.NIBBLES)

// docs/wire.md says what each field means.
header aggregation_t {
    bit<8> version;
    kind_t kind;
    operator_t operator;
    format_t format;
    flags_t flags;
    reason_t reason;
    bit<8> exponent;
    bit<8> next_exponent;
    bit<16> job;
    bit<16> epoch;
    bit<16> rank;
    bit<16> tree;
    bit<32> slot;
    bit<32> number;
    bit<32> block;
    bit<32> next_block;
    bit<32> digest;
    bit<32> bitmap;
    bit<64> cookie;
}

#endif
