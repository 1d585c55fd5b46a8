// SPDX-License-Identifier: Apache-2.0
// ATP's switch (NSDI 2021) for v1model, written from its paper: cells that packets find by a hash, first come, first
// served.
//
// A cell belongs to a job and a sequence number.  A packet that finds it free takes it; one that finds another owner
// goes on to the parameter server, which adds it there.  When all workers are in a cell, the sum goes to the server.
// The server answers with the whole sum, which goes to all workers and gives the cell back.  A repeat of a worker that is
// in the cell takes the cell's sum to the server.  A packet that leaves a long queue is marked, and marks are kept in the
// cell until the sum leaves.
#include <core.p4>
#include <v1model.p4>

#ifndef LANES
#define LANES 64
#endif
#define CELLS 20000

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> ATP_PORT = 0xBEE7;
const bit<19> MARK_AT = 32;  // packets in the queue

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

header atp_t {
    bit<32> bitmap;     // workers whose values are in this packet
    bit<8> workers;     // how many there are
    bit<1> is_answer;   // from the server to the workers
    bit<1> is_repeat;
    bit<1> collided;    // the cell had another owner
    bit<1> marked;      // congestion
    bit<4> unused;
    bit<16> cell;       // a hash of job and sequence number
    bit<32> sequence;   // the job's number above that of the block
}

header lanes_t { bit<(32 * LANES)> all; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; udp_t udp; atp_t atp; lanes_t lanes; }
struct metadata_t { }

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
        transition select(hdr.udp.destination) { ATP_PORT: parse_atp; default: accept; }
    }
    state parse_atp {
        packet.extract(hdr.atp);
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control SwitchVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) {
    register<bit<32>>(CELLS) owners;   // sequence number plus one; 0: the cell is free
    register<bit<32>>(CELLS) bitmaps;
    register<bit<1>>(CELLS) marks;
    register<bit<(32 * LANES)>>(CELLS) sums;

    action drop() { mark_to_drop(standard_md); }
    action forward(bit<9> port) { standard_md.egress_spec = port; }

    table server {
        key = { hdr.ethernet.destination: exact @name("destination"); }
        actions = { forward; drop; }
        const default_action = drop;
        size = 64;
    }

    // Answers of a job's server go to the job's workers.
    action answer(bit<16> workers) { standard_md.mcast_grp = workers; }

    table job {
        key = { hdr.ethernet.source: exact @name("source"); }
        actions = { answer; drop; }
        const default_action = drop;
        size = 64;
    }

    // Adds the cell's lanes to the packet's: the top bit of each lane apart, so that nothing is carried over.
    action add(in bit<(32 * LANES)> sum) {
        bit<(32 * LANES)> top = (bit<(32 * LANES)>)32w0x80000000;
        top = top | (top << 32);
        top = top | (top << 64);
        top = top | (top << 128);
        top = top | (top << 256);
        top = top | (top << 512);
#if LANES >= 64
        top = top | (top << 1024);
#endif
        hdr.lanes.all = ((sum & ~top) + (hdr.lanes.all & ~top)) ^ ((sum ^ hdr.lanes.all) & top);
    }

    apply {
        if (!hdr.lanes.isValid() || hdr.atp.cell >= CELLS) { drop(); return; }
        bit<32> cell = (bit<32>)hdr.atp.cell;
        bit<32> owner;
        bit<32> seen;
        bit<1> mark;
        bit<(32 * LANES)> sum;
        owners.read(owner, cell);
        bitmaps.read(seen, cell);
        marks.read(mark, cell);
        sums.read(sum, cell);
        if (hdr.atp.is_answer == 1) {
            if (owner == hdr.atp.sequence + 1) { owners.write(cell, 0); }
            job.apply();
            return;
        }
        if (!server.apply().hit) { return; }
        bit<32> all = (32w1 << hdr.atp.workers) - 1;
        if (owner == 0 && hdr.atp.is_repeat == 0) {
            owner = hdr.atp.sequence + 1;
            seen = 0;
            mark = 0;
            sum = 0;
            owners.write(cell, owner);
        }
        if (owner != hdr.atp.sequence + 1) {
            hdr.atp.collided = 1;  // to the server as it is
            return;
        }
        bool is_in = seen & hdr.atp.bitmap != 0;
        if (hdr.atp.is_repeat == 1) {
            // What there is goes to the server, which adds the rest.  A worker that is not in the cell may be in the
            // server's sum already: its packet goes there alone.
            if (!is_in) { hdr.atp.collided = 1; return; }
            owners.write(cell, 0);
            hdr.lanes.all = sum;
            hdr.atp.bitmap = seen;
            hdr.atp.marked = mark;
            return;
        }
        if (is_in) { drop(); return; }
        add(sum);
        hdr.atp.bitmap = hdr.atp.bitmap | seen;
        hdr.atp.marked = mark | hdr.atp.marked;
        sums.write(cell, hdr.lanes.all);
        bitmaps.write(cell, hdr.atp.bitmap);
        marks.write(cell, hdr.atp.marked);
        if (hdr.atp.bitmap != all) { drop(); }
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) {
    apply {
        if (hdr.atp.isValid() && standard_md.deq_qdepth >= MARK_AT) { hdr.atp.marked = 1; }
    }
}

control SwitchCompute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control SwitchDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(SwitchParser(), SwitchVerify(), SwitchIngress(), SwitchEgress(), SwitchCompute(), SwitchDeparser()) main;
