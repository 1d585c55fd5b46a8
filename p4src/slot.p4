// The slot machine: combines the packets of one slot until every member has contributed, then gives the result to all.
//
// A slot has two versions, chosen by the lowest bit of the round's number. A worker sends number k+1 only after it
// holds result k, so when k+2 arrives nobody needs k any more: its cell starts afresh.

#ifndef SLOT_P4
#define SLOT_P4

#include "headers.p4"
#include "lanes.p4"

// What all contributions to a round agree in: number, operator, format, exponent, block, digest.
typedef bit<120> tag_t;
#define NUMBER tag[119:88]
#define OWN_TAG (h.agg.number ++ h.agg.operator ++ h.agg.format ++ h.agg.exponent ++ h.agg.block ++ h.agg.digest)

// What they come to, besides the lanes: sticky flags; the next block, and behind it 255 less its exponent, so that the
// smallest of those has the largest exponent that anybody named for the smallest block.
typedef bit<48> outcome_t;
#define FLAGS outcome[47:40]
#define NEXT outcome[39:0]
#define OWN_NEXT (h.agg.next_block ++ ~h.agg.next_exponent)

control Slot(inout headers_t h, inout metadata_t m) {
    // What costs BMv2 time are accesses, not bits: so the state of a cell is in few and wide words.
    register<tag_t>(CELLS) tags;
    register<bit<32>>(CELLS) seen_members;    // who has contributed; 0: the cell was never used
    register<outcome_t>(CELLS) outcomes;

    Lanes() lanes;

    bit<32> cell;
    tag_t tag;
    bit<32> seen;
    outcome_t outcome;
    flags_t flags;

    // The version's last round is over, or there never was one: this contribution opens a new one.
    action open() {
        tag = OWN_TAG;
        seen = 0;
        outcome = 48w0xFFFFFFFFFF;    // no flags, no next block
        tags.write(cell, tag);
    }

    // The contribution, with the flags that it gave rise to, becomes part of the round.
    action join() {
        seen = seen | m.member;
        outcome = (FLAGS | flags | (h.ipv4.ecn == 3 ? FLAG_MARK : 0))
            ++ (m.reason == REASON_CONTRIBUTED && OWN_NEXT < NEXT ? OWN_NEXT : NEXT);
        seen_members.write(cell, seen);
        outcomes.write(cell, outcome);
        if (flags & FLAG_OVERFLOW != 0) {
            m.reason = REASON_OVERFLOW;
        }
    }

    // The frame becomes the cell's answer.
    action describe(kind_t kind, flags_t hidden) {
        h.agg.kind = kind;
        h.agg.operator = tag[87:80];
        h.agg.format = tag[79:72];
        h.agg.exponent = tag[71:64];
        h.agg.block = tag[63:32];
        h.agg.digest = tag[31:0];
        h.agg.number = NUMBER;
        h.agg.bitmap = seen;
        h.agg.flags = FLAGS & ~hidden;
        h.agg.reason = 0;
        h.agg.next_block = NEXT[39:8];
        h.agg.next_exponent = ~NEXT[7:0];
        m.answered = 1;
    }

    apply {
        // Nothing else says where a slot's state lies, so that frames of different slots cannot meet in a cell: switches
        // with several cores, or pipelines, share slots out on the strength of it.
        cell = (h.agg.slot << 1) | (h.agg.number & 1);
        tags.read(tag, cell);
        seen_members.read(seen, cell);
        outcomes.read(outcome, cell);
        if (h.agg.kind != KIND_CONTRIBUTION) {    // QUERY and SET
            if (h.agg.kind == KIND_SET) {
                tag = h.agg.number ++ tag[87:0];
                seen = h.agg.bitmap;
                outcome = 8w0 ++ NEXT;
                tags.write(cell, tag);
                seen_members.write(cell, seen);
                outcomes.write(cell, outcome);
            }
            describe(KIND_STATE, FLAG_PAYLOAD);
        } else {
            // In most cases the round is open and this contribution fits it.
            flags = h.agg.flags & (FLAG_PAYLOAD | FLAG_MARK);
            if (tag == OWN_TAG && seen != 0) {
                m.reason = REASON_CONTRIBUTED;
            } else if (seen != 0 && (h.agg.number - NUMBER)[31:31] == 1) {
                m.reason = REASON_STALE;
            } else if (seen == 0 || h.agg.number != NUMBER) {
                m.reason = REASON_CONTRIBUTED;
                open();
            } else {
                m.reason = REASON_MISMATCH;
                flags = (flags & FLAG_MARK) | FLAG_MISMATCH;
            }
            if (m.reason != REASON_STALE) {
                if (seen & m.member != 0) {
                    flags = 0;
                    if (seen == m.everybody) {
                        m.reason = REASON_REPEATED;
                    } else {
                        m.reason = REASON_HELD;
                    }
                }
                lanes.apply(h, cell, flags, m.reason == REASON_CONTRIBUTED && h.lanes.isValid(),
                    FLAGS & FLAG_PAYLOAD == 0, seen | m.member == m.everybody);
                if (seen & m.member == 0) {
                    join();
                }
                if (seen == m.everybody) {
                    if (m.reason != REASON_REPEATED) {
                        m.to_members = 1;
                    }
                    describe(KIND_RESULT, 0);
                } else if (m.reason == REASON_HELD) {
                    describe(KIND_HELD, FLAG_PAYLOAD);
                }
            }
        }
    }
}

#endif
