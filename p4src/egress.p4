// SPDX-License-Identifier: Apache-2.0
//
// The far side of the multicast: each replica of a result gets its receiver's address, and loses lanes that its receiver
// does not want. Frames that find a long queue are marked here.

#ifndef EGRESS_P4
#define EGRESS_P4

#include "headers.p4"
#include "loss.p4"

// What `bitmap` says in frames with FLAG_SELECT: whether all workers but one get the lanes, or that one alone; how many
// workers there are, for switches that are members have greater ranks, and need the lanes for those below; its rank.
#define EGRESS_ALL_BUT 31:31
#define EGRESS_WORKERS 30:16
#define EGRESS_RANK 15:0

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(REASONS, CounterType.packets_and_bytes) events;    // by reason
    direct_counter(CounterType.packets_and_bytes) results;     // what each member was sent
    Loss(reason_t.LOST_EGRESS) egress_loss;

    action address(mac_t mac, ip_t ip, bit<16> port, cookie_t cookie) {
        hdr.ethernet.destination = mac;
        hdr.ipv4.destination = ip;
        hdr.udp.destination = port;
        hdr.agg.rank = standard_metadata.egress_rid;
        hdr.agg.cookie = cookie;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    action leave_lanes_out() {
        hdr.lanes.setInvalid();
        hdr.agg.flags = hdr.agg.flags & ~FLAG_PAYLOAD;
        hdr.udp.length = UDP_EMPTY;
        hdr.ipv4.total_length = IPV4_EMPTY;
    }

    // The checksum is computed anew.
    action mark_congestion() {
        hdr.ipv4.ecn = CONGESTION_EXPERIENCED;
        meta.is_ipv4_changed = true;
    }

    // Where the member with this rank is; several may stand behind one port.
    table result_address {
        key = {
            hdr.agg.job: exact @name("job");
            standard_metadata.egress_rid: exact @name("rank");
        }
        actions = { address; drop; }
        const default_action = drop();
        counters = results;
        size = RESULT_ADDRESS_ENTRIES;
    }

    apply {
        if (meta.is_flooded && standard_metadata.egress_port == standard_metadata.ingress_port) {
            drop();
        } else {
            if (meta.reply == reply_t.MEMBERS) {
                result_address.apply();
            }
            // Members have named the same ranks in all contributions to the round, so that any of these can say so here.
            if (hdr.agg.isValid() && hdr.agg.kind == kind_t.RESULT && (hdr.agg.flags & FLAG_SELECT) != 0
                    && hdr.agg.rank < (bit<16>)hdr.agg.bitmap[EGRESS_WORKERS]
                    && (hdr.agg.rank == hdr.agg.bitmap[EGRESS_RANK]) == (hdr.agg.bitmap[EGRESS_ALL_BUT] == 1)) {
                leave_lanes_out();
            }
            // As RFC 3168 has it. Options are not parsed, so that their checksum could not be computed.
            if (standard_metadata.enq_qdepth >= MARK_FRAMES && hdr.ipv4.isValid() && hdr.ipv4.ecn != 0
                    && hdr.ipv4.version_ihl == IPV4_WITHOUT_OPTIONS) {
                mark_congestion();
            }
            egress_loss.apply(meta, standard_metadata.egress_port);
            if (meta.reason == reason_t.LOST_EGRESS) {
                events.count((bit<32>)(bit<8>)reason_t.LOST_EGRESS);
                drop();
            }
        }
    }
}

#undef EGRESS_ALL_BUT
#undef EGRESS_WORKERS
#undef EGRESS_RANK

#endif
