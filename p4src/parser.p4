// Parser, checksums and deparser.

#include "headers.p4"

error {
    WrongLengths,    // of an aggregation packet: its headers say something else than its flags
    Opaque           // tags or a tunnel that the parser does not follow to what they carry
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(h.packet_out);
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(h.ethernet);
        transition select(h.ethernet.ethertype) {
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
        packet.extract(h.vlan_tag);
        transition select(h.vlan_tag.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_TAG: parse_second_tag;
            ETHERTYPE_SERVICE_TAG: parse_second_tag;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_second_tag {
        packet.extract(h.second_vlan_tag);
        transition select(h.second_vlan_tag.ethertype) {
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
        packet.extract(h.arp);
        transition accept;
    }

    // Tags, options and fragments are ordinary traffic: the switch reads no further than to who the sender claims to be,
    // which of a tunnel is the sender of what it carries.
    state parse_ipv4 {
        packet.extract(h.ipv4);
        transition select(h.ethernet.ethertype, h.ipv4.version_ihl, h.ipv4.flags, h.ipv4.fragment_offset,
                h.ipv4.protocol) {
            (ETHERTYPE_IPV4, 0x45, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_UDP): parse_udp;
            (ETHERTYPE_IPV4, 0x45, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_ICMP): parse_icmp;
            (_, 0x45, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_IPV4): parse_inner_ipv4;
            (_, 0x45, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_IPV6): parse_ipv6;
            (_, 0x45, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_GRE): parse_gre;
            (_, _, _, _, PROTOCOL_IPV4): refuse_opaque;
            (_, _, _, _, PROTOCOL_IPV6): refuse_opaque;
            (_, _, _, _, PROTOCOL_GRE): refuse_opaque;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(h.ipv6);
        transition select(h.ipv6.next_header) {
            PROTOCOL_IPV4: parse_inner_ipv4;
            PROTOCOL_GRE: parse_gre;
            default: accept;
        }
    }

    state parse_gre {
        packet.extract(h.gre);
        transition select(h.gre.has_checksum, h.gre.has_key, h.gre.has_sequence) {
            (0, 0, 0): parse_gre_payload;
            (1, 0, 0): parse_gre_option_3;
            (0, 1, 0): parse_gre_option_3;
            (0, 0, 1): parse_gre_option_3;
            (1, 1, 1): parse_gre_option_1;
            default: parse_gre_option_2;
        }
    }

    state parse_gre_option_1 {
        packet.extract(h.gre_option_1);
        transition parse_gre_option_2;
    }

    state parse_gre_option_2 {
        packet.extract(h.gre_option_2);
        transition parse_gre_option_3;
    }

    state parse_gre_option_3 {
        packet.extract(h.gre_option_3);
        transition parse_gre_payload;
    }

    state parse_gre_payload {
        transition select(h.gre.ethertype) {
            ETHERTYPE_IPV4: parse_inner_ipv4;
            ETHERTYPE_BRIDGED: parse_inner_ethernet;
            default: accept;
        }
    }

    state parse_inner_ethernet {
        packet.extract(h.inner_ethernet);
        transition select(h.inner_ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_inner_ipv4;
            ETHERTYPE_TAG: refuse_opaque;
            ETHERTYPE_SERVICE_TAG: refuse_opaque;
            default: accept;
        }
    }

    state parse_inner_ipv4 {
        packet.extract(h.inner_ipv4);
        transition select(h.inner_ipv4.protocol) {
            PROTOCOL_IPV4: refuse_opaque;
            PROTOCOL_IPV6: refuse_opaque;
            PROTOCOL_GRE: refuse_opaque;
            default: accept;
        }
    }

    state parse_icmp {
        packet.extract(h.icmp);
        transition accept;
    }

    state parse_udp {
        packet.extract(h.udp);
        transition select(h.udp.destination) {
            AGGREGATION_PORT: parse_aggregation;
            default: accept;
        }
    }

    state parse_aggregation {
        packet.extract(h.agg);
        transition select(h.agg.flags, h.udp.length, h.ipv4.total_length) {
            (FLAG_PAYLOAD &&& FLAG_PAYLOAD, UDP_PAYLOAD, IPV4_BYTES + UDP_PAYLOAD): parse_lanes;
            (0 &&& FLAG_PAYLOAD, UDP_EMPTY, IPV4_BYTES + UDP_EMPTY): accept;
#if LANES > 128
            (0 &&& FLAG_PAYLOAD, UDP_PADDED, IPV4_BYTES + UDP_PADDED): parse_padding;
#endif
            default: refuse_lengths;
        }
    }

    state refuse_lengths {
        verify(false, error.WrongLengths);
        transition accept;
    }

    state parse_lanes {
        packet.extract(h.lanes);
        transition accept;
    }

#if LANES > 128
    state parse_padding {
        packet.extract(h.padding);
        transition accept;
    }
#endif
}

#define LANE_ITEM(i) , h.lanes.c##i
#define PADDING_ITEM(i) , h.padding.c##i

control VerifyChecksums(inout headers_t h, inout metadata_t m) {
    apply {
        // With the transmitted checksum among the data a correct frame adds up to zero; so 0xFFFF, which stands for a
        // computed zero (RFC 768), needs no case of its own. Headers that are not valid are left out by the switch.
        verify_checksum(h.agg.isValid() && h.udp.checksum != 0,
            { h.ipv4.source, h.ipv4.destination, 8w0, h.ipv4.protocol, h.udp.length,
              h.udp.source, h.udp.destination, h.udp.length, h.udp.checksum,
              h.agg.version, h.agg.kind, h.agg.operator, h.agg.format, h.agg.flags, h.agg.reason,
              h.agg.exponent, h.agg.next_exponent, h.agg.job, h.agg.epoch, h.agg.rank, h.agg.tree,
              h.agg.slot, h.agg.number, h.agg.block, h.agg.next_block, h.agg.digest, h.agg.bitmap, h.agg.cookie
              EACH_CHUNK(LANE_ITEM) EACH_PADDING(PADDING_ITEM) },
            m.zero, HashAlgorithm.csum16);
        verify_checksum(h.agg.isValid(),
            { h.ipv4.version_ihl, h.ipv4.dscp, h.ipv4.ecn, h.ipv4.total_length, h.ipv4.identification,
              h.ipv4.flags, h.ipv4.fragment_offset, h.ipv4.ttl, h.ipv4.protocol, h.ipv4.checksum,
              h.ipv4.source, h.ipv4.destination },
            m.zero, HashAlgorithm.csum16);
    }
}

control ComputeChecksums(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(m.answered == 1 && h.ipv4.isValid(),
            { h.ipv4.version_ihl, h.ipv4.dscp, h.ipv4.ecn, h.ipv4.total_length, h.ipv4.identification,
              h.ipv4.flags, h.ipv4.fragment_offset, h.ipv4.ttl, h.ipv4.protocol,
              h.ipv4.source, h.ipv4.destination },
            h.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.packet_in);
        packet.emit(h.ethernet);
        packet.emit(h.vlan_tag);
        packet.emit(h.second_vlan_tag);
        packet.emit(h.arp);
        packet.emit(h.ipv4);
        packet.emit(h.ipv6);
        packet.emit(h.gre);
        packet.emit(h.gre_option_1);
        packet.emit(h.gre_option_2);
        packet.emit(h.gre_option_3);
        packet.emit(h.inner_ethernet);
        packet.emit(h.inner_ipv4);
        packet.emit(h.icmp);
        packet.emit(h.udp);
        packet.emit(h.agg);
        packet.emit(h.lanes);
        packet.emit(h.padding);
    }
}
