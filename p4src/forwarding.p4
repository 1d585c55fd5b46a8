// SPDX-License-Identifier: Apache-2.0
//
// Everything that is not aggregation: the switch's own ARP and ping, and ordinary Ethernet forwarding.

#ifndef FORWARDING_P4
#define FORWARDING_P4

#include "headers.p4"

// Answers ARP requests and pings for the switch's own address.
control OwnAddress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action return_to_sender() {
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = meta.own_mac;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }

    action answer_arp() {
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = meta.own_mac;
        hdr.arp.sender_ip = meta.own_ip;
        return_to_sender();
    }

    // Type 8 becomes 0, so the checksum grows by 0x0800, with end-around carry (RFC 1624).
    action answer_ping() {
        hdr.icmp.type_code = ICMP_ECHO_REPLY;
        hdr.icmp.checksum = hdr.icmp.checksum + (hdr.icmp.checksum < 0xF800 ? ICMP_ECHO_REQUEST : ICMP_ECHO_REQUEST + 1);
        hdr.ipv4.destination = hdr.ipv4.source;
        hdr.ipv4.source = meta.own_ip;
        hdr.ipv4.ttl = INITIAL_TTL;
        meta.is_ipv4_changed = true;
        return_to_sender();
    }

    apply {
        if (hdr.arp.isValid()) {
            answer_arp();
        } else {
            answer_ping();
        }
    }
}

// Forwards by destination address, as the controller's entries say; what has no entry is flooded or dropped.
control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action forward(port_t port) {
        standard_metadata.egress_spec = port;
    }

    // The group holds the ports of a spanning tree, so that nothing circles.
    action flood(bit<16> group) {
        standard_metadata.mcast_grp = group;
        meta.is_flooded = true;
    }

    action unknown() {
        meta.reason = reason_t.UNKNOWN_DESTINATION;
    }

    table stations {
        key = { hdr.ethernet.destination: exact @name("mac"); }
        actions = { forward; flood; unknown; }
        default_action = unknown();
        size = STATION_ENTRIES;
    }

    apply {
        // A receiver takes tags and tunnels off before it looks who sent what they carry.
        if (hdr.ethernet.source == meta.own_mac || (hdr.ipv4.isValid() && hdr.ipv4.source == meta.own_ip)
                || (hdr.arp.isValid() && hdr.arp.sender_ip == meta.own_ip)) {
            if (hdr.vlan_tag.isValid()) {
                meta.reason = reason_t.SPOOFED_INSIDE;
            } else {
                meta.reason = reason_t.SPOOFED;
            }
        } else if ((hdr.inner_ipv4.isValid() && hdr.inner_ipv4.source == meta.own_ip)
                || (hdr.inner_ethernet.isValid() && hdr.inner_ethernet.source == meta.own_mac)) {
            meta.reason = reason_t.SPOOFED_INSIDE;
        } else {
            stations.apply();
        }
    }
}

#endif
