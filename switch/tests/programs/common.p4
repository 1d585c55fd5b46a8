// What every test program needs; each says what its headers, parser and controls are.

#include <core.p4>
#include <v1model.p4>

struct metadata_t {}

#define NO_CHECKSUMS \
    control Verify(inout headers_t h, inout metadata_t m) { apply {} } \
    control Update(inout headers_t h, inout metadata_t m) { apply {} }

#define NO_EGRESS \
    control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) { apply {} }

#define MAIN V1Switch(SwitchParser(), Verify(), SwitchIngress(), SwitchEgress(), Update(), SwitchDeparser()) main;
