// Digests: of fields as they are when ingress ends, the last call of several, and of values that are wide or no fields.

#include "common.p4"

header frame_t {
    bit<8> operation;
    bit<48> source;
    bit<13> odd;
    bit<3> rest;
    bit<160> wide;
}

struct headers_t {
    frame_t frame;
}

struct learn_t {
    bit<48> source;
    bit<9> port;
}

struct odd_t {
    bit<13> odd;
    bit<160> wide;
    bool flag;
    bit<16> number;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.frame);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (h.frame.operation == 1) {
            digest<learn_t>(1, { h.frame.source, standard.ingress_port });
        } else if (h.frame.operation == 2) {
            digest<odd_t>(1, { h.frame.odd, h.frame.wide, h.frame.rest == 5, 77 });
        } else if (h.frame.operation == 3) {
            digest<learn_t>(1, { h.frame.source, standard.ingress_port });
            digest<odd_t>(1, { h.frame.odd, h.frame.wide, false, 78 });
        } else if (h.frame.operation == 4) {
            digest<learn_t>(1, { h.frame.source, standard.ingress_port });
            exit;
        } else if (h.frame.operation == 5) {
            digest<learn_t>(1, { h.frame.source, standard.ingress_port });
            mark_to_drop(standard);
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
