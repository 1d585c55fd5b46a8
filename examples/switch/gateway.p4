// SPDX-License-Identifier: Apache-2.0
//
// A gateway: it routes IPv4, lets each customer send at a rate of his own, and marks packets that meet a long queue.

#include <core.p4>
#include <v1model.p4>

typedef bit<9> port_t;
typedef bit<48> mac_t;
typedef bit<32> ip_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<2> RED = 2;
const bit<2> ECN_NONE = 0;          // the sender knows nothing of marks (RFC 3168)
const bit<2> ECN_CONGESTED = 3;
const bit<19> LONG_QUEUE = 4;

header ethernet_t {
    mac_t destination;
    mac_t source;
    bit<16> ethertype;
}

header ipv4_t {
    bit<4> version;
    bit<4> words;
    bit<6> service;
    bit<2> ecn;
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

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata_t {
    bit<2> colour;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    direct_meter<bit<2>>(MeterType.packets) rate;
    direct_counter(CounterType.packets_and_bytes) routed;
    counter(4, CounterType.packets) by_colour;      // green, yellow, red

    action drop() {
        mark_to_drop(standard_metadata);
    }

    action known() {
        rate.read(meta.colour);
    }

    action forward(port_t port, mac_t mac) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    table customers {
        key = { hdr.ipv4.source: exact; }
        actions = { known; drop; }
        default_action = drop();
        meters = rate;
        size = 1024;
    }

    table routes {
        key = { hdr.ipv4.destination: lpm; }
        actions = { forward; drop; }
        default_action = drop();
        counters = routed;
        size = 1024;
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ttl < 2) {
            drop();
        } else if (customers.apply().hit) {
            by_colour.count((bit<32>)meta.colour);
            if (meta.colour == RED) {
                drop();
            } else {
                routes.apply();
            }
        }
    }
}

// Runs when a packet leaves its port's queue, and knows how long the queue was when the packet came.
control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.ecn != ECN_NONE && standard_metadata.enq_qdepth >= LONG_QUEUE) {
            hdr.ipv4.ecn = ECN_CONGESTED;
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.service, hdr.ipv4.ecn, hdr.ipv4.length,
              hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol,
              hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(Parse(), Verify(), SwitchIngress(), SwitchEgress(), Compute(), Deparse()) main;
