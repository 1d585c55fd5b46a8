// What happens between ingress and egress: groups, dropping, truncation, exit, standard metadata.

#include "common.p4"

header command_t {
    bit<8> operation;
    bit<8> argument;
}

header seen_t {
    bit<16> port;
    bit<16> instance;
    bit<8> type;
    bit<8> mark;
    bit<48> time;
}

struct headers_t {
    command_t command;
    seen_t seen;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.command);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action leave() { exit; }
    apply {
        h.seen.setValid();
        h.seen.time = standard.ingress_global_timestamp;
        standard.egress_spec = standard.ingress_port + 1;
        if (h.command.operation == 1) {
            standard.mcast_grp = (bit<16>)h.command.argument;
        } else if (h.command.operation == 2) {
            standard.mcast_grp = 1;
            mark_to_drop(standard);
        } else if (h.command.operation == 3) {
            mark_to_drop(standard);
            standard.egress_spec = 3;
        } else if (h.command.operation == 4) {
            mark_to_drop(standard);
            standard.mcast_grp = (bit<16>)h.command.argument;
        } else if (h.command.operation == 5) {
            truncate((bit<32>)h.command.argument);
            truncate(20);
        } else if (h.command.operation == 6) {
            leave();
        }
        h.seen.mark = 1;
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    action leave() { exit; }
    apply {
        h.seen.port = (bit<16>)standard.egress_port;
        h.seen.instance = standard.egress_rid;
        h.seen.type = (bit<8>)standard.instance_type;
        if (h.command.operation == 7 || h.command.argument == 2 && standard.egress_rid == 5) {
            mark_to_drop(standard);
        } else if (h.command.operation == 8) {
            leave();
        }
        h.seen.mark = h.seen.mark + 2;
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.command);
        packet.emit(h.seen);
    }
}

NO_CHECKSUMS
MAIN
