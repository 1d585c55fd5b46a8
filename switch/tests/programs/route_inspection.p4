// Multi-hop route inspection: each switch writes its number and the length of its queue into an option of IPv4.
//
// The checksum of IPv4 covers options, too.  It is a sum of 16-bit words, so that what is added to the words is added to
// it (RFC 1624): to take 0x0100 away, 0xFEFF is added.

#include "common.p4"

const bit<5> TRACED = 31;
const bit<32> ONE_HOP_LESS = 0xFEFF; // of the time to live
const bit<32> ONE_HOP_MORE = 0x0200 + 8 + 8 + 1; // words of the header, both lengths, and the count
#define MOST_HOPS 9

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> words;
    bit<8> service;
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

header option_t {
    bit<1> copied;
    bit<2> class;
    bit<5> number;
    bit<8> length;
}

header hops_t {
    bit<16> count;
}

header hop_t {
    bit<32> station;
    bit<32> depth;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    option_t option;
    hops_t hops;
    hop_t[MOST_HOPS] hop;
}

struct inspected_t {
    bit<16> left;
    bit<32> change; // of the sum of the header's words
}

parser SwitchParser(packet_in packet, out headers_t h, inout inspected_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(h.ipv4);
        transition select(h.ipv4.words) {
            5: accept;
            default: option;
        }
    }
    state option {
        packet.extract(h.option);
        transition select(h.option.number) {
            TRACED: hops;
            default: accept;
        }
    }
    state hops {
        packet.extract(h.hops);
        m.left = h.hops.count;
        transition select(m.left) {
            0: accept;
            default: hop;
        }
    }
    state hop {
        packet.extract(h.hop.next);
        m.left = m.left - 1;
        transition select(m.left) {
            0: accept;
            default: hop;
        }
    }
}

control Verify(inout headers_t h, inout inspected_t m) {
    apply {}
}

control SwitchIngress(inout headers_t h, inout inspected_t m, inout standard_metadata_t standard) {
    action drop() {
        mark_to_drop(standard);
    }
    action forward(bit<9> port) {
        standard.egress_spec = port;
        h.ipv4.ttl = h.ipv4.ttl - 1;
        m.change = ONE_HOP_LESS;
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

control SwitchEgress(inout headers_t h, inout inspected_t m, inout standard_metadata_t standard) {
    action inspect(bit<32> station) {
        bit<32> depth = (bit<32>)standard.deq_qdepth;
        h.hops.count = h.hops.count + 1;
        h.hop.push_front(1);
        h.hop[0].setValid();
        h.hop[0].station = station;
        h.hop[0].depth = depth;
        h.ipv4.words = h.ipv4.words + 2;
        h.option.length = h.option.length + 8;
        h.ipv4.length = h.ipv4.length + 8;
        m.change = m.change + ONE_HOP_MORE + (station >> 16) + (station & 0xFFFF) + (depth >> 16) + (depth & 0xFFFF);
    }
    table stations {
        actions = {
            inspect;
            NoAction;
        }
        default_action = NoAction();
    }
    apply {
        if (h.hops.isValid() && h.hops.count < MOST_HOPS) {
            stations.apply();
        }
        bit<32> sum = (bit<32>)(~h.ipv4.checksum) + m.change;
        sum = (sum & 0xFFFF) + (sum >> 16);
        sum = (sum & 0xFFFF) + (sum >> 16);
        h.ipv4.checksum = ~(bit<16>)sum;
    }
}

control Update(inout headers_t h, inout inspected_t m) {
    apply {}
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.ethernet);
        packet.emit(h.ipv4);
        packet.emit(h.option);
        packet.emit(h.hops);
        packet.emit(h.hop);
    }
}

V1Switch(SwitchParser(), Verify(), SwitchIngress(), SwitchEgress(), Update(), SwitchDeparser()) main;
