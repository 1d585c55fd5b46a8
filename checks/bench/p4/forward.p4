// Forwarding alone: frames of port 1 leave by port 2, and the other way round; 3 and 4 are the second pair.  What a
// switch with this program does on interfaces is what the kernel allows.

#include "common.p4"

struct headers_t {}
struct metadata_t {}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start { transition accept; }
}

control Verify(inout headers_t h, inout metadata_t m) { apply {} }

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply { standard.egress_spec = ((standard.ingress_port - 1) ^ 1) + 1; }
}

NO_EGRESS

control Update(inout headers_t h, inout metadata_t m) { apply {} }

control SwitchDeparser(packet_out packet, in headers_t h) { apply {} }

MAIN
