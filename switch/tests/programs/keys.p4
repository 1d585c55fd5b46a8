// Keys of a header that is not valid any more: they are 0, whatever its fields were.

#include "common.p4"

header kind_t {
    bit<8> kind;
    bit<8> exact_found;
    bit<8> wide_found;
}

header gone_t {
    bit<16> narrow;
    bit<128> wide;
}

struct headers_t {
    kind_t kind;
    gone_t gone;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.kind);
        packet.extract(h.gone);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action exact_found(bit<8> entry) { h.kind.exact_found = entry; }
    action wide_found(bit<8> entry) { h.kind.wide_found = entry; }

    table exact_table {
        key = { h.gone.narrow: exact; }
        actions = { exact_found; }
        default_action = exact_found(0xEE);
        const entries = {
            0: exact_found(1);
            7: exact_found(2);
        }
    }
    table wide_table {
        key = {
            h.gone.wide: lpm;
            h.kind.kind: exact;
        }
        actions = { wide_found; }
        default_action = wide_found(0xEE);
    }

    apply {
        standard.egress_spec = 1;
        if (h.kind.kind == 1) {
            h.gone.setInvalid();
        }
        exact_table.apply();
        wide_table.apply();
    }
}

NO_EGRESS
NO_CHECKSUMS

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.kind);
        packet.emit(h.gone);
    }
}

MAIN
