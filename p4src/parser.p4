// SPDX-License-Identifier: Apache-2.0
//
// Parser and deparser.

#ifndef PARSER_P4
#define PARSER_P4

#include "headers.p4"

error {
    WrongLengths,    // of an aggregation packet: its headers say something else than its flags
    Opaque           // tags or a tunnel that the parser does not follow to what they carry
}

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
        inout standard_metadata_t standard_metadata) {
    state start {
        meta.reason = reason_t.NONE;
        meta.reply = reply_t.NONE;
        meta.is_flooded = false;
        meta.is_ipv4_changed = false;
        meta.zero = 0;
        meta.traffic = TRAFFIC_ORDINARY;
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_TAG: parse_tag;
            ETHERTYPE_SERVICE_TAG: parse_tag;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    // What has tags is ordinary traffic, which is followed only as far as it may claim to be the switch's.
    state parse_tag {
        packet.extract(hdr.vlan_tag);
        transition select(hdr.vlan_tag.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_TAG: parse_second_tag;
            ETHERTYPE_SERVICE_TAG: parse_second_tag;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_second_tag {
        packet.extract(hdr.second_vlan_tag);
        transition select(hdr.second_vlan_tag.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_TAG: refuse_opaque;
            ETHERTYPE_SERVICE_TAG: refuse_opaque;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state refuse_opaque {
        verify(false, error.Opaque);
        transition accept;
    }

    state parse_arp {
        packet.extract(hdr.arp);
        transition accept;
    }

    // Tags, options and fragments are ordinary traffic: the switch reads no further than to who the sender claims to be,
    // which of a tunnel is the sender of what it carries.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ethernet.ethertype, hdr.ipv4.version_ihl, hdr.ipv4.flags, hdr.ipv4.fragment_offset,
                hdr.ipv4.protocol) {
            (ETHERTYPE_IPV4, IPV4_WITHOUT_OPTIONS, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_UDP): parse_udp;
            (ETHERTYPE_IPV4, IPV4_WITHOUT_OPTIONS, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_ICMP): parse_icmp;
            (_, IPV4_WITHOUT_OPTIONS, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_IPV4): parse_inner_ipv4;
            (_, IPV4_WITHOUT_OPTIONS, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_IPV6): parse_ipv6;
            (_, IPV4_WITHOUT_OPTIONS, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_GRE): parse_gre;
            (_, _, _, _, PROTOCOL_IPV4): refuse_opaque;
            (_, _, _, _, PROTOCOL_IPV6): refuse_opaque;
            (_, _, _, _, PROTOCOL_GRE): refuse_opaque;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_IPV4: parse_inner_ipv4;
            PROTOCOL_GRE: parse_gre;
            default: accept;
        }
    }

    state parse_gre {
        packet.extract(hdr.gre);
        transition select(hdr.gre.has_checksum, hdr.gre.has_key, hdr.gre.has_sequence) {
            (0, 0, 0): parse_gre_payload;
            (1, 0, 0): parse_gre_option_3;
            (0, 1, 0): parse_gre_option_3;
            (0, 0, 1): parse_gre_option_3;
            (1, 1, 1): parse_gre_option_1;
            default: parse_gre_option_2;
        }
    }

    state parse_gre_option_1 {
        packet.extract(hdr.gre_option_1);
        transition parse_gre_option_2;
    }

    state parse_gre_option_2 {
        packet.extract(hdr.gre_option_2);
        transition parse_gre_option_3;
    }

    state parse_gre_option_3 {
        packet.extract(hdr.gre_option_3);
        transition parse_gre_payload;
    }

    state parse_gre_payload {
        transition select(hdr.gre.ethertype) {
            ETHERTYPE_IPV4: parse_inner_ipv4;
            ETHERTYPE_BRIDGED: parse_inner_ethernet;
            default: accept;
        }
    }

    state parse_inner_ethernet {
        packet.extract(hdr.inner_ethernet);
        transition select(hdr.inner_ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_inner_ipv4;
            ETHERTYPE_TAG: refuse_opaque;
            ETHERTYPE_SERVICE_TAG: refuse_opaque;
            default: accept;
        }
    }

    state parse_inner_ipv4 {
        packet.extract(hdr.inner_ipv4);
        transition select(hdr.inner_ipv4.protocol) {
            PROTOCOL_IPV4: refuse_opaque;
            PROTOCOL_IPV6: refuse_opaque;
            PROTOCOL_GRE: refuse_opaque;
            default: accept;
        }
    }

    state parse_icmp {
        packet.extract(hdr.icmp);
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination) {
            AGGREGATION_PORT: parse_aggregation;
            default: accept;
        }
    }

    state parse_aggregation {
        packet.extract(hdr.agg);
        transition select(hdr.agg.flags, hdr.udp.length, hdr.ipv4.total_length) {
            (FLAG_PAYLOAD &&& FLAG_PAYLOAD, UDP_PAYLOAD, IPV4_PAYLOAD): parse_lanes;
            (0 &&& FLAG_PAYLOAD, UDP_EMPTY, IPV4_EMPTY): accept;
            (FLAG_PAYLOAD &&& FLAG_PAYLOAD, UDP_NARROW, IPV4_NARROW): judge_narrow;
#if LANES > 128
            (0 &&& FLAG_PAYLOAD, UDP_PADDED, IPV4_PADDED): parse_padding;
#endif
            default: refuse_lengths;
        }
    }

    state refuse_lengths {
        verify(false, error.WrongLengths);
        transition accept;
    }

    state judge_narrow {
        transition select(hdr.agg.kind, WIRE_IS_WIDENED(hdr.agg.format)) {
            (kind_t.CONTRIBUTION, true): parse_narrow;
            default: refuse_lengths;
        }
    }

    state parse_narrow {
        packet.extract(hdr.narrow);
        transition accept;
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }

#if LANES > 128
    state parse_padding {
        packet.extract(hdr.padding);
        transition accept;
    }
#endif
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan_tag);
        packet.emit(hdr.second_vlan_tag);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.gre);
        packet.emit(hdr.gre_option_1);
        packet.emit(hdr.gre_option_2);
        packet.emit(hdr.gre_option_3);
        packet.emit(hdr.inner_ethernet);
        packet.emit(hdr.inner_ipv4);
        packet.emit(hdr.icmp);
        packet.emit(hdr.udp);
        packet.emit(hdr.agg);
        packet.emit(hdr.lanes);
        packet.emit(hdr.narrow);
        packet.emit(hdr.padding);
    }
}

#endif
