// Types that the control plane has in another form: wider numbers, strings, and enums with a width.

#include "common.p4"

@p4runtime_translation("own/port", 32)
type bit<9> port_t;

@p4runtime_translation("own/group", string)
type bit<10> group_t;

enum bit<4> kind_t {
    PLAIN = 1,
    TAGGED = 2
}

header flow_t {
    bit<8> key;
    kind_t kind;
    bit<4> pad;
    bit<16> chosen;
}

@controller_header("packet_in")
header from_switch_t {
    port_t port;
    bit<7> unused;
}

@controller_header("packet_out")
header to_switch_t {
    port_t port;
    group_t group;
    bit<5> unused;
}

struct headers_t {
    from_switch_t from_switch;
    to_switch_t to_switch;
    flow_t flow;
}

struct user_metadata_t {
    port_t port;
    group_t group;
}

parser SwitchParser(packet_in packet, out headers_t h, inout user_metadata_t m, inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            510: parse_to_switch;
            default: parse_flow;
        }
    }
    state parse_to_switch {
        packet.extract(h.to_switch);
        transition parse_flow;
    }
    state parse_flow {
        packet.extract(h.flow);
        transition accept;
    }
}

control Verify(inout headers_t h, inout user_metadata_t m) { apply {} }
control Update(inout headers_t h, inout user_metadata_t m) { apply {} }

control SwitchIngress(inout headers_t h, inout user_metadata_t m, inout standard_metadata_t standard) {
    action group(group_t group) {
        m.group = group;
    }

    action forward(port_t port) {
        standard.egress_spec = (bit<9>)port;
    }

    table kinds {
        key = { h.flow.key: exact; h.flow.kind: ternary; }
        actions = { group; NoAction; }
        default_action = NoAction();
    }

    table groups {
        key = { m.group: exact; m.port: optional; }
        actions = { forward; NoAction; }
        default_action = NoAction();
    }

    apply {
        m.port = (port_t)standard.ingress_port;
        kinds.apply();
        groups.apply();
        h.flow.chosen = (bit<16>)(bit<10>)m.group;
        if (h.to_switch.isValid()) {
            standard.egress_spec = (bit<9>)h.to_switch.port;
            h.flow.chosen = (bit<16>)(bit<10>)h.to_switch.group;
            h.to_switch.setInvalid();
        } else if (h.flow.key == 255) {
            h.from_switch.setValid();
            h.from_switch.port = m.port;
            standard.egress_spec = 510;
        }
    }
}

control SwitchEgress(inout headers_t h, inout user_metadata_t m, inout standard_metadata_t standard) { apply {} }

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.from_switch);
        packet.emit(h.flow);
    }
}

MAIN
