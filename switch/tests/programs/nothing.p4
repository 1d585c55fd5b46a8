// Fields, metadata, keys and parameters of no bits: they are 0, and take no room on the wire.

#include "common.p4"

header mixed_t {
    bit<8> first;
    bit<0> nothing;
    bit<8> second;
    bit<0> neither;
    bit<16> digest;
}

struct headers_t {
    mixed_t[2] mixed;
}

struct user_metadata_t {
    bit<0> nothing;
    bit<8> something;
}

parser SwitchParser(packet_in packet, out headers_t h, inout user_metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.mixed.next);
        m.nothing = h.mixed.last.nothing;
        transition select(h.mixed.last.first) {
            1: again;
            default: accept;
        }
    }
    state again {
        packet.extract(h.mixed.next);
        transition accept;
    }
}

control Verify(inout headers_t h, inout user_metadata_t m) { apply {} }
control Update(inout headers_t h, inout user_metadata_t m) { apply {} }

control SwitchIngress(inout headers_t h, inout user_metadata_t m, inout standard_metadata_t standard) {
    action forward(bit<0> nothing, bit<9> port) {
        standard.egress_spec = port;
        h.mixed[0].nothing = nothing;
    }

    table ports {
        key = { h.mixed[0].neither: exact; h.mixed[0].first: exact; }
        actions = { forward; NoAction; }
        default_action = NoAction();
    }

    apply {
        standard.egress_spec = 1;
        m.something = (bit<8>)m.nothing;
        if (h.mixed[0].nothing == 0) {
            h.mixed[0].second = h.mixed[0].second + 1 + m.something;
        }
        h.mixed[h.mixed[0].first].neither = m.nothing;
        hash(h.mixed[0].digest, HashAlgorithm.crc16, 16w0, { h.mixed[0].nothing, h.mixed[0].first }, 32w65536);
        if (h.mixed[1].isValid()) {
            h.mixed[1] = h.mixed[0];
        }
        ports.apply();
    }
}

control SwitchEgress(inout headers_t h, inout user_metadata_t m, inout standard_metadata_t standard) { apply {} }

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.mixed);
    }
}

MAIN
