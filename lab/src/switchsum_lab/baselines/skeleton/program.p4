// SPDX-License-Identifier: Apache-2.0
// The least switch that adds and bears loss: one slot, whose rounds are numbered and use two cells in turn.  A worker
// begins a round when it has the sum of the last one.  So nobody needs a cell any more when its next round begins.
#include <core.p4>
#include <v1model.p4>

#ifndef LANES
#define LANES 32
#endif
const bit<16> ETHERTYPE = 0x88B5;  // of experiments (IEEE 802)
const bit<16> EVERYBODY = 1;       // the multicast group of all workers

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ethertype; }
header adding_t { bit<8> worker; bit<8> workers; bit<32> round; }
header lanes_t { bit<(32 * LANES)> all; }
struct headers_t { ethernet_t ethernet; adding_t adding; lanes_t lanes; }
struct metadata_t { }

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) { ETHERTYPE: adding; default: accept; }
    }
    state adding {
        packet.extract(hdr.adding);
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) {
    register<bit<32>>(2) rounds;
    register<bit<32>>(2) bitmaps;
    register<bit<(32 * LANES)>>(2) sums;

    apply {
        bit<32> cell = hdr.adding.round & 1;
        mark_to_drop(standard_md);
        if (!hdr.lanes.isValid()) { return; }
        bit<32> round;
        bit<32> seen;
        bit<(32 * LANES)> sum;
        rounds.read(round, cell);
        bitmaps.read(seen, cell);
        sums.read(sum, cell);
        if (hdr.adding.round < round) { return; }
        if (hdr.adding.round > round) { seen = 0; sum = 0; }
        bit<32> worker = 32w1 << hdr.adding.worker;
        bit<32> all = (32w1 << hdr.adding.workers) - 1;
        if (seen & worker == 0) {
            // All lanes at once: the top bit of each is added apart, so that nothing is carried into the next one.
            bit<(32 * LANES)> top = (bit<(32 * LANES)>)32w0x80000000;
            top = top | (top << 32);
            top = top | (top << 64);
            top = top | (top << 128);
            top = top | (top << 256);
            top = top | (top << 512);
            sum = ((sum & ~top) + (hdr.lanes.all & ~top)) ^ ((sum ^ hdr.lanes.all) & top);
            seen = seen | worker;
            rounds.write(cell, hdr.adding.round);
            bitmaps.write(cell, seen);
            sums.write(cell, sum);
            if (seen == all) { standard_md.mcast_grp = EVERYBODY; }
        } else if (seen == all) {
            standard_md.egress_spec = standard_md.ingress_port;  // the result again, for this worker alone
        }
        hdr.lanes.all = sum;
        hdr.ethernet.source = hdr.ethernet.destination;
    }
}

control SwitchVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_md) { apply { } }
control SwitchCompute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control SwitchDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(SwitchParser(), SwitchVerify(), SwitchIngress(), SwitchEgress(), SwitchCompute(), SwitchDeparser()) main;
