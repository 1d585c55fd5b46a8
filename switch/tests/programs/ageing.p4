// Idle timeouts: a table whose entries tell the control plane when no packet has hit them for a while.

#include "common.p4"

header frame_t {
    bit<8> station;
    bit<8> rule;
}

struct headers_t {
    frame_t frame;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.frame);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action forward(bit<9> port) {
        standard.egress_spec = port;
    }

    table stations {
        key = { h.frame.station: exact; }
        actions = { forward; NoAction; }
        support_timeout = true;
        default_action = NoAction();
    }

    table rules {
        key = { h.frame.rule: ternary; }
        actions = { forward; NoAction; }
        support_timeout = true;
        default_action = NoAction();
    }

    apply {
        standard.egress_spec = 1;
        if (!stations.apply().hit) {
            rules.apply();
        }
    }
}

NO_EGRESS

NO_CHECKSUMS

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h);
    }
}

MAIN
