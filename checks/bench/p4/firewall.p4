// A firewall: a ternary access list over addresses, protocol and ports, with a counter for each rule.

#include "common.p4"

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
}

struct metadata_t {
    bit<16> source_port;
    bit<16> destination_port;
}

PARSER
VERIFY

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) rule_counter;

    action drop() { mark_to_drop(standard); }
    action permit() {}
    action forward(port_t port) { standard.egress_spec = port; }

    table access_list {
        key = {
            h.ipv4.source: ternary;
            h.ipv4.destination: ternary;
            h.ipv4.protocol: ternary;
            m.source_port: ternary;
            m.destination_port: ternary;
        }
        actions = { permit; drop; }
        default_action = permit();
        counters = rule_counter;
        size = 131072;
    }
    table stations {
        key = { h.ethernet.destination: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }

    apply {
        stations.apply();
        if (h.ipv4.isValid()) {
            if (h.udp.isValid()) {
                m.source_port = h.udp.source;
                m.destination_port = h.udp.destination;
            }
            access_list.apply();
        }
    }
}

NO_EGRESS
UPDATE
DEPARSER
MAIN
