// SPDX-License-Identifier: Apache-2.0
//
// Exercise 2: one slot. The headers and the parser are given; complete what says TODO.

#include <core.p4>
#include <v1model.p4>

const bit<32> WORKERS = 3;
const bit<16> GROUP = 1;    // multicast: the ports of all ranks
const bit<16> ETHERTYPE = 0x88B5;
const bit<8> CONTRIBUTION = 1;
const bit<8> RESULT = 2;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

header aggregation_t {
    bit<8> kind;
    bit<8> rank;
    bit<16> slot;
    bit<32> number;
    bit<32> lane0;
    bit<32> lane1;
    bit<32> lane2;
    bit<32> lane3;
}

struct headers_t {
    ethernet_t ethernet;
    aggregation_t agg;
}

struct metadata_t {
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE: aggregation;
            default: accept;
        }
    }

    state aggregation {
        packet.extract(hdr.agg);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(4) sums;     // one for each lane
    register<bit<32>>(1) count;    // contributions that have come

    apply {
        mark_to_drop(standard_metadata);
        if (hdr.agg.isValid() && hdr.agg.kind == CONTRIBUTION) {
            // TODO: count the contribution; add each of its lanes to the sum.
            // TODO: the last one becomes the RESULT, with the sums in its lanes, goes to GROUP, and empties the slot.
        }
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply { }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.agg);
    }
}

V1Switch(Parse(), Verify(), SwitchIngress(), SwitchEgress(), Compute(), Deparse()) main;
