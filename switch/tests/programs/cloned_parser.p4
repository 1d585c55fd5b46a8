// A parser that reads metadata: in a clone from ingress it is parsed again, before the clone has its own metadata.

#include <core.p4>
#include <v1model.p4>

header mark_t {
    bit<8> mark;
    bit<8> seen;
}

struct headers_t {
    mark_t mark;
}

struct metadata_t {
    @field_list(1)
    bit<8> kept;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.mark);
        h.mark.seen = h.mark.mark + m.kept;
        transition accept;
    }
}

control Verify(inout headers_t h, inout metadata_t m) {
    apply {}
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (h.mark.mark > 7) {
            m.kept = h.mark.mark;
            clone_preserving_field_list(CloneType.I2E, 1, 1);
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        h.mark.mark = m.kept;
    }
}

control Update(inout headers_t h, inout metadata_t m) {
    apply {}
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.mark);
    }
}

V1Switch(SwitchParser(), Verify(), SwitchIngress(), SwitchEgress(), Update(), SwitchDeparser()) main;
