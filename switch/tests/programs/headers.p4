// Headers that come, go and are copied; the packet's length as egress sees it.

#include "common.p4"

header byte_t {
    bit<8> value;
}

header wide_t {
    bit<8> tag;
    bit<256> body;
}

header length_t {
    bit<32> ingress;
    bit<32> egress;
}

struct headers_t {
    length_t length;
    byte_t command;
    byte_t one;
    byte_t two;
    wide_t first;
    wide_t second;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.command);
        packet.extract(h.one);
        packet.extract(h.first);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        h.length.setValid();
        h.length.ingress = standard.packet_length;
        if (h.command.value == 1) {
            h.two.setValid();               // all zero
            h.second.setValid();
        } else if (h.command.value == 2) {
            h.two = h.one;
            h.second = h.first;
            h.second.tag = 9;
            h.first.body = 1;
        } else if (h.command.value == 3) {
            h.one.setInvalid();
            h.two = h.one;                  // a copy of what is not valid
            h.first.setInvalid();
        } else if (h.command.value == 4) {
            h.first.setInvalid();
            h.first.setValid();
            h.one.setValid();               // is valid already and keeps its value
        } else if (h.command.value == 5) {
            h.two.setValid();
            h.two.value = 7;
            h.one = h.two;
            h.second.setValid();
            h.second.body = h.first.body;
            h.first.body = ~h.first.body;
        }
        standard.egress_spec = 1;
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        h.length.egress = standard.packet_length;
        if (h.command.value == 6) {
            h.first.body = h.first.body + 1;
            h.second.setValid();
            h.second.body = h.first.body;
        }
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.length);
        packet.emit(h.command);
        packet.emit(h.one);
        packet.emit(h.two);
        packet.emit(h.first);
        packet.emit(h.second);
    }
}

NO_CHECKSUMS
MAIN
