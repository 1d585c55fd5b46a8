// Registers of types with names, and a key of the type error.

#include "common.p4"

@p4runtime_translation("own/port", 32)
type bit<9> port_t;

type bit<20> label_t;

enum bit<4> kind_t {
    PLAIN = 1,
    TAGGED = 2
}

enum colour_t {
    RED,
    GREEN
}

header short_t {
    bit<8> index;
}

struct headers_t {
    short_t first;
    short_t second;
}

struct user_metadata_t {
    error parsed;
}

parser SwitchParser(packet_in packet, out headers_t h, inout user_metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.first);
        packet.extract(h.second);
        transition accept;
    }
}

control Verify(inout headers_t h, inout user_metadata_t m) { apply {} }
control Update(inout headers_t h, inout user_metadata_t m) { apply {} }

control SwitchIngress(inout headers_t h, inout user_metadata_t m, inout standard_metadata_t standard) {
    register<kind_t>(4) kinds;
    register<colour_t>(4) colours;
    register<label_t>(4) labels;
    register<port_t>(4) ports;

    action forward(bit<9> port) {
        standard.egress_spec = port;
    }

    table errors {
        key = { m.parsed: exact; }
        actions = { forward; }
    }

    apply {
        standard.egress_spec = 1;
        m.parsed = standard.parser_error;
        errors.apply();
        if (h.first.index < 4) {
            kinds.write((bit<32>)h.first.index, kind_t.TAGGED);
            colours.write((bit<32>)h.first.index, colour_t.GREEN);
            labels.write((bit<32>)h.first.index, (label_t)77);
            ports.write((bit<32>)h.first.index, (port_t)300);
        }
    }
}

control SwitchEgress(inout headers_t h, inout user_metadata_t m, inout standard_metadata_t standard) { apply {} }

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h);
    }
}

MAIN
