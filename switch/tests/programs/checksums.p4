// Checksums verified and updated: over wide fields, fields that are no whole bytes, headers that may be missing, payload.

#include "common.p4"

header flags_t {
    bit<8> present;
    bit<16> checksum;
    bit<16> result;
    bit<16> odd;
    bit<16> payload;
    bit<8> wrong;
}

header first_t {
    bit<4> a;
    bit<12> b;
    bit<8> c;
}

header wide_t {
    bit<1024> body;
    bit<1024> more;
    bit<16> word;
}

header last_t {
    bit<8> a;
    bit<3> b;
    bit<5> c;
}

struct headers_t {
    flags_t flags;
    first_t first;
    wide_t wide;
    last_t last;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.flags);
        transition select(h.flags.present) {
            8w1 &&& 1: parse_first;
            default: parse_wide_perhaps;
        }
    }
    state parse_first {
        packet.extract(h.first);
        transition parse_wide_perhaps;
    }
    state parse_wide_perhaps {
        transition select(h.flags.present) {
            8w2 &&& 2: parse_wide;
            default: parse_last_perhaps;
        }
    }
    state parse_wide {
        packet.extract(h.wide);
        transition parse_last_perhaps;
    }
    state parse_last_perhaps {
        transition select(h.flags.present) {
            8w4 &&& 4: parse_last;
            default: accept;
        }
    }
    state parse_last {
        packet.extract(h.last);
        transition accept;
    }
}

#define EVERYTHING { h.first.a, h.first.b, h.first.c, 5w3, h.wide.body, h.wide.more, h.wide.word, h.last.a, h.last.b, \
    h.last.c, 16w0xABCD }

control Verify(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(true, EVERYTHING, h.flags.checksum, HashAlgorithm.csum16);
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        h.flags.wrong = (bit<8>)standard.checksum_error;
        standard.egress_spec = 1;
    }
}

control Update(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(true, EVERYTHING, h.flags.result, HashAlgorithm.csum16);
        update_checksum(h.first.isValid(), { h.first.c, h.last.a, h.flags.present }, h.flags.odd, HashAlgorithm.csum16);
        update_checksum_with_payload(true, { h.first.c, h.last.a }, h.flags.payload, HashAlgorithm.csum16);
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.flags);
        packet.emit(h.first);
        packet.emit(h.wide);
        packet.emit(h.last);
    }
}

NO_EGRESS
MAIN
