// Actions and controls that take metadata, headers and fields as parameters of each direction.

#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> operation;
    bit<8> port;
    bit<8> first;
    bit<8> second;
}

struct headers_t {
    command_t command;
    command_t other;
}

struct metadata_t {
    bit<8> kept;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.command);
        transition accept;
    }
}

control Verify(inout headers_t h, inout metadata_t m) {
    apply {}
}

// One action for all controls, which drops whatever metadata it is given.
action deny(inout standard_metadata_t s) {
    mark_to_drop(s);
}

control Judge(inout command_t command, inout standard_metadata_t s, out bit<8> verdict) {
    action refuse() {
        verdict = 7;
        mark_to_drop(s);
    }
    action accept_() {
        verdict = 8;
    }
    table decisions {
        key = { command.first: exact; }
        actions = { refuse; accept_; }
        const default_action = refuse();
        size = 16;
    }
    apply {
        verdict = 1;
        decisions.apply();
        command.second = verdict;
    }
}

control Look(in command_t command, in standard_metadata_t s, out bit<8> seen) {
    apply {
        seen = command.first + (bit<8>)s.ingress_port;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    Judge() judge;
    Judge() judge_copy;
    Look() look;
    standard_metadata_t copy;

    action drop_it(inout standard_metadata_t s) {
        mark_to_drop(s);
    }
    action send_to(in bit<8> port, inout standard_metadata_t s) {
        s.egress_spec = (bit<9>)port;
    }
    action make(in command_t from, out command_t to) {
        to.setValid();
        to = from;
        to.first = from.second;
    }
    action swap(inout bit<8> a, inout bit<8> b) {
        bit<8> old = a;
        a = b;
        b = old;
    }
    action allow(bit<9> port) {
        standard.egress_spec = port;
    }
    table acl {
        key = { h.command.first: exact; }
        actions = { allow; deny(standard); drop_it(copy); }
        default_action = deny(standard);
        size = 16;
    }
    apply {
        standard.egress_spec = (bit<9>)h.command.port;
        copy = standard;
        if (h.command.operation == 1) {
            drop_it(standard);
        } else if (h.command.operation == 2) {
            mark_to_drop(copy);             // the packet itself goes on
            h.command.second = (bit<8>)copy.egress_spec;
        } else if (h.command.operation == 3) {
            judge.apply(h.command, standard, m.kept);
            h.command.first = m.kept;
        } else if (h.command.operation == 4) {
            judge_copy.apply(h.command, copy, m.kept);
            h.command.first = (bit<8>)(copy.egress_spec >> 1);
        } else if (h.command.operation == 5) {
            copy.egress_spec = 5;
            drop_it(copy);
            standard.egress_spec = copy.egress_spec;
        } else if (h.command.operation == 6) {
            acl.apply();
        } else if (h.command.operation == 7) {
            make(h.command, h.other);
            swap(h.command.first, h.command.second);
        } else if (h.command.operation == 8) {
            look.apply(h.command, standard, h.command.second);
            send_to(h.command.first, standard);
        } else if (h.command.operation == 9) {
            standard.mcast_grp = 1;
            mark_to_drop(copy);             // the group stays
        } else if (h.command.operation == 10) {
            standard.mcast_grp = 1;
            copy = standard;
            drop_it(copy);
            standard = copy;                // and now it does not
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        if (h.command.operation == 11) {
            deny(standard);
        } else if (h.command.operation == 12) {
            standard_metadata_t copy = standard;
            deny(copy);
            h.command.second = 12;
        }
    }
}

control Update(inout headers_t h, inout metadata_t m) {
    apply {}
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.command);
        packet.emit(h.other);
    }
}

V1Switch(SwitchParser(), Verify(), SwitchIngress(), SwitchEgress(), Update(), SwitchDeparser()) main;
