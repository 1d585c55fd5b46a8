// SPDX-License-Identifier: Apache-2.0
//
// Shared slots: who owns a slot that no job has reserved, and what goes on to the job's fallback instead.
//
// An operation of a job that shares slots begins with a round without lanes, which claims the slot.  Its other rounds are
// added in the slot if the operation owns it, else by the fallback: another switch, where the job has slots of its own.
// switchsum_protocol/shared_rules.py says why each of these rows must be; tests/p4/test_shared.py has a test for each.
//
//    | the slot's owner                     | what came                    | what happens                  | counted as
// ---|--------------------------------------|------------------------------|-------------------------------|------------
//  A | nobody, an operation that is over,   | a claim                      | the operation owns the slot,  | CONTRIBUTED
//    | an orphan, an older claim of the job |                              | whose cells are emptied; to   |
//    |                                      |                              | the fallback                  |
//  B | this operation                       | a claim                      | to the fallback               | CONTRIBUTED
//  C | another operation                    | anything                     | to the fallback               | TAKEN; of this
//    |                                      |                              |                               | job: REPEATED
//  D | this operation                       | any other contribution       | Slot takes it; HELD goes to   | as Slot says
//    |                                      |                              | all members                   |
//  E | this operation                       | what completes a round that  | the result goes to the        | as Slot says
//    |                                      | names no next block          | fallback, as final            |
//  F | any                                  | RESULT or HELD of the        | all members get it; without a | COMPLETED
//    |                                      | fallback                     | next block, it is over        |
//  G | any                                  | QUERY or SET                 | STATE says in its cookie who  |
//    |                                      |                              | holds the slot                |
//  H | nobody, an operation that is over,   | RESULT of the fallback, with | as F, and the operation owns  | COMPLETED
//    | an orphan                            | a next block                 | the slot, whose cells are     |
//    |                                      |                              | emptied; not called TAKEN     |
//
// At the fallback Slot takes what was passed on, and every answer goes to the switch that passed it on.

#ifndef OWNERS_P4
#define OWNERS_P4

#include "headers.p4"

// Who owns a slot: job, epoch and digest name the operation; the number of its claim; when it was last heard of, in steps
// of 65,536 microseconds; and whether it is over.  Job 0: nobody.
typedef bit<113> owner_t;
#define OWNERS_JOB 112:97
#define OWNERS_OPERATION 112:49
#define OWNERS_NUMBER 48:17
#define OWNERS_HEARD 16:1
#define OWNERS_IS_OVER 0:0
#define OWNERS_OWN (hdr.agg.job ++ hdr.agg.epoch ++ hdr.agg.digest)

// Looks whose the slot is.  takes: the frame takes it.  passes: the frame goes on to the fallback.
control Owners(inout headers_t hdr, inout metadata_t meta, inout owner_t owner, in bit<16> now, out bool takes,
        out bool passes) {
    bool is_free;

    apply {
        takes = false;
        passes = false;
        is_free = owner[OWNERS_JOB] == 0 || owner[OWNERS_IS_OVER] == 1 || now - owner[OWNERS_HEARD] > ORPHAN_AGE;
        if (meta.traffic == TRAFFIC_STATE_REQUEST) {    // row G
            hdr.agg.cookie = owner[OWNERS_IS_OVER] == 1 ? 64w0 : owner[OWNERS_OPERATION];
        } else if (meta.traffic == TRAFFIC_RELAYED) {    // rows F and H
            meta.reply = reply_t.MEMBERS;
            if (owner[OWNERS_OPERATION] != OWNERS_OWN) {
                takes = is_free && hdr.agg.kind == kind_t.RESULT && hdr.agg.next_block != NO_BLOCK;
                hdr.agg.reason = takes ? hdr.agg.reason : reason_t.TAKEN;
            } else if (hdr.agg.kind == kind_t.RESULT && hdr.agg.next_block == NO_BLOCK) {
                owner[OWNERS_IS_OVER] = 1;
            }
        } else if (hdr.agg.block == NO_BLOCK) {
            passes = true;
            if (owner[OWNERS_OPERATION] == OWNERS_OWN) {    // row B
                owner[OWNERS_HEARD] = now;
                meta.reason = reason_t.CONTRIBUTED;
            } else if (is_free || (owner[OWNERS_JOB] == hdr.agg.job
                    && (owner[OWNERS_NUMBER] - hdr.agg.number)[31:31] == 1)) {    // row A
                takes = true;
                meta.reason = reason_t.CONTRIBUTED;
            } else {    // row C
                meta.reason = owner[OWNERS_JOB] == hdr.agg.job ? reason_t.REPEATED : reason_t.TAKEN;
            }
        } else if (owner[OWNERS_OPERATION] == OWNERS_OWN) {    // rows D and E
            owner[OWNERS_HEARD] = now;
        } else {    // row C
            passes = true;
            meta.reason = owner[OWNERS_JOB] == hdr.agg.job ? reason_t.REPEATED : reason_t.TAKEN;
        }
        if (takes) {
            owner = OWNERS_OWN ++ hdr.agg.number ++ now ++ 1w0;
        }
    }
}

// Where the frame goes that Slot has looked at, or has not since it passes.
control Fallback(inout headers_t hdr, inout metadata_t meta, in bool passes) {
    bool is_last;

    // Where a job's fallback is.  rank, cookie: of this switch as its member.  slot_shift: how far the job's slots there
    // are from those here.  pads: frames without lanes must be padded there.
    action pass(port_t port, mac_t mac, ip_t ip, bit<16> udp_port, bit<16> rank, cookie_t cookie, bit<32> slot_shift,
            bit<1> pads) {
        hdr.ethernet.destination = mac;
        hdr.ipv4.destination = ip;
        hdr.udp.destination = udp_port;
        hdr.agg.slot = hdr.agg.slot + slot_shift;
        meta.up_port = port;
        meta.up_pads = pads;
        if (hdr.agg.kind == kind_t.RESULT) {    // row E
            hdr.agg.kind = kind_t.CONTRIBUTION;
            hdr.agg.flags = hdr.agg.flags | FLAG_FINAL;
            hdr.agg.rank = rank;
            hdr.agg.cookie = cookie;
            meta.reply = reply_t.UPSTREAM;
        } else {
            meta.reply = reply_t.PASSED;
        }
    }

    action is_missing() {}

    table fallback {
        key = {
            hdr.agg.job: exact @name("job");
            hdr.agg.tree: exact @name("tree");
            hdr.agg.epoch: exact @name("epoch");
        }
        actions = { pass; is_missing; }
        const default_action = is_missing();
        size = FALLBACK_ENTRIES;
    }

    apply {
        is_last = hdr.agg.kind == kind_t.RESULT && hdr.agg.next_block == NO_BLOCK;
        if (meta.traffic == TRAFFIC_PASSED) {
            if (meta.reply == reply_t.SENDER) {
                meta.reply = reply_t.MEMBERS;
            }
        } else if (meta.traffic == TRAFFIC_SHARED) {
            if (passes || is_last) {
                fallback.apply();
            } else if (meta.reply == reply_t.SENDER && hdr.agg.kind == kind_t.HELD) {    // row D
                meta.reply = reply_t.MEMBERS;
            }
        }
    }
}

#undef OWNERS_JOB
#undef OWNERS_OPERATION
#undef OWNERS_NUMBER
#undef OWNERS_HEARD
#undef OWNERS_IS_OVER
#undef OWNERS_OWN

#endif
