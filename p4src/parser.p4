// Parser, checksums and deparser.

#include "headers.p4"

error { WrongLengths }    // of an aggregation packet: its headers say something else than its flags

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
            default: accept;
        }
    }

    state parse_arp {
        packet.extract(h.arp);
        transition accept;
    }

    // Options and fragments are ordinary traffic: the switch reads no further.
    state parse_ipv4 {
        packet.extract(h.ipv4);
        transition select(h.ipv4.version_ihl, h.ipv4.flags, h.ipv4.fragment_offset, h.ipv4.protocol) {
            (0x45, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_UDP): parse_udp;
            (0x45, 0 &&& MORE_FRAGMENTS, 0, PROTOCOL_ICMP): parse_icmp;
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
              h.agg.slot, h.agg.number, h.agg.block, h.agg.next_block, h.agg.digest, h.agg.bitmap
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
        packet.emit(h.arp);
        packet.emit(h.ipv4);
        packet.emit(h.icmp);
        packet.emit(h.udp);
        packet.emit(h.agg);
        packet.emit(h.lanes);
        packet.emit(h.padding);
    }
}
