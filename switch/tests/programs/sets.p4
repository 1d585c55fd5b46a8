// Parser value sets: what follows the first header is known by a set of numbers that the control plane writes.

#include "common.p4"

header kind_t {
    bit<16> kind;
    bit<4> major;
    bit<12> minor;
}

header tag_t {
    bit<8> value;
}

header pair_t {
    bit<8> first;
    bit<8> second;
}

struct headers_t {
    kind_t kind;
    tag_t tag;
    pair_t pair;
}

struct version_t {
    bit<4> major;
    @match(ternary)
    bit<12> minor;
}

struct place_t {
    @match(lpm)
    bit<8> net;
    @match(range)
    bit<6> port;
    @match(optional)
    bit<2> side;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    value_set<bit<16>>(3) tagged;
    value_set<version_t>(2) paired;
    value_set<place_t>(6) placed;

    state start {
        packet.extract(h.kind);
        transition select(h.kind.kind) {
            0x0001: pair;
            tagged: tag;
            default: version;
        }
    }
    state version {
        transition select(h.kind.major, h.kind.minor) {
            paired: pair;
            default: place;
        }
    }
    state place {
        transition select(h.kind.kind[7:0], h.kind.minor[7:2], h.kind.minor[1:0]) {
            placed: tag;
            default: accept;
        }
    }
    state tag {
        packet.extract(h.tag);
        transition select(packet.lookahead<bit<16>>()) {
            tagged: pair;
            default: accept;
        }
    }
    state pair {
        packet.extract(h.pair);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (h.tag.isValid()) {
            standard.egress_spec = standard.egress_spec + 1;
        }
        if (h.pair.isValid()) {
            standard.egress_spec = standard.egress_spec + 2;
        }
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h);
    }
}

NO_CHECKSUMS
NO_EGRESS
MAIN
