// SPDX-License-Identifier: Apache-2.0
// SwitchML's switch (NSDI 2021) for v1model, written from its paper: two pools of slots, and a register for each lane.
//
// A slot has two versions, which its rounds use in turn.  Each worker has a bit in a version's bitmap.  A contribution
// sets it there and clears it in the other version, so that the other one is empty when its next round begins.  The
// first contribution of a round overwrites the lanes, later ones are added, and the last one's packet leaves as the
// result, to all workers.  A repeat is not added: it gets the stored result, or is dropped as long as there is none.
#include <core.p4>
#include <v1model.p4>

#ifndef LANES
#define LANES 256
#endif
#define SLOTS 512  // of each pool

// EACH(F) writes F(name) for every lane; names are octal.
#define EIGHT(F, n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)
#define SIXTY_FOUR(F, n) \
    EIGHT(F, n##0) EIGHT(F, n##1) EIGHT(F, n##2) EIGHT(F, n##3) EIGHT(F, n##4) EIGHT(F, n##5) EIGHT(F, n##6) EIGHT(F, n##7)
#if LANES == 32
#define EACH(F) EIGHT(F, 00) EIGHT(F, 01) EIGHT(F, 02) EIGHT(F, 03)
#elif LANES == 64
#define EACH(F) SIXTY_FOUR(F, 0)
#elif LANES == 256
#define EACH(F) SIXTY_FOUR(F, 0) SIXTY_FOUR(F, 1) SIXTY_FOUR(F, 2) SIXTY_FOUR(F, 3)
#else
#error "LANES must be 32, 64 or 256"
#endif

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> SWITCHML_PORT = 0xBEE0;
const bit<16> RESULTS = 1;  // the multicast group of all workers

enum bit<4> packet_type_t { CONTRIBUTION = 0, RESULT = 1 }

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ethertype; }

header ipv4_t {
    bit<8> version_ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> identification;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t { bit<16> source; bit<16> destination; bit<16> length; bit<16> checksum; }

header switchml_t {
    packet_type_t packet_type;
    bit<4> unused;
    bit<8> job;
    bit<32> tsi;      // number of the block
    bit<1> version;   // together with the slot: the pool index
    bit<15> slot;
    bit<8> exponent;  // of the sender's next block in this slot; in a result the largest one
    bit<8> padding;
}

#define FIELD(n) bit<32> v##n;
header lanes_t { EACH(FIELD) }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    switchml_t switchml;
    lanes_t lanes;
}

