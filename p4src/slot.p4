// The slot machine: combines the packets of one slot until every member has contributed, then gives the result to all.
//
// A slot has two versions, chosen by the lowest bit of the round's number. A worker sends number k+1 only after it
// holds result k, so when k+2 arrives nobody needs k any more: its cell starts afresh.

#ifndef SLOT_P4
#define SLOT_P4

#include "headers.p4"
#include "lanes.p4"

typedef bit<88> tag_t;    // what all contributions to a round must agree in

control Slot(inout headers_t h, inout metadata_t m) {
    register<bit<32>>(CELLS) numbers;           // the round that the cell belongs to
    register<bit<32>>(CELLS) seen_members;      // who has contributed; 0: the cell was never used
    register<tag_t>(CELLS) tags;                // operator, format, exponent, block, digest of the first contribution
    register<bit<32>>(CELLS) next_blocks;       // smallest next block that a member named
    register<bit<8>>(CELLS) next_exponents;     // largest exponent among those who named it
    register<flags_t>(CELLS) sticky_flags;      // some payload, overflow, mismatch, mark

    Lanes() lanes;

    bit<32> cell;
    bit<32> number;
    bit<32> seen;
    tag_t tag;
    bit<32> next_block;
    bit<8> next_exponent;
    flags_t flags;

    action load() {
        numbers.read(number, cell);
        seen_members.read(seen, cell);
        tags.read(tag, cell);
        next_blocks.read(next_block, cell);
        next_exponents.read(next_exponent, cell);
        sticky_flags.read(flags, cell);
    }

    action save() {
        numbers.write(cell, number);
        seen_members.write(cell, seen);
        tags.write(cell, tag);
        next_blocks.write(cell, next_block);
        next_exponents.write(cell, next_exponent);
        sticky_flags.write(cell, flags);
    }

    // The version's last round is over, or there never was one: this contribution opens a new one.
    action open(tag_t own) {
        number = h.agg.number;
        seen = 0;
        tag = own;
        next_block = NO_BLOCK;
        next_exponent = 0;
        flags = 0;
    }

    // The frame becomes the cell's answer.
    action describe(kind_t kind) {
        h.agg.kind = kind;
        h.agg.operator = tag[87:80];
        h.agg.format = tag[79:72];
        h.agg.exponent = tag[71:64];
        h.agg.block = tag[63:32];
        h.agg.digest = tag[31:0];
        h.agg.next_block = next_block;
        h.agg.next_exponent = next_exponent;
        h.agg.bitmap = seen;
        h.agg.number = number;
        m.answered = 1;
    }

    // The smallest next block wins, and with it the largest exponent that anybody named for it.
    action merge_next() {
        next_exponent = h.agg.next_block < next_block ? h.agg.next_exponent
            : (h.agg.next_block == next_block && h.agg.next_exponent > next_exponent ? h.agg.next_exponent
            : next_exponent);
        next_block = h.agg.next_block < next_block ? h.agg.next_block : next_block;
    }

    apply {
        if (h.agg.kind == KIND_CONTRIBUTION) {
            tag_t own = h.agg.operator ++ h.agg.format ++ h.agg.exponent ++ h.agg.block ++ h.agg.digest;
            cell = ((m.first_slot + h.agg.slot) << 1) | (h.agg.number & 1);
            load();
            bit<32> age = h.agg.number - number;
            if (seen != 0 && age[31:31] == 1) {
                m.reason = REASON_STALE;
            } else {
                if (seen == 0 || age != 0) {
                    open(own);
                }

                LaneStep step = LaneStep.NONE;
                bool overflow;
                if (seen & m.member != 0) {
                    m.reason = seen == m.everybody ? REASON_REPEATED : REASON_HELD;
                } else {
                    seen = seen | m.member;
                    if (h.agg.flags & FLAG_MARK != 0 || h.ipv4.ecn == 3) {
                        flags = flags | FLAG_MARK;
                    }
                    if (tag != own) {
                        m.reason = REASON_MISMATCH;
                        flags = flags | FLAG_MISMATCH;
                    } else {
                        m.reason = REASON_CONTRIBUTED;
                        merge_next();
                        if (h.lanes.isValid()) {
                            step = flags & FLAG_PAYLOAD == 0 ? LaneStep.STORE : LaneStep.COMBINE;
                            flags = flags | FLAG_PAYLOAD;
                        }
                    }
                }
                bool complete = seen == m.everybody;
                lanes.apply(h, cell, step, complete && flags & FLAG_PAYLOAD != 0, overflow);
                if (overflow) {
                    m.reason = REASON_OVERFLOW;
                    flags = flags | FLAG_OVERFLOW;
                }

                if (m.reason != REASON_REPEATED && m.reason != REASON_HELD) {
                    save();
                    m.to_members = (bit<1>)complete;
                }
                if (complete) {
                    describe(KIND_RESULT);
                    h.agg.flags = flags;
                    if (flags & FLAG_PAYLOAD == 0) {
                        h.lanes.setInvalid();   // of a contribution that was not combined
                    }
                } else if (m.reason == REASON_HELD) {
                    describe(KIND_HELD);
                    h.agg.flags = flags & ~FLAG_PAYLOAD;
                    h.lanes.setInvalid();
                }
            }
        } else {
            // QUERY and SET, from the controller, which names slots of the switch, not of a job.
            cell = (h.agg.slot << 1) | (h.agg.number & 1);
            load();
            if (h.agg.kind == KIND_SET) {
                number = h.agg.number;
                seen = h.agg.bitmap;
                flags = 0;
                save();
            }
            describe(KIND_STATE);
            h.agg.flags = flags & ~FLAG_PAYLOAD;
            h.lanes.setInvalid();
        }
    }
}

#endif
