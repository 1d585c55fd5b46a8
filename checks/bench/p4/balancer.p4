// A load balancer: a hash over addresses, protocol and ports chooses one of a virtual address's servers.

#include "common.p4"

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
}

struct metadata_t {}

PARSER
VERIFY

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action_selector(HashAlgorithm.crc16, 1024, 16) servers;

    action drop() { mark_to_drop(standard); }
    action serve(port_t port, ip_t address, mac_t mac) {
        standard.egress_spec = port;
        h.ipv4.destination = address;
        h.ethernet.destination = mac;
        h.udp.checksum = 0;
    }

    table addresses {
        key = {
            h.ipv4.destination: exact;
            h.ipv4.source: selector;
            h.ipv4.protocol: selector;
            h.udp.source: selector;
            h.udp.destination: selector;
        }
        actions = { serve; drop; }
        implementation = servers;
        size = 256;
    }

    apply {
        if (h.udp.isValid()) {
            addresses.apply();
        } else {
            drop();
        }
    }
}

NO_EGRESS
UPDATE
DEPARSER
MAIN
