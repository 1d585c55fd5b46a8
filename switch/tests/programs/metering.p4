// Meters of both kinds over both units: in the fields of a frame stands which ones it passes, and it leaves with the
// colours.

#include <core.p4>
#include <v1model.p4>

header report_t {
    bit<8> station;
    bit<8> cell;
    bit<8> by_packets;
    bit<8> by_bytes;
    bit<8> by_station;
    bit<8> by_group;
}

struct headers_t {
    report_t report;
}

struct metadata_t {
    bit<8> station_colour;
    bit<2> group_colour;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.report);
        transition accept;
    }
}

control Verify(inout headers_t h, inout metadata_t m) {
    apply {}
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    meter(16, MeterType.packets) packets;
    meter(4, MeterType.bytes) bytes;
    direct_meter<bit<8>>(MeterType.packets) station_meter;
    direct_meter<bit<2>>(MeterType.bytes) group_meter;

    action known() {
        station_meter.read(m.station_colour);
    }
    action grouped() {
        group_meter.read(m.group_colour);
    }
    table stations {
        key = {
            h.report.station: exact;
        }
        actions = {
            known;
            NoAction;
        }
        const default_action = NoAction();
        meters = station_meter;
        size = 8;
    }
    table groups {
        key = {
            h.report.station: ternary;
        }
        actions = {
            grouped;
            NoAction;
        }
        const default_action = NoAction();
        meters = group_meter;
        size = 8;
    }
    apply {
        standard.egress_spec = 1;
        m.station_colour = 7;
        m.group_colour = 3;
        packets.execute_meter((bit<32>)h.report.cell, h.report.by_packets);
        bytes.execute_meter((bit<32>)h.report.cell, h.report.by_bytes);
        stations.apply();
        groups.apply();
        h.report.by_station = m.station_colour;
        h.report.by_group = (bit<8>)m.group_colour;
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {}
}

control Update(inout headers_t h, inout metadata_t m) {
    apply {}
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.report);
    }
}

V1Switch(SwitchParser(), Verify(), SwitchIngress(), SwitchEgress(), Update(), SwitchDeparser()) main;
