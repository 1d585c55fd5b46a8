// SPDX-License-Identifier: Apache-2.0
// Plain forwarding by Ethernet address: the switch of a ring, of a parameter server, and of sharded host aggregators.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ethertype; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { }

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) {
    action forward(bit<9> port) { standard_md.egress_spec = port; }
    action drop() { mark_to_drop(standard_md); }

    table stations {
        key = { hdr.ethernet.destination: exact @name("destination"); }
        actions = { forward; drop; }
        const default_action = drop;
        size = 256;
    }

    apply { stations.apply(); }
}

control SwitchVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) { apply { } }
control SwitchCompute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control SwitchDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(SwitchParser(), SwitchVerify(), SwitchIngress(), SwitchEgress(), SwitchCompute(), SwitchDeparser()) main;
