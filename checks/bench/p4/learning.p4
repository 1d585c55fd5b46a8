// An Ethernet switch that learns by itself: registers hold which station is behind which port, packets for others go to
// all ports but the one where they came in.

#include "common.p4"

struct headers_t {
    ethernet_t ethernet;
}

struct metadata_t {}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.ethernet);
        transition accept;
    }
}

control Verify(inout headers_t h, inout metadata_t m) { apply {} }

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    register<bit<48>>(4096) stations;
    register<bit<9>>(4096) ports;

    apply {
        bit<32> place;
        mac_t known;
        port_t port;
        hash(place, HashAlgorithm.crc32, 32w0, { h.ethernet.source }, 32w4096);
        stations.write(place, h.ethernet.source);
        ports.write(place, standard.ingress_port);
        hash(place, HashAlgorithm.crc32, 32w0, { h.ethernet.destination }, 32w4096);
        stations.read(known, place);
        ports.read(port, place);
        if (known == h.ethernet.destination) {
            standard.egress_spec = port;
        } else {
            standard.mcast_grp = 1;
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}

control Update(inout headers_t h, inout metadata_t m) { apply {} }

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply { packet.emit(h.ethernet); }
}

MAIN
