// Selects with masks and several fields, lookahead, advance, verify; the parser's error is shown in front.

#include "common.p4"

error { Unwanted }

header report_t {
    bit<8> code;
    bit<8> seen;
}

header first_t {
    bit<4> kind;
    bit<4> flags;
    bit<8> length;
}

header second_t {
    bit<16> value;
}

header third_t {
    bit<24> value;
}

struct headers_t {
    report_t report;
    first_t first;
    second_t second;
    third_t third;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        transition select(packet.lookahead<bit<8>>()) {
            0xFF: accept;
            default: parse_first;
        }
    }
    state parse_first {
        packet.extract(h.first);
        verify(h.first.length != 0xEE, error.Unwanted);
        transition select(h.first.kind, h.first.flags) {
            (1, 0): parse_second;
            (1, 4w8 &&& 4w8): parse_third;
            (2, _): skip;
            (3 .. 5, _): parse_second;
            default: accept;
        }
    }
    state skip {
        packet.advance((bit<32>)h.first.length << 3);
        transition select(packet.lookahead<second_t>().value) {
            0x0000 &&& 0xFF00: parse_third;
            default: parse_second;
        }
    }
    state parse_second {
        packet.extract(h.second);
        transition accept;
    }
    state parse_third {
        packet.extract(h.third);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        h.report.setValid();
        if (standard.parser_error == error.NoError) {
            h.report.code = 0;
        } else if (standard.parser_error == error.PacketTooShort) {
            h.report.code = 1;
        } else if (standard.parser_error == error.Unwanted) {
            h.report.code = 2;
        } else {
            h.report.code = 3;
        }
        h.report.seen = 5w0 ++ (bit<1>)h.first.isValid() ++ (bit<1>)h.second.isValid() ++ (bit<1>)h.third.isValid();
        standard.egress_spec = 1;
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.report);
        packet.emit(h.first);
        packet.emit(h.second);
        packet.emit(h.third);
    }
}

NO_CHECKSUMS
NO_EGRESS
MAIN
