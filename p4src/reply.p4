// SPDX-License-Identifier: Apache-2.0
//
// What leaves: answers of the switch's own, frames for the controller, or nothing. What happened is counted here.

#ifndef REPLY_P4
#define REPLY_P4

#include "headers.p4"

control Reply(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(REASONS, CounterType.packets_and_bytes) events;    // by reason
    // By multicast group, which stands for the job, by rank and by reason: a rank's reasons lie side by side.
    counter(COUNTED_GROUPS * RANKS * REASONS, CounterType.packets_and_bytes) member_events;

    action to_controller() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard_metadata.ingress_port;
        hdr.packet_in.unused = 0;
        standard_metadata.egress_spec = CPU_PORT;
    }

    action count_completed() {
        events.count((bit<32>)(bit<8>)reason_t.COMPLETED);
    }

    // One replica for each member; egress addresses them.
    action to_members() {
        standard_metadata.mcast_grp = meta.group;
    }

    // The table `uplink` has addressed it, or `fallback`.
    action to_upstream() {
        standard_metadata.egress_spec = meta.up_port;
    }

    // Answers go back where the question came from.
    action to_sender() {
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ipv4.destination = hdr.ipv4.source;
        hdr.udp.destination = hdr.udp.source;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }

    action reject() {
        hdr.agg.kind = kind_t.REJECT;
        hdr.agg.flags = 0;
        hdr.agg.reason = meta.reason;
    }

    // A contribution that goes on as it came, but for the addresses.
    action pass_on() {
        hdr.ethernet.source = meta.own_mac;
        hdr.ipv4.source = meta.own_ip;
        hdr.ipv4.ttl = INITIAL_TTL;
        hdr.udp.source = meta.own_port;
        hdr.udp.checksum = 0;
        meta.is_ipv4_changed = true;
    }

    // A frame of the switch's own: its lengths follow from its headers, its UDP checksum is left out. Queues on the way
    // may mark it.
    action finish() {
        hdr.ethernet.source = meta.own_mac;
        hdr.ipv4.identification = 0;
        hdr.ipv4.ecn = ECN_CAPABLE;
        hdr.ipv4.ttl = INITIAL_TTL;
        hdr.ipv4.source = meta.own_ip;
        hdr.udp.source = meta.own_port;
        hdr.udp.checksum = 0;
        if ((hdr.agg.flags & FLAG_PAYLOAD) != 0) {
            hdr.udp.length = UDP_PAYLOAD;
            hdr.ipv4.total_length = IPV4_PAYLOAD;
        } else {
            hdr.lanes.setInvalid();
            hdr.udp.length = UDP_EMPTY;
            hdr.ipv4.total_length = IPV4_EMPTY;
        }
        hdr.narrow.setInvalid();
        hdr.padding.setInvalid();
        meta.is_ipv4_changed = true;
    }

#define REPLY_PAD(i) hdr.padding.c##i = 0;
#if LANES > 128
    // What a frame without lanes carries where the switch above limits by how much frames grow.
    action pad() {
        hdr.padding.setValid();
        CHUNKS_PADDING(REPLY_PAD)
        hdr.udp.length = UDP_PADDED;
        hdr.ipv4.total_length = IPV4_PADDED;
    }
#endif

    action count() {
        events.count((bit<32>)(bit<8>)meta.reason);
    }

    // What is not CONTRIBUTED is counted for its sender, too; what is follows from the frames that `admission` counts.
    action count_for_member() {
        member_events.count(((bit<32>)meta.group * RANKS + ((bit<32>)hdr.agg.rank & (RANKS - 1))) * REASONS
            + (bit<32>)(bit<8>)meta.reason);
    }

    apply {
        if (meta.reply == reply_t.NONE && meta.reason == reason_t.CONTRIBUTED) {    // most frames
            count();
            mark_to_drop(standard_metadata);
        } else {
            if (meta.reply == reply_t.NONE) {
                if (meta.reason != reason_t.NONE) {
                    mark_to_drop(standard_metadata);
                }
            } else if (meta.reply == reply_t.CONTROLLER) {
                to_controller();
            } else if (meta.reply == reply_t.PASSED) {
                to_upstream();
                pass_on();
            } else {
                if (meta.reply == reply_t.MEMBERS) {
                    to_members();
                    if (hdr.agg.kind == kind_t.RESULT && meta.reason != reason_t.REPEATED) {
                        count_completed();
                    }
                } else if (meta.reply == reply_t.UPSTREAM) {
                    to_upstream();
                    if (meta.reason != reason_t.REPEATED) {
                        count_completed();
                    }
                } else {
                    to_sender();
                    if (meta.reply == reply_t.REJECT) {
                        reject();
                    }
                }
                finish();
#if LANES > 128
                if (meta.reply == reply_t.UPSTREAM && meta.up_pads == 1 && (hdr.agg.flags & FLAG_PAYLOAD) == 0) {
                    pad();
                }
#endif
                if (hdr.packet_out.isValid()) {
                    to_controller();
                }
            }
            if (meta.reason != reason_t.NONE) {
                count();
                if ((meta.traffic & OF_MEMBERS) != 0 && meta.reason != reason_t.CONTRIBUTED
                        && (bit<32>)meta.group < COUNTED_GROUPS) {
                    count_for_member();
                }
            }
        }
    }
}

#undef REPLY_PAD

#endif
