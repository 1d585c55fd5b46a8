// SPDX-License-Identifier: Apache-2.0
//
// The frame, from outside in, and the metadata that travels with it through the switch.

#ifndef HEADERS_P4
#define HEADERS_P4

#include "types.p4"
#include "chunks.p4"

header ethernet_t {
    mac_t destination;
    mac_t source;
    bit<16> ethertype;
}

// 802.1Q or 802.1ad. A receiver takes priority tags (VLAN 0) off by itself, as many as there are.
header vlan_tag_t {
    bit<16> priority_and_id;
    bit<16> ethertype;
}

header arp_t {
    bit<16> hardware_type;
    bit<16> protocol_type;
    bit<8> hardware_length;
    bit<8> protocol_length;
    bit<16> operation;
    mac_t sender_mac;
    ip_t sender_ip;
    mac_t target_mac;
    ip_t target_ip;
}

header ipv4_t {
    bit<8> version_ihl;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ip_t source;
    ip_t destination;
}

header ipv6_t {
    bit<48> version_to_length;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<128> source;
    bit<128> destination;
}

// RFC 2784 and 2890. Each of the three flags stands for an option of 4 bytes behind the header.
header gre_t {
    bit<1> has_checksum;
    bit<1> has_routing;
    bit<1> has_key;
    bit<1> has_sequence;
    bit<9> reserved;
    bit<3> version;
    bit<16> ethertype;
}

header gre_option_t {
    bit<32> value;
}

header icmp_t {
    bit<16> type_code;
    bit<16> checksum;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

// The payload: LANES lanes of 32 bits, 64 to a chunk.
#define HEADERS_CHUNK(i) chunk_t c##i;
header lanes_t {
    CHUNKS_EACH(HEADERS_CHUNK)
}

// The payload of a contribution with 8 bits for each lane of 16: byte 2j is for lane j, byte 2j + 1 for lane j + LANES.
// With 4 bits for each lane of 8, the upper half of byte j is for lane j, and the lower one for lane j + 2 * LANES.
#define HEADERS_PAIR(i, j) chunk_t c##i;
header narrow_t {
    CHUNKS_PAIRS(HEADERS_PAIR)
}
#undef HEADERS_PAIR

// What a frame without payload carries instead on a switch that limits growth; all zero.
header padding_t {
    CHUNKS_PADDING(HEADERS_CHUNK)
}
#undef HEADERS_CHUNK

@controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> unused;
}

@controller_header("packet_out")
header packet_out_t {
    port_t egress_port;
    bit<7> unused;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    vlan_tag_t vlan_tag;
    vlan_tag_t second_vlan_tag;
    arp_t arp;
    ipv4_t ipv4;
    ipv6_t ipv6;
    gre_t gre;
    gre_option_t gre_option_1;
    gre_option_t gre_option_2;
    gre_option_t gre_option_3;
    ethernet_t inner_ethernet;
    ipv4_t inner_ipv4;
    icmp_t icmp;
    udp_t udp;
    aggregation_t agg;
    lanes_t lanes;
    narrow_t narrow;
    padding_t padding;
}

// What the parts of the program tell each other about a frame. The parser, which every frame goes through, gives the
// first block its first values; what writes the other fields stands beside them, and nothing reads them before.
struct metadata_t {
    reason_t reason;          // what happened to the frame: it is counted
    reply_t reply;            // who gets it
    bool is_flooded;          // egress drops the replica that would go back
    bool is_ipv4_changed;     // the IPv4 checksum must be computed anew
    bit<16> zero;             // what a correct checksum adds up to
    traffic_t traffic;        // what the frame is

    // Table `identity`: the switch's own address, and by how much its frames may grow.
    mac_t own_mac;
    ip_t own_ip;
    bit<16> own_port;
    bit<16> growth_bytes;

    // Table `admission`, of contributions with a member's address: the sender's bit, all members' bits, whom results go to.
    bitmap_t sender;
    bitmap_t member;          // whom it contributes for: itself, or all members with their result
    bitmap_t everybody;
    bit<16> group;
    bit<1> passes_up;         // of switches' contributions: this switch has one above

    // Table `uplink`, of frames that go there: the port, and whether frames without lanes are padded.
    port_t up_port;
    bit<1> up_pads;

    // The drop simulator.
    bit<32> dice;
}

#endif
