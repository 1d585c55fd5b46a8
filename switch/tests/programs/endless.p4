// Loops in the parser and in an action, of which some never end: the first byte and the second say how often they run.

#include "common.p4"

header loops_t {
    bit<8> kind;
    bit<8> count;
    bit<8> step;
    bit<8> rounds;
    bit<8> timeout;
}

struct headers_t {
    loops_t loops;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.loops);
        transition select(h.loops.kind) {
            1: spin;
            2: down;
            3: skip;
            default: accept;
        }
    }
    state spin {
        transition select(h.loops.kind) {
            1: spin;
            default: accept;
        }
    }
    state down {
        h.loops.count = h.loops.count - 1;
        h.loops.rounds = h.loops.rounds + 1;
        transition select(h.loops.count) {
            0: accept;
            default: down;
        }
    }
    state skip {
        packet.advance((bit<32>)h.loops.step << 3);
        transition skip;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action sum() {
        for (bit<8> i = 0; i < h.loops.count; i = i + h.loops.step) {
            h.loops.rounds = h.loops.rounds + 1;
        }
    }

    apply {
        h.loops.timeout = (bit<8>)(bit<1>)(standard.parser_error == error.ParserTimeout);
        standard.egress_spec = 1;
        if (h.loops.kind == 4) {
            sum();
        }
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.loops);
    }
}

NO_CHECKSUMS
NO_EGRESS
MAIN
