// SPDX-License-Identifier: Apache-2.0
//
// Who may contribute: which member sent a contribution, and whether it is one that the switch can combine.

#ifndef ADMISSION_P4
#define ADMISSION_P4

#include "headers.p4"

// Says in meta.reason why a contribution is refused; else what the table knows of its sender is in meta.
control Admission(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // What each member has sent, whatever became of it; the default action counts what is not admitted.
    direct_counter(CounterType.packets_and_bytes) contributions;

    action check(bit<32> first_slot, bit<32> slot_count, cookie_t cookie) {
        if (hdr.agg.cookie != cookie) {
            meta.reason = reason_t.COOKIE;
        } else if (hdr.agg.slot - first_slot >= slot_count) {
            meta.reason = reason_t.SLOT;
        }
    }

    // member: this rank's bit. everybody: all members' bits. first_slot, slot_count: the job's share of the switch.  A
    // slot in front of it counts as far behind it, for numbers have no sign.  group: multicast group of the members, whose
    // replicas have ranks as instances.  cookie: what this member alone writes, no part of the key: counters tell a wrong one.
    action admit(bitmap_t member, bitmap_t everybody, bit<32> first_slot, bit<32> slot_count, bit<16> group,
            cookie_t cookie) {
        meta.sender = member;
        meta.member = member;
        meta.everybody = everybody;
        meta.group = group;
        meta.traffic = TRAFFIC_CONTRIBUTION;
        check(first_slot, slot_count, cookie);
    }

    // A member of a job that shares slots.  is_fallback: this switch is the job's fallback.
    action admit_shared(bitmap_t member, bitmap_t everybody, bit<32> first_slot, bit<32> slot_count, bit<16> group,
            cookie_t cookie, bit<1> is_fallback) {
        meta.member = member;
        meta.everybody = everybody;
        meta.group = group;
        meta.traffic = is_fallback == 1 ? TRAFFIC_PASSED : TRAFFIC_SHARED;
        check(first_slot, slot_count, cookie);
    }

    // A member that is a switch.  passes_up: this switch has one above for this tree of the job.
    action admit_switch(bitmap_t member, bitmap_t everybody, bit<32> first_slot, bit<32> slot_count, bit<16> group,
            cookie_t cookie, bit<1> passes_up) {
        meta.sender = member;
        meta.everybody = everybody;
        meta.group = group;
        meta.passes_up = passes_up;
        if ((hdr.agg.flags & FLAG_FINAL) != 0) {
            meta.traffic = TRAFFIC_FINAL;
            meta.member = everybody;    // a result stands for all of them
            hdr.agg.flags = hdr.agg.flags | FLAG_RECALL;    // somebody below has asked for it
        } else {
            meta.traffic = TRAFFIC_PARTIAL;
            meta.member = member;
        }
        check(first_slot, slot_count, cookie);
    }

    action refuse() {
        meta.reason = reason_t.NOT_ADMITTED;
    }

    // A member's frames have the address and the port that the member has shown itself with.
    table admission {
        key = {
            hdr.agg.job: exact @name("job");
            hdr.agg.tree: exact @name("tree");
            hdr.agg.rank: exact @name("rank");
            hdr.agg.epoch: exact @name("epoch");
            hdr.ipv4.source: exact @name("source_ip");
            hdr.udp.source: exact @name("source_port");
            standard_metadata.ingress_port: exact @name("ingress_port");
        }
        actions = { admit; admit_shared; admit_switch; refuse; }
        const default_action = refuse();
        counters = contributions;
        size = ADMISSION_ENTRIES;
    }

    apply {
        admission.apply();
        if (meta.reason == reason_t.NONE || meta.reason == reason_t.SLOT) {
            if (hdr.agg.operator == (operator_t)0 || (bit<8>)hdr.agg.operator > OPERATOR_LAST) {
                meta.reason = reason_t.OPERATOR;
            } else if (!WIRE_IS_FORMAT(hdr.agg.format)) {
                meta.reason = reason_t.FORMAT;
            } else if (meta.reason == reason_t.NONE && !hdr.lanes.isValid() && !hdr.padding.isValid()
                    && meta.growth_bytes < (hdr.narrow.isValid() ? PAYLOAD_BYTES - NARROW_BYTES : PAYLOAD_BYTES)) {
                meta.reason = reason_t.PADDING;
            }
        }
        // A frame with a wrong cookie gets no reply, so that nobody can try cookies and see.
        if (meta.reason != reason_t.NONE && meta.reason != reason_t.COOKIE) {
            meta.reply = reply_t.REJECT;
        }
    }
}

// Whether a frame that is no contribution comes from the switch above; else it is dropped, whatever it says.
control Above(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action check(ip_t ip, bit<16> udp_port, port_t port, bit<16> rank, cookie_t cookie, bit<32> first_slot_above,
            bit<32> slot_count) {
        if (hdr.ipv4.source != ip || hdr.udp.source != udp_port || standard_metadata.ingress_port != port
                || hdr.agg.rank != rank) {
            meta.reason = reason_t.NOT_ADMITTED;
        } else if (hdr.agg.cookie != cookie) {
            meta.reason = reason_t.COOKIE;
        } else if (hdr.agg.slot - first_slot_above >= slot_count) {
            meta.reason = reason_t.SLOT;
        }
    }

    // ip, udp_port, port: where the switch above is.  rank, cookie: of this switch as its member.  first_slot_above,
    // slot_count, first_slot: the job's slots, as that switch numbers them and as this one does.  everybody, group: of
    // this switch's own members.
    action take(ip_t ip, bit<16> udp_port, port_t port, bit<16> rank, cookie_t cookie, bit<32> first_slot_above,
            bit<32> slot_count, bit<32> first_slot, bitmap_t everybody, bit<16> group) {
        meta.member = everybody;    // what is said, is said to all of them
        meta.everybody = everybody;
        meta.group = group;
        meta.traffic = TRAFFIC_ABOVE;
        check(ip, udp_port, port, rank, cookie, first_slot_above, slot_count);
        hdr.agg.slot = hdr.agg.slot - first_slot_above + first_slot;
        hdr.agg.flags = hdr.agg.flags | FLAG_FINAL;    // of a result; Slot looks at no other flags
    }

    // Of a job that shares slots: the switch above is its fallback, and what that says is for the members alone.
    action relay(ip_t ip, bit<16> udp_port, port_t port, bit<16> rank, cookie_t cookie, bit<32> first_slot_above,
            bit<32> slot_count, bit<32> first_slot, bit<16> group) {
        meta.group = group;
        meta.traffic = TRAFFIC_RELAYED;
        check(ip, udp_port, port, rank, cookie, first_slot_above, slot_count);
        if (meta.reason == reason_t.NONE && hdr.agg.kind == kind_t.REJECT) {
            meta.reason = reason_t.KIND;    // it is about what this switch said, not about a member
        }
        hdr.agg.slot = hdr.agg.slot - first_slot_above + first_slot;
        hdr.agg.flags = hdr.agg.flags | (hdr.ipv4.ecn == CONGESTION_EXPERIENCED ? FLAG_MARK : 0);
    }

    action refuse_kind() {
        meta.reason = reason_t.KIND;
    }

    table above {
        key = {
            hdr.agg.job: exact @name("job");
            hdr.agg.tree: exact @name("tree");
            hdr.agg.epoch: exact @name("epoch");
        }
        actions = { take; relay; refuse_kind; }
        const default_action = refuse_kind();
        size = UPSTREAM_ENTRIES;
    }

    apply {
        above.apply();
    }
}

#endif
