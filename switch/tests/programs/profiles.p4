// Tables whose actions are members of an action profile, or of groups between which a selector chooses.

#include "common.p4"

header flow_t {
    bit<8> key;
    bit<16> entropy;
    bit<8> chosen;
    bit<8> hit;
}

struct headers_t {
    flow_t flow;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.flow);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action choose(bit<8> which, bit<9> port) {
        h.flow.chosen = which;
        standard.egress_spec = port;
    }

    action refuse() {
        mark_to_drop(standard);
    }

    action_profile(4) own;
    action_selector(HashAlgorithm.identity, 8, 16) spread;

    direct_counter(CounterType.packets_and_bytes) seen;

    table plain {
        key = { h.flow.key: exact; }
        actions = { choose; refuse; }
        implementation = own;
        size = 8;
    }

    table spreading {
        key = {
            h.flow.key: ternary;
            h.flow.entropy: selector;
        }
        actions = { choose; refuse; }
        implementation = spread;
        counters = seen;
        size = 8;
    }

    table spreading_too {
        key = {
            h.flow.key: exact;
            h.flow.entropy: selector;
        }
        actions = { choose; refuse; }
        implementation = spread;
        size = 8;
    }

    apply {
        if (h.flow.key < 100) {
            if (plain.apply().hit) {
                h.flow.hit = 1;
            }
        } else if (h.flow.key < 200) {
            if (spreading.apply().hit) {
                h.flow.hit = 2;
            }
        } else {
            spreading_too.apply();
        }
    }
}

NO_EGRESS
NO_CHECKSUMS

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.flow);
    }
}

MAIN
