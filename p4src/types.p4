// SPDX-License-Identifier: Apache-2.0
//
// Types, lengths, and the numbers of other protocols.

#ifndef TYPES_P4
#define TYPES_P4

#include "config.p4"
#include "wire.p4"

typedef bit<9> port_t;
typedef bit<48> mac_t;
typedef bit<32> ip_t;
typedef bit<64> cookie_t;

// p4c's widest type: 64 lanes of 32 bits, which are combined in one go.
typedef bit<2048> chunk_t;
const bit<32> CHUNKS = LANES / 64;

// Each slot has two versions, its cells: while a round may still be repeated, the next one fills.
const bit<32> CELLS = 2 * SLOTS;

// Lengths in bytes.
const bit<32> PACKET_OUT_BYTES = 2;
const bit<32> ETHERNET_BYTES = 14;
const bit<16> IPV4_BYTES = 20;
const bit<16> UDP_BYTES = 8;
const bit<16> PAYLOAD_BYTES = LANES * 4;
const bit<16> NARROW_BYTES = PAYLOAD_BYTES / 2;       // half of each lane
const bit<16> PADDING_BYTES = PAYLOAD_BYTES - 512;    // see chunks.p4

// Lengths of a whole datagram, as UDP and IPv4 have them.
const bit<16> UDP_EMPTY = UDP_BYTES + AGGREGATION_BYTES;
const bit<16> UDP_PAYLOAD = UDP_EMPTY + PAYLOAD_BYTES;
const bit<16> UDP_NARROW = UDP_EMPTY + NARROW_BYTES;
const bit<16> UDP_PADDED = UDP_EMPTY + PADDING_BYTES;
const bit<16> IPV4_EMPTY = IPV4_BYTES + UDP_EMPTY;
const bit<16> IPV4_PAYLOAD = IPV4_BYTES + UDP_PAYLOAD;
const bit<16> IPV4_NARROW = IPV4_BYTES + UDP_NARROW;
@noWarn("unused") const bit<16> IPV4_PADDED = IPV4_BYTES + UDP_PADDED;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ETHERTYPE_TAG = 0x8100;            // 802.1Q
const bit<16> ETHERTYPE_SERVICE_TAG = 0x88A8;    // 802.1ad
const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<16> ETHERTYPE_BRIDGED = 0x6558;        // in GRE: a whole Ethernet frame
const bit<8> IPV4_WITHOUT_OPTIONS = 0x45;        // version 4, five words
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_IPV4 = 4;                  // a packet in a packet
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_IPV6 = 41;
const bit<8> PROTOCOL_GRE = 47;
const bit<3> MORE_FRAGMENTS = 1;
const bit<2> ECN_CAPABLE = 2;                    // ECT(0)
const bit<2> CONGESTION_EXPERIENCED = 3;
const bit<8> INITIAL_TTL = 64;
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;
const bit<16> ICMP_ECHO_REQUEST = 0x0800;        // type 8, code 0
const bit<16> ICMP_ECHO_REPLY = 0x0000;

// What Validate and Admission take a frame for. Each is a bit, so that sets of them can have names.
typedef bit<16> traffic_t;
const traffic_t TRAFFIC_ORDINARY = 0x000;         // not for the switch's aggregation
const traffic_t TRAFFIC_HELLO = 0x001;            // a worker shows itself to the controller
const traffic_t TRAFFIC_STATE_REQUEST = 0x002;    // the controller queries or sets a cell
const traffic_t TRAFFIC_CONTRIBUTION = 0x004;     // of a worker that is a member
const traffic_t TRAFFIC_SHARED = 0x008;           // likewise, of a job that shares this slot with others
const traffic_t TRAFFIC_PASSED = 0x010;           // likewise, at the job's fallback
const traffic_t TRAFFIC_PARTIAL = 0x020;          // of a switch that is a member: what its own members' contributions come to
const traffic_t TRAFFIC_FINAL = 0x040;            // likewise, but it is the result of the whole job
const traffic_t TRAFFIC_ABOVE = 0x080;            // of the switch above: what became of this switch's contribution
const traffic_t TRAFFIC_RELAYED = 0x100;          // of the fallback of a job that shares slots, for the job's members

// Sets of them.
const traffic_t OF_MEMBERS = TRAFFIC_CONTRIBUTION | TRAFFIC_SHARED | TRAFFIC_PASSED | TRAFFIC_PARTIAL | TRAFFIC_FINAL;
const traffic_t OF_CELLS = OF_MEMBERS | TRAFFIC_STATE_REQUEST | TRAFFIC_ABOVE | TRAFFIC_RELAYED;
const traffic_t OF_SHARED_SLOTS = TRAFFIC_SHARED | TRAFFIC_RELAYED | TRAFFIC_STATE_REQUEST;
const traffic_t FROM_SWITCHES = TRAFFIC_PARTIAL | TRAFFIC_FINAL | TRAFFIC_ABOVE;
const traffic_t RESULTS = TRAFFIC_FINAL | TRAFFIC_ABOVE;    // of the whole job, or word of one

// Who gets what the frame has become; control Reply sends it there.
enum bit<8> reply_t {
    NONE = 0,          // nobody, except whom Dispatch has chosen for ordinary traffic
    CONTROLLER = 1,    // the controller gets the frame as it is
    SENDER = 2,        // the sender gets the answer
    REJECT = 3,        // the sender gets the reason for which the frame was refused
    MEMBERS = 4,       // each member of the job gets the result
    UPSTREAM = 5,      // the switch above gets the contribution
    PASSED = 6         // the fallback gets the contribution as it is
}

#endif
