// What a packet hears of its queue and of the time: it says by which queue it wants to go, and leaves with the rest.

#include "common.p4"

header report_t {
    bit<8> priority;
    bit<24> enq_qdepth;
    bit<24> deq_qdepth;
    bit<32> enq_timestamp;
    bit<32> deq_timedelta;
    bit<48> ingress_timestamp;
    bit<48> egress_timestamp;
}

struct headers_t {
    report_t report;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.report);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 3;
        standard.priority = (bit<3>)h.report.priority;
        if (h.report.priority == 0xFF) {
            mark_to_drop(standard);
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        h.report.enq_qdepth = (bit<24>)standard.enq_qdepth;
        h.report.deq_qdepth = (bit<24>)standard.deq_qdepth;
        h.report.enq_timestamp = standard.enq_timestamp;
        h.report.deq_timedelta = standard.deq_timedelta;
        h.report.ingress_timestamp = standard.ingress_global_timestamp;
        h.report.egress_timestamp = standard.egress_global_timestamp;
        if (h.report.ingress_timestamp == 99) {
            mark_to_drop(standard);
        }
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.report);
    }
}

NO_CHECKSUMS
MAIN
