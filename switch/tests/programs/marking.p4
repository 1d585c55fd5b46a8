// Explicit congestion notification: a packet that finds a long queue is marked, if its sender understands marks.

#include "common.p4"

const bit<19> LONG_QUEUE = 10;
const bit<2> NOT_CAPABLE = 0;
const bit<2> CONGESTION = 3;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> words;
    bit<6> service;
    bit<2> ecn;
    bit<16> length;
    bit<16> identification;
    bit<3> flags;
    bit<13> offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(h.ipv4);
        transition accept;
    }
}

control Verify(inout headers_t h, inout metadata_t m) {
    apply {}
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action drop() {
        mark_to_drop(standard);
    }
    action forward(bit<9> port) {
        standard.egress_spec = port;
        h.ipv4.ttl = h.ipv4.ttl - 1;
    }
    table routes {
        key = {
            h.ipv4.destination: lpm;
        }
        actions = {
            forward;
            drop;
        }
        default_action = drop();
    }
    apply {
        if (h.ipv4.isValid() && h.ipv4.ttl > 0) {
            routes.apply();
        } else {
            drop();
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        if (h.ipv4.ecn != NOT_CAPABLE && standard.enq_qdepth >= LONG_QUEUE) {
            h.ipv4.ecn = CONGESTION;
        }
    }
}

control Update(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.ipv4.isValid(), {
            h.ipv4.version, h.ipv4.words, h.ipv4.service, h.ipv4.ecn, h.ipv4.length, h.ipv4.identification,
            h.ipv4.flags, h.ipv4.offset, h.ipv4.ttl, h.ipv4.protocol, h.ipv4.source, h.ipv4.destination
        }, h.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.ethernet);
        packet.emit(h.ipv4);
    }
}

MAIN
