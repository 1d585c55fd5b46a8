// Packets that live more than once: cloned in ingress and egress, resubmitted, recirculated, with what they keep.

#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> operation;
    bit<8> session;
    bit<8> turns;
}

header trace_t {
    bit<8> where;
    bit<8> type;
    bit<16> instance;
    bit<8> kept;
    bit<8> lost;
    bit<16> port;
    bit<32> length;
    bit<256> wide;
}

struct headers_t {
    trace_t trace;
    command_t command;
}

struct metadata_t {
    @field_list(1, 2)
    bit<8> kept;
    @field_list(2)
    bit<256> wide;
    bit<8> lost;
    // Each is read only where it has been written, in the packet's next life.
    @field_list(3)
    bit<256> resubmitted;
    @field_list(4)
    bit<256> recirculated;
    @field_list(5)
    bit<256> cloned;
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

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (standard.instance_type == 0) {
            m.lost = 9;
            m.kept = h.command.turns;
            m.wide = (bit<256>)h.command.turns << 200;
        }
        if (h.command.operation == 1) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)h.command.session, 1);
            h.command.turns = 0xFF;         // the clone does not see it
        } else if (h.command.operation == 2 && m.kept != 0) {
            m.kept = m.kept - 1;
            m.wide = m.wide + 1;
            h.command.turns = 0xEE;         // forgotten: the packet enters as it came
            resubmit_preserving_field_list(2);
        } else if (h.command.operation == 3) {
            clone(CloneType.I2E, (bit<32>)h.command.session);
            mark_to_drop(standard);
        } else if (h.command.operation == 4) {
            standard.mcast_grp = 1;
            clone_preserving_field_list(CloneType.I2E, (bit<32>)h.command.session, 2);
        } else if (h.command.operation == 8) {
            if (standard.instance_type == 0) {
                m.resubmitted = ((bit<256>)h.command.turns << 200) + 1;
                resubmit_preserving_field_list(3);
            } else {
                h.trace.setValid();
                h.trace.wide = m.resubmitted;
            }
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        bool again = h.command.operation == 5 && m.kept != 0;
        if (again) {
            h.command.turns = h.command.turns - 1;
            m.kept = m.kept - 1;
            recirculate_preserving_field_list(2);
        } else if (h.command.operation == 6 && h.command.turns != 0) {
            h.command.turns = h.command.turns - 1;
            m.wide = m.wide + 1;
            clone_preserving_field_list(CloneType.E2E, (bit<32>)h.command.session, 2);
        } else if (h.command.operation == 7 && standard.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>)h.command.session, 1);
            mark_to_drop(standard);
        } else if (h.command.operation == 9) {
            again = m.recirculated == 0;
            if (again) {
                m.recirculated = ((bit<256>)h.command.turns << 200) + 2;
                recirculate_preserving_field_list(4);
            } else {
                h.trace.setValid();
                h.trace.wide = m.recirculated;
            }
        } else if (h.command.operation == 10) {
            if (standard.instance_type == 0) {
                m.cloned = ((bit<256>)h.command.turns << 200) + 3;
                clone_preserving_field_list(CloneType.E2E, (bit<32>)h.command.session, 5);
            } else {
                h.trace.setValid();
                h.trace.wide = m.cloned;
            }
        }
        if (!again) {
            h.trace.setValid();
            h.trace.where = 2;
            h.trace.type = (bit<8>)standard.instance_type;
            h.trace.instance = standard.egress_rid;
            h.trace.kept = m.kept;
            h.trace.lost = m.lost;
            h.trace.port = (bit<16>)standard.egress_port;
            h.trace.length = standard.packet_length;
            if (h.command.operation < 8) {
                h.trace.wide = m.wide;
            }
        }
    }
}

control Update(inout headers_t h, inout metadata_t m) {
    apply {}
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.trace);
        packet.emit(h.command);
    }
}

V1Switch(SwitchParser(), Verify(), SwitchIngress(), SwitchEgress(), Update(), SwitchDeparser()) main;
