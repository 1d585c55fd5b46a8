// A router: longest prefix match, new MAC addresses, time to live, checksum; packets of a wrong checksum are dropped.

#include "common.p4"

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
}

struct metadata_t {
    bit<16> next_hop;
}

PARSER
VERIFY

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action drop() { mark_to_drop(standard); }
    action via(bit<16> next_hop) { m.next_hop = next_hop; }
    action leave(port_t port, mac_t source, mac_t destination) {
        standard.egress_spec = port;
        h.ethernet.source = source;
        h.ethernet.destination = destination;
        h.ipv4.ttl = h.ipv4.ttl - 1;
    }

    table routes {
        key = { h.ipv4.destination: lpm; }
        actions = { via; drop; }
        default_action = drop();
        size = 131072;
    }
    table next_hops {
        key = { m.next_hop: exact; }
        actions = { leave; drop; }
        default_action = drop();
        size = 256;
    }

    apply {
        if (h.ipv4.isValid() && standard.checksum_error == 0 && h.ipv4.ttl > 1) {
            if (routes.apply().hit) {
                next_hops.apply();
            }
        } else {
            drop();
        }
    }
}

NO_EGRESS
UPDATE
DEPARSER
MAIN
