// SPDX-License-Identifier: Apache-2.0
//
// The slot machine: combines the frames of one slot until every member has contributed, then gives the result to all.
//
// A slot has two versions, its cells; the lowest bit of a round's number chooses. A worker sends number k+1 only after it
// holds result k, so when k+2 arrives nobody needs k any more, and its cell starts afresh.
//
// A cell has the number of its round, the set `seen` of members that have contributed to it (empty: the cell was never
// used), and the tag: all that the contributions to a round must have in common. This is what it does with a frame, which
// is a contribution except in rows 1 and 2. Below each row is the test for it, in tests/p4/test_program.py or test_trees.py.
//
//    | the cell's state                     | what came                    | what happens                  | counted as
// ---|--------------------------------------|------------------------------|-------------------------------|------------
//  1 | any                                  | QUERY                        | answered by STATE             |
//    |   test_the_controller_queries_and_sets_slots
//  2 | any                                  | SET                          | overwritten; STATE            |
//    |   test_the_controller_queries_and_sets_slots
//  3 | used                                 | an older number              | dropped                       | STALE
//    |   test_an_older_number_is_stale
//  4 | never used                           | any number                   | a round opens, then as in 6   | CONTRIBUTED
//    |   test_a_round_gives_everybody_the_sum
//  5 | used                                 | a newer number               | a round opens, then as in 6   | CONTRIBUTED
//    |   test_a_new_incarnation_may_skip_numbers
//  6 | the member is not in seen            | the same number and tag      | lanes combined; joins seen    | CONTRIBUTED
//    |   test_slots_and_versions_do_not_touch_each_other
//  7 | the member is not in seen            | the same, without lanes      | joins seen                    | CONTRIBUTED
//    |   test_skipped_blocks_cost_no_payload
//  8 | the member is not in seen            | as in 6, a lane overflows    | as in 6; overflow flag        | OVERFLOW
//    |   test_lanes_of_every_format_add_and_overflow_apart
//  9 | the member is not in seen            | the same number, another tag | joins seen; mismatch flag     | MISMATCH
//    |   test_what_does_not_belong_together_is_a_mismatch
// 10 | the member is in seen, others miss   | the same number              | the sender gets HELD          | HELD
//    |   test_a_repeat_in_an_open_round_is_held
// 11 | everybody is in seen                 | the same number              | the sender gets the RESULT    | REPEATED
//    |   test_a_repeat_in_a_complete_round_gets_the_stored_result_alone
// 12 | everybody is in seen, by one of 4-9  |                              | all members get the RESULT    | COMPLETED
//    |   test_a_round_gives_everybody_the_sum
//
// With a switch above for a tree of the job (an entry of `uplink`), a complete cell has a partial until the result from
// above has made it *final*.  switchsum_protocol/tree_rules.py says why each of these rows must be.
//
//    | the cell's state                     | what came                    | what happens                  | counted as
// ---|--------------------------------------|------------------------------|-------------------------------|------------
// 13 | complete, not final; a switch above  | a repeat that stands for all | the partial goes up again     | REPEATED
//    |   test_a_leaf_sends_its_partial_up_again_until_it_has_the_result
// 14 | final; a switch above                | such a recall or final frame | the result goes up as final   | REPEATED
//    |   test_a_recall_sends_the_result_up_as_final
// 15 | complete and final: no; else any     | a switch's contribution that | it becomes the result, which  | COMPLETED
//    |                                      | is final, number not older   | all members get               |
//    |   test_a_final_contribution_becomes_the_result
// 16 | complete, not final                  | its RESULT from above        | becomes final, for all members| COMPLETED
//    |   test_a_leaf_sends_its_partial_up_again_until_it_has_the_result
// 17 | complete, not final                  | its HELD, REJECT from above  | all members get it            | HELD, or why
//    |   test_what_the_switch_above_has_to_say_reaches_all_members
// 18 | any other                            | anything from above          | dropped                       | STALE
//    |   test_a_result_counts_only_from_the_switch_above_and_once
// 19 | as in 13 and 14                      | any other repeat or recall   | dropped                       | REPEATED
//    |   test_one_repeat_stands_for_all_members_until_one_repeats_again
//    |   test_one_recall_stands_for_all_members_until_one_recalls_again
//
// Nothing here belongs to one architecture: cells.p4 keeps the state, lanes.p4 the lanes, reply.p4 sends what came of it.