struct metadata_t {
    bit<32> cell;        // slot and version, as registers count them
    bit<32> worker;      // the sender's bit
    bit<32> workers;     // how many there are
    bit<32> seen;        // bits of the version before this packet
    bit<32> missing;     // workers that are still to contribute, after this packet
}

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) { ETHERTYPE_IPV4: parse_ipv4; default: accept; }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) { PROTOCOL_UDP: parse_udp; default: accept; }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination) { SWITCHML_PORT: parse_switchml; default: accept; }
    }
    state parse_switchml {
        packet.extract(hdr.switchml);
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control SwitchVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

// Sets the worker's bit in its version and clears it in the other one.
control Bitmap(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(2 * SLOTS) bitmaps;

    apply {
        bit<32> other;
        bitmaps.read(meta.seen, meta.cell);
        bitmaps.read(other, meta.cell ^ 1);
        bitmaps.write(meta.cell, meta.seen | meta.worker);
        bitmaps.write(meta.cell ^ 1, other & ~meta.worker);
    }
}

// Counts down the workers that are missing; a repeat reads how many they are.
control Counter(in headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(2 * SLOTS) counts;

    apply {
        counts.read(meta.missing, meta.cell);
        if (meta.seen & meta.worker == 0) {
            if (meta.seen == 0) { meta.missing = meta.workers; }
            meta.missing = meta.missing - 1;
            counts.write(meta.cell, meta.missing);
        }
    }
}

// The largest exponent of the slot's next blocks.
control Exponents(inout headers_t hdr, inout metadata_t meta) {
    register<bit<8>>(2 * SLOTS) exponents;

    apply {
        bit<8> largest;
        exponents.read(largest, meta.cell);
        if (meta.seen & meta.worker != 0 || (meta.seen != 0 && largest > hdr.switchml.exponent)) {
            hdr.switchml.exponent = largest;
        } else {
            exponents.write(meta.cell, hdr.switchml.exponent);
        }
    }
}

// One register for each lane: the first contribution is written, others are added, and repeats read.
control Processors(inout headers_t hdr, inout metadata_t meta) {
#define REGISTER(n) register<bit<32>>(2 * SLOTS) lane_##n;
    EACH(REGISTER)
    bit<32> stored;

#define WRITE(n) lane_##n.write(meta.cell, hdr.lanes.v##n);
    action write() { EACH(WRITE) }

#define ADD(n) \
    lane_##n.read(stored, meta.cell); hdr.lanes.v##n = hdr.lanes.v##n + stored; lane_##n.write(meta.cell, hdr.lanes.v##n);
    action add() { EACH(ADD) }

#define READ(n) lane_##n.read(hdr.lanes.v##n, meta.cell);
    action read() { EACH(READ) }

    apply {
        if (meta.seen & meta.worker != 0) { read(); }
        else if (meta.seen == 0) { write(); }
        else { add(); }
    }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) {
    action drop() { mark_to_drop(standard_md); }

    action member(bit<32> worker, bit<32> workers) {
        meta.worker = worker;
        meta.workers = workers;
    }

    // Who sends: what is no worker's is dropped.
    table receiver {
        key = {
            standard_md.ingress_port: exact @name("ingress_port");
            hdr.ipv4.source: exact @name("source");
            hdr.udp.source: exact @name("udp_source");
        }
        actions = { member; drop; }
        const default_action = drop;
        size = 32;
    }

    // A result comes from the address to which the contribution went.
    action answer() {
        bit<48> mac = hdr.ethernet.destination;
        bit<32> ip = hdr.ipv4.destination;
        bit<16> port = hdr.udp.destination;
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = mac;
        hdr.ipv4.destination = hdr.ipv4.source;
        hdr.ipv4.source = ip;
        hdr.ipv4.ttl = 64;
        hdr.udp.destination = hdr.udp.source;
        hdr.udp.source = port;
        hdr.udp.checksum = 0;
        hdr.switchml.packet_type = packet_type_t.RESULT;
    }

    action broadcast() { answer(); standard_md.mcast_grp = RESULTS; }
    action retransmit() { answer(); standard_md.egress_spec = standard_md.ingress_port; }

    Bitmap() bitmap;
    Counter() counter_;
    Exponents() exponents;
    Processors() processors;

    apply {
        if (!hdr.lanes.isValid() || hdr.switchml.packet_type != packet_type_t.CONTRIBUTION || hdr.switchml.slot >= SLOTS) {
            drop();
            return;
        }
        if (!receiver.apply().hit) { return; }
        meta.cell = (bit<32>)(hdr.switchml.slot ++ hdr.switchml.version);
        bitmap.apply(hdr, meta);
        counter_.apply(hdr, meta);
        exponents.apply(hdr, meta);
        processors.apply(hdr, meta);
        if (meta.missing != 0) { drop(); }
        else if (meta.seen & meta.worker != 0) { retransmit(); }
        else { broadcast(); }
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) {
    action address(bit<48> mac, bit<32> ip, bit<16> port) {
        hdr.ethernet.destination = mac;
        hdr.ipv4.destination = ip;
        hdr.udp.destination = port;
    }

    // Whom a copy of a result is for; one copy has the number 0, that of a repeat, which is addressed already.
    table sender {
        key = { standard_md.egress_rid: exact @name("instance"); }
        actions = { address; NoAction; }
        const default_action = NoAction;
        size = 32;
    }

    apply { sender.apply(); }
}

control SwitchCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), {
            hdr.ipv4.version_ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.identification, hdr.ipv4.fragment,
            hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
        }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(SwitchParser(), SwitchVerify(), SwitchIngress(), SwitchEgress(), SwitchCompute(), SwitchDeparser()) main;
