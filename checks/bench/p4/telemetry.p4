// In-band telemetry: each packet gets a header that says through which ports it went, how full the queue was, and how
// many packets have come before it.

#include "common.p4"

header hop_t {
    bit<32> switch_id;
    bit<7> spare;
    port_t entered;
    bit<7> more_spare;
    port_t left;
    bit<13> last_spare;
    bit<19> queue_depth;
    bit<32> packets;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    hop_t hop;
}

struct metadata_t {}

PARSER
VERIFY

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action drop() { mark_to_drop(standard); }
    action forward(port_t port) { standard.egress_spec = port; }

    table stations {
        key = { h.ethernet.destination: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }

    apply { stations.apply(); }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    register<bit<32>>(512) packets;

    action mark(bit<32> switch_id) {
        bit<32> before;
        packets.read(before, (bit<32>) standard.egress_port);
        packets.write((bit<32>) standard.egress_port, before + 1);
        h.hop.setValid();
        h.hop.switch_id = switch_id;
        h.hop.entered = standard.ingress_port;
        h.hop.left = standard.egress_port;
        h.hop.queue_depth = standard.enq_qdepth;
        h.hop.packets = before;
        h.ipv4.length = h.ipv4.length + 16;
        h.udp.length = h.udp.length + 16;
        h.udp.checksum = 0;
    }

    table watched {
        key = { h.udp.destination: ternary; }
        actions = { mark; NoAction; }
        default_action = NoAction();
        size = 64;
    }

    apply {
        if (h.udp.isValid()) {
            watched.apply();
        }
    }
}

UPDATE

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.ethernet);
        packet.emit(h.ipv4);
        packet.emit(h.udp);
        packet.emit(h.hop);
    }
}

MAIN