#ifndef SLOT_P4
#define SLOT_P4

#include "headers.p4"
#include "lanes.p4"

// What all contributions to a round agree in. What costs BMv2 time are accesses, not bits: so the state of a cell is in
// few and wide words, and these are the places of the parts.
typedef bit<120> tag_t;
#define SLOT_NUMBER 119:88
#define SLOT_OPERATOR 87:80
#define SLOT_FORMAT 79:72
#define SLOT_EXPONENT 71:64
#define SLOT_BLOCK 63:32
#define SLOT_DIGEST 31:0
#define SLOT_ALL_BUT_NUMBER 87:0
#define SLOT_OWN_TAG (hdr.agg.number ++ hdr.agg.operator ++ hdr.agg.format ++ hdr.agg.exponent ++ hdr.agg.block \
        ++ hdr.agg.digest)

// What the contributions come to, besides the lanes: flags, each set once any contribution sets it; the smallest next
// block; and 255 less the largest exponent that was named for that block. So the smallest SLOT_NEXT is the one to keep.
typedef bit<48> outcome_t;
#define SLOT_FLAGS 47:40
#define SLOT_NEXT 39:0
#define SLOT_NEXT_BLOCK 39:8
#define SLOT_NEXT_EXPONENT 7:0
#define SLOT_OWN_NEXT (hdr.agg.next_block ++ ~hdr.agg.next_exponent)
const outcome_t NO_OUTCOME = 0x00FFFFFFFFFF;    // no flags, no next block

struct cell_t {
    bit<32> index;
    tag_t tag;
    bitmap_t seen;
    bitmap_t asked;    // who has repeated since the partial went up again last
    outcome_t outcome;
}

