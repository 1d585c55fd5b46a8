// Fields of variable length that begin within a byte: extracted, changed around, copied, hashed, compared, sent.

#include "common.p4"

header command_t {
    bit<8> operation;
    bit<8> bits;
    bit<32> result;
}

header odd_t {
    bit<3> kind;
    varbit<96> data;
    bit<5> behind;
}

header deep_t {
    bit<13> kind;
    varbit<520> data;
    bit<3> next;
    bit<128> wide;
}

struct headers_t {
    command_t command;
    odd_t odd;
    odd_t other;
    deep_t deep;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.command);
        packet.extract(h.odd, (bit<32>)h.command.bits);
        transition select(h.odd.behind) {
            1: parse_deep;
            default: accept;
        }
    }
    state parse_deep {
        packet.extract(h.deep, (bit<32>)packet.lookahead<bit<13>>());
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error != error.NoError) {
            h.command.result = 0xEE;
        } else if (h.command.operation == 1) {
            h.other = h.odd;
            h.other.kind = 5;
        } else if (h.command.operation == 2) {
            h.odd.kind = h.odd.kind + 1;
            h.odd.behind = ~h.odd.behind;
        } else if (h.command.operation == 3) {
            hash(h.command.result, HashAlgorithm.crc32, (bit<32>)0,
                { h.odd.kind, h.odd.data, h.odd.behind }, 64w0x1_0000_0000);
        } else if (h.command.operation == 4) {
            h.deep.setInvalid();
        } else if (h.command.operation == 5) {
            h.other = h.odd;
            if (h.odd == h.other) {
                h.command.result = 1;
            }
            h.other.behind = 0;
            if (h.odd == h.other) {
                h.command.result = 2;
            }
        } else if (h.command.operation == 6) {
            h.odd.setInvalid();
            h.odd.setValid();
            h.odd.behind = 9;
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        if (h.command.operation == 7) {
            h.deep.next = 7;
            h.deep.wide = h.deep.wide + 1;
        }
    }
}

NO_CHECKSUMS

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h);
    }
}

MAIN
