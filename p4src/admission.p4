// Who may contribute: what a frame that is addressed to the switch must look like, and which member sent it.

#ifndef ADMISSION_P4
#define ADMISSION_P4

#include "headers.p4"

// Sets m.reason when the frame is refused, else what admission knows about its sender.
control Admission(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    // member: this rank's bit. everybody: the bits of all members. first_slot, slot_count: the job's share of the
    // switch; a slot in front of it is far behind it, as numbers without sign are. group: multicast group of the
    // members, one replica each with the rank as its instance. cookie: what this member alone writes into its frames;
    // no part of the key, so that a wrong one is told from an unknown sender, in the counters alone.
    action admit(bit<32> member, bit<32> everybody, bit<32> first_slot, bit<32> slot_count, bit<16> group,
            cookie_t cookie) {
        m.member = member;
        m.everybody = everybody;
        m.group = group;
        if (h.agg.cookie != cookie) {
            m.reason = REASON_COOKIE;
        } else if (h.agg.slot - first_slot >= slot_count) {
            m.reason = REASON_SLOT;
        }
    }

    action refuse() {
        m.reason = REASON_NOT_ADMITTED;
    }

    // A sender's claim to be somebody counts only together with the address and the port it was learned at.
    table members {
        key = {
            h.agg.job: exact @name("job");
            h.agg.tree: exact @name("tree");
            h.agg.rank: exact @name("rank");
            h.agg.epoch: exact @name("epoch");
            h.ipv4.source: exact @name("source_ip");
            h.udp.source: exact @name("source_port");
            standard.ingress_port: exact @name("ingress_port");
        }
        actions = { admit; refuse; }
        const default_action = refuse();
        size = 4096;
    }

    apply {
        members.apply();
        if (m.reason == REASON_NOT_ADMITTED || m.reason == REASON_COOKIE) {
            return;
        }
        if (h.agg.operator == 0 || h.agg.operator > OPERATOR_LAST) {
            m.reason = REASON_OPERATOR;
        } else if (h.agg.format == 0 || h.agg.format > FORMAT_LAST) {
            m.reason = REASON_FORMAT;
        } else if (m.reason == 0 && !h.lanes.isValid()) {
            if (!h.padding.isValid() && m.growth_bytes < PAYLOAD_BYTES) {
                m.reason = REASON_PADDING;
            }
        }
    }
}

#endif