// Looks at a cell's state and a frame, changes both, and says in meta.reason what happened and in meta.reply who gets the
// frame.
control Slot(inout headers_t hdr, inout metadata_t meta, inout cell_t cell) {
    Lanes() lanes;

    flags_t flags;    // what the frame adds to the cell's

    // The table's words. They cost nothing: p4c puts in what they stand for, of the cell as it is where they are assigned.
    bool is_used;           // some member is in seen
    bool is_complete;       // everybody is in seen
    bool is_final;          // the cell's lanes are the result of the whole job
    bool is_empty;          // the cell has no lanes of this round yet
    bool is_same_number;    // the frame's number is the cell's
    bool is_same_tag;       // so is its tag, in which the number is
    bool is_older;          // the frame's number is older than the cell's
    bool is_result;         // the frame is the result of the whole job: it overwrites
    bool belongs;           // the frame belongs to the cell's round: its row is none of 3, 17 and 18
    bool has_sent;          // the member is in seen
    bool gives;             // the frame's lanes join the cell's
    bool completes;         // with this member everybody is in seen
    bool is_held;           // row 10
    bool is_repeat;         // row 11, 13, 14 or 19
    bool is_recall;         // the repeat is for the sake of others
    bool is_redundant;      // another's repeat, which has gone up, stands for this one

    action open() {
        cell.tag = SLOT_OWN_TAG;
        cell.seen = 0;
        cell.asked = 0;
        cell.outcome = NO_OUTCOME;
    }

    // The contribution becomes part of the round. Only a switch may say that its lanes are overflowed, mismatched or final.
    action join() {
        cell.seen = cell.seen | meta.member;
        cell.outcome = (cell.outcome[SLOT_FLAGS] | flags | (hdr.ipv4.ecn == CONGESTION_EXPERIENCED ? FLAG_MARK : 0)
                | ((meta.traffic & FROM_SWITCHES) == 0 ? 0
                    : hdr.agg.flags & (FLAG_OVERFLOW | FLAG_MISMATCH | FLAG_FINAL)))
            ++ (meta.reason == reason_t.CONTRIBUTED && SLOT_OWN_NEXT < cell.outcome[SLOT_NEXT]
                ? SLOT_OWN_NEXT : cell.outcome[SLOT_NEXT]);
        if ((flags & FLAG_OVERFLOW) != 0) {
            meta.reason = reason_t.OVERFLOW;    // row 8
        }
    }

    action overwrite() {
        cell.tag = hdr.agg.number ++ cell.tag[SLOT_ALL_BUT_NUMBER];
        cell.seen = hdr.agg.bitmap;
        cell.asked = 0;
        cell.outcome = 8w0 ++ cell.outcome[SLOT_NEXT];
    }

    // The frame becomes the cell's answer, with its flags except those that are hidden.
    action describe(kind_t kind, flags_t hidden, reason_t reason, reply_t reply) {
        hdr.agg.kind = kind;
        hdr.agg.operator = (operator_t)cell.tag[SLOT_OPERATOR];
        hdr.agg.format = (format_t)cell.tag[SLOT_FORMAT];
        hdr.agg.exponent = cell.tag[SLOT_EXPONENT];
        hdr.agg.block = cell.tag[SLOT_BLOCK];
        hdr.agg.digest = cell.tag[SLOT_DIGEST];
        hdr.agg.number = cell.tag[SLOT_NUMBER];
        if ((kind != kind_t.RESULT && kind != kind_t.CONTRIBUTION) || (cell.outcome[SLOT_FLAGS] & FLAG_SELECT) == 0) {
            hdr.agg.bitmap = kind == kind_t.CONTRIBUTION ? 0 : cell.seen;
        }
        hdr.agg.flags = cell.outcome[SLOT_FLAGS] & ~hidden;
        hdr.agg.reason = reason;
        hdr.agg.next_block = cell.outcome[SLOT_NEXT_BLOCK];
        hdr.agg.next_exponent = ~cell.outcome[SLOT_NEXT_EXPONENT];
        meta.reply = reply;
    }

    // The answer is this switch's contribution to the one above.  rank, cookie: of this membership.  slot_shift: how far
    // the job's slots there are from those here.  pads: frames without lanes must be padded there.
    action pass_up(port_t port, mac_t mac, ip_t ip, bit<16> udp_port, bit<16> rank, cookie_t cookie, bit<32> slot_shift,
            bit<1> pads) {
        hdr.ethernet.destination = mac;
        hdr.ipv4.destination = ip;
        hdr.udp.destination = udp_port;
        hdr.agg.rank = rank;
        hdr.agg.cookie = cookie;
        hdr.agg.slot = hdr.agg.slot + slot_shift;
        meta.up_port = port;
        meta.up_pads = pads;
        meta.reply = reply_t.UPSTREAM;
    }

    action is_root() {}

    // The switch above, for a tree of a job.  It is looked up when a cell is complete, so that most frames do without.
    table uplink {
        key = {
            hdr.agg.job: exact @name("job");
            hdr.agg.tree: exact @name("tree");
            hdr.agg.epoch: exact @name("epoch");
        }
        actions = { pass_up; is_root; }
        const default_action = is_root();
        size = UPSTREAM_ENTRIES;
    }

    apply {
        if (meta.traffic == TRAFFIC_STATE_REQUEST) {
            if (hdr.agg.kind == kind_t.SET) {    // row 2
                overwrite();
            }
            describe(kind_t.STATE, FLAG_PAYLOAD, reason_t.NONE, reply_t.SENDER);    // row 1
        } else {
            // Which row is it?
            is_used = cell.seen != 0;
            is_complete = cell.seen == meta.everybody;
            is_final = (cell.outcome[SLOT_FLAGS] & FLAG_FINAL) != 0;
            is_same_number = hdr.agg.number == cell.tag[SLOT_NUMBER];
            is_same_tag = cell.tag == SLOT_OWN_TAG;
            is_older = (hdr.agg.number - cell.tag[SLOT_NUMBER])[31:31] == 1;
            is_result = (meta.traffic & RESULTS) != 0;
            flags = hdr.agg.flags & (FLAG_PAYLOAD | FLAG_MARK | FLAG_SELECT);
            if (is_same_tag && is_used && !is_result) {    // rows 6 to 8, most frames; or a repeat, see has_sent
                meta.reason = reason_t.CONTRIBUTED;
            } else if (meta.traffic == TRAFFIC_ABOVE) {
                if (!is_complete || !is_same_number || is_final) {    // row 18
                    meta.reason = reason_t.STALE;
                } else if (hdr.agg.kind == kind_t.RESULT) {    // row 16
                    meta.reason = reason_t.CONTRIBUTED;
                    open();
                } else if (hdr.agg.kind == kind_t.HELD) {    // row 17
                    meta.reason = reason_t.HELD;
                    describe(kind_t.HELD, FLAG_PAYLOAD, reason_t.NONE, reply_t.MEMBERS);
                } else {    // row 17; a reason that this program does not know is handed on, uncounted
                    if ((bit<8>)hdr.agg.reason <= REASON_LAST && hdr.agg.reason != reason_t.LOST_EGRESS) {
                        meta.reason = hdr.agg.reason;
                    }
                    describe(kind_t.REJECT, 0xFF, hdr.agg.reason, reply_t.MEMBERS);
                }
            } else if (is_used && is_older) {    // row 3
                meta.reason = reason_t.STALE;
            } else if (!is_used || !is_same_number) {    // rows 4 and 5
                meta.reason = reason_t.CONTRIBUTED;
                open();
            } else if (is_result && (!is_complete || (meta.passes_up == 1 && !is_final))) {    // row 15
                meta.reason = reason_t.CONTRIBUTED;
                open();
            } else {    // row 9, or a repeat, see has_sent
                meta.reason = reason_t.MISMATCH;
                flags = (flags & FLAG_MARK) | FLAG_MISMATCH;
            }

            belongs = meta.reason != reason_t.STALE && meta.reply == reply_t.NONE;
            if (belongs) {
                has_sent = (cell.seen & meta.member) != 0;
                if (has_sent) {
                    flags = 0;
                    if (cell.seen == meta.everybody) {    // row 11, 13, 14 or 19
                        meta.reason = reason_t.REPEATED;
                    } else {    // row 10
                        meta.reason = reason_t.HELD;
                    }
                }
                gives = meta.reason == reason_t.CONTRIBUTED && (flags & FLAG_PAYLOAD) != 0;
                is_empty = (cell.outcome[SLOT_FLAGS] & FLAG_PAYLOAD) == 0;
                completes = (cell.seen | meta.member) == meta.everybody;
                lanes.apply(hdr, cell.index, flags, gives, is_empty, completes);
                if (!has_sent) {
                    join();
                }

                // Who gets what?
                is_complete = cell.seen == meta.everybody;
                is_final = (cell.outcome[SLOT_FLAGS] & FLAG_FINAL) != 0;
                is_repeat = meta.reason == reason_t.REPEATED;
                is_held = meta.reason == reason_t.HELD;
                is_recall = (hdr.agg.flags & FLAG_RECALL) != 0;
                is_redundant = cell.asked != 0 && (cell.asked & meta.sender) == 0 && is_final == is_recall;
                if (is_repeat && is_redundant) {    // row 19
                    cell.asked = cell.asked | meta.sender;
                } else if (is_complete) {
                    if (!is_final || (is_repeat && is_recall)) {
                        uplink.apply();
                    }
                    if (meta.reply == reply_t.UPSTREAM) {    // rows 12 to 14
                        cell.asked = is_repeat ? meta.sender : 0;
                        describe(kind_t.CONTRIBUTION, 0, reason_t.NONE, reply_t.UPSTREAM);
                    } else if (is_repeat) {    // row 11
                        describe(kind_t.RESULT, FLAG_FINAL, reason_t.NONE, reply_t.SENDER);
                    } else {    // rows 12, 15 and 16
                        describe(kind_t.RESULT, FLAG_FINAL, reason_t.NONE, reply_t.MEMBERS);
                        if (is_result) {
                            meta.reason = reason_t.NONE;    // counted as COMPLETED alone
                        }
                    }
                } else if (is_held) {    // row 10
                    describe(kind_t.HELD, FLAG_PAYLOAD, reason_t.NONE, reply_t.SENDER);
                }
            }
        }
    }
}

#undef SLOT_NUMBER
#undef SLOT_OPERATOR
#undef SLOT_FORMAT
#undef SLOT_EXPONENT
#undef SLOT_BLOCK
#undef SLOT_DIGEST
#undef SLOT_ALL_BUT_NUMBER
#undef SLOT_OWN_TAG
#undef SLOT_FLAGS
#undef SLOT_NEXT
#undef SLOT_NEXT_BLOCK
#undef SLOT_NEXT_EXPONENT
#undef SLOT_OWN_NEXT

#endif
