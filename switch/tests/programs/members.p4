// Whole members of a header stack at indices that are known only at run time.

#include "common.p4"

header command_t {
    bit<8> from;
    bit<8> to;
    bit<8> operation;
}

header item_t {
    bit<8> name;
    bit<16> value;
}

struct headers_t {
    command_t command;
    item_t[4] items;
    item_t single;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.command);
        packet.extract(h.items.next);
        packet.extract(h.items.next);
        packet.extract(h.items.next);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (h.command.operation == 0) {
            h.items[h.command.to] = h.items[h.command.from];
        } else if (h.command.operation == 1) {
            h.single = h.items[h.command.from];
        } else if (h.command.operation == 2) {
            h.single.setValid();
            h.single.name = 0xEE;
            h.items[h.command.to] = h.single;
            h.single.setInvalid();
        } else if (h.command.operation == 3) {
            h.items[h.command.to].setInvalid();
        }
    }
}

NO_EGRESS
NO_CHECKSUMS

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.command);
        packet.emit(h.items);
        packet.emit(h.single);
    }
}

MAIN
