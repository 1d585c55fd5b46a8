// Headers that the programs of `make bench ONLY=programs` share.

#include <core.p4>
#include <v1model.p4>

typedef bit<9> port_t;
typedef bit<48> mac_t;
typedef bit<32> ip_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;

header ethernet_t {
    mac_t destination;
    mac_t source;
    bit<16> ethertype;
}

header ipv4_t {
    bit<4> version;
    bit<4> words;
    bit<8> service;
    bit<16> length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ip_t source;
    ip_t destination;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

#define IPV4_FIELDS(ipv4) { \
        ipv4.version, ipv4.words, ipv4.service, ipv4.length, ipv4.identification, ipv4.flags, ipv4.fragment, \
        ipv4.ttl, ipv4.protocol, ipv4.source, ipv4.destination }

#define PARSER \
    parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) { \
        state start { \
            packet.extract(h.ethernet); \
            transition select(h.ethernet.ethertype) { \
                ETHERTYPE_IPV4: ipv4; \
                default: accept; \
            } \
        } \
        state ipv4 { \
            packet.extract(h.ipv4); \
            transition select(h.ipv4.protocol) { \
                PROTOCOL_UDP: udp; \
                default: accept; \
            } \
        } \
        state udp { \
            packet.extract(h.udp); \
            transition accept; \
        } \
    }

#define VERIFY \
    control Verify(inout headers_t h, inout metadata_t m) { \
        apply { \
            verify_checksum(h.ipv4.isValid(), IPV4_FIELDS(h.ipv4), h.ipv4.checksum, HashAlgorithm.csum16); \
        } \
    }

#define UPDATE \
    control Update(inout headers_t h, inout metadata_t m) { \
        apply { \
            update_checksum(h.ipv4.isValid(), IPV4_FIELDS(h.ipv4), h.ipv4.checksum, HashAlgorithm.csum16); \
        } \
    }

#define NO_EGRESS \
    control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) { apply {} }

#define DEPARSER \
    control SwitchDeparser(packet_out packet, in headers_t h) { \
        apply { \
            packet.emit(h.ethernet); \
            packet.emit(h.ipv4); \
            packet.emit(h.udp); \
        } \
    }

#define MAIN V1Switch(SwitchParser(), Verify(), SwitchIngress(), SwitchEgress(), Update(), SwitchDeparser()) main;
