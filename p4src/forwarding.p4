// Everything that is not aggregation: the switch's own ARP and ping, and ordinary Ethernet forwarding.

#ifndef FORWARDING_P4
#define FORWARDING_P4

#include "headers.p4"

// Answers ARP requests and pings for the switch's own address.
control OwnAddress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action return_to_sender() {
        h.ethernet.destination = h.ethernet.source;
        h.ethernet.source = m.own_mac;
        standard.egress_spec = standard.ingress_port;
    }

    action answer_arp() {
        h.arp.operation = ARP_REPLY;
        h.arp.target_mac = h.arp.sender_mac;
        h.arp.target_ip = h.arp.sender_ip;
        h.arp.sender_mac = m.own_mac;
        h.arp.sender_ip = m.own_ip;
        return_to_sender();
    }

    // Type 8 becomes 0, so the checksum grows by 0x0800, with end-around carry (RFC 1624).
    action answer_ping() {
        h.icmp.type_code = ICMP_ECHO_REPLY;
        h.icmp.checksum = h.icmp.checksum + (h.icmp.checksum < 0xF800 ? ICMP_ECHO_REQUEST : ICMP_ECHO_REQUEST + 1);
        h.ipv4.destination = h.ipv4.source;
        h.ipv4.source = m.own_ip;
        h.ipv4.ttl = 64;
        m.answered = 1;
        return_to_sender();
    }

    apply {
        if (h.arp.isValid()) {
            answer_arp();
        } else {
            answer_ping();
        }
    }
}

// Forwards by destination address, as the controller's entries say; what has no entry is flooded or dropped.
control Forwarding(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action forward(port_t port) {
        standard.egress_spec = port;
    }

    // The group holds the ports of a spanning tree, so that nothing circles.
    action flood(bit<16> group) {
        standard.mcast_grp = group;
        m.flooded = 1;
    }

    action unknown() {
        m.reason = REASON_UNKNOWN_DESTINATION;
    }

    table stations {
        key = { h.ethernet.destination: exact @name("mac"); }
        actions = { forward; flood; unknown; }
        default_action = unknown();
        size = 1024;
    }

    apply {
        // A receiver takes tags and tunnels off before it looks who sent what they carry.
        if (h.ethernet.source == m.own_mac || h.ipv4.isValid() && h.ipv4.source == m.own_ip
                || h.arp.isValid() && h.arp.sender_ip == m.own_ip) {
            if (h.vlan_tag.isValid()) {
                m.reason = REASON_SPOOFED_INSIDE;
            } else {
                m.reason = REASON_SPOOFED;
            }
        } else if (h.inner_ipv4.isValid() && h.inner_ipv4.source == m.own_ip
                || h.inner_ethernet.isValid() && h.inner_ethernet.source == m.own_mac) {
            m.reason = REASON_SPOOFED_INSIDE;
        } else {
            stations.apply();
        }
    }
}

#endif
