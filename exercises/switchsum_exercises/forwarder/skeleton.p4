// SPDX-License-Identifier: Apache-2.0
//
// Exercise 1: a switch that only forwards. The headers and the parser are given; complete what says TODO.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

struct headers_t {
    ethernet_t ethernet;
}

struct metadata_t {
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action forward(bit<9> port) {
        // TODO: the frame leaves through this port.
    }

    // A multicast group is a set of ports that each get a copy.
    action flood(bit<16> group) {
        // TODO: the frame leaves through the ports of this group.
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    table stations {
        key = { hdr.ethernet.destination: exact; }
        actions = { forward; flood; drop; }
        default_action = drop();
        size = 64;
    }

    apply {
        mark_to_drop(standard_metadata);    // TODO: in place of this line, apply the table
    }
}

// Runs once for each copy that leaves.
control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        // TODO: drop the copy that would go back to where the frame came from.
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
    }
}

V1Switch(Parse(), Verify(), SwitchIngress(), SwitchEgress(), Compute(), Deparse()) main;
