// switchsum: a v1model switch that adds the packets of distributed training while they pass.
//
// types.p4      widths, numbers, limits        admission.p4   who may contribute
// headers.p4    the frame                      slot.p4        the slot machine
// parser.p4     parser, checksums, deparser    lanes.p4       wide-lane arithmetic
// loss.p4       the drop simulator             forwarding.p4  ARP, ping, ordinary traffic

#include <core.p4>
#include <v1model.p4>

#include "types.p4"
#include "headers.p4"
#include "parser.p4"
#include "loss.p4"
#include "admission.p4"
#include "slot.p4"
#include "forwarding.p4"

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    counter(REASONS, CounterType.packets_and_bytes) events;    // by reason
    Loss(REASON_LOST_INGRESS) ingress_loss;    // not "loss" as in egress: short names must be unique
    Admission() admission;
    Slot() slot;
    OwnAddress() own_address;
    Forwarding() forwarding;

    // Who this switch is. growth_bytes: by how much a frame may grow here (BMv2: 512).
    action identify(mac_t mac, ip_t ip, bit<16> port, bit<16> growth_bytes) {
        m.own_mac = mac;
        m.own_ip = ip;
        m.own_port = port;
        m.growth_bytes = growth_bytes;
    }

    table identity {
        actions = { identify; }
        default_action = identify(0, 0, AGGREGATION_PORT, 512);
    }

    action to_controller() {
        h.packet_in.setValid();
        h.packet_in.ingress_port = standard.ingress_port;
        h.packet_in.unused = 0;
        standard.egress_spec = CPU_PORT;
    }

    // Answers go back where the question came from; results to members are addressed in egress.
    action return_to_sender() {
        h.ethernet.destination = h.ethernet.source;
        h.ipv4.destination = h.ipv4.source;
        h.udp.destination = h.udp.source;
        standard.egress_spec = standard.ingress_port;
    }

    // A frame of the switch's own: its lengths follow from its headers, its UDP checksum is left out.
    action finish_answer() {
        h.ethernet.source = m.own_mac;
        h.ipv4.identification = 0;
        h.ipv4.ecn = 0;
        h.ipv4.ttl = 64;
        h.ipv4.source = m.own_ip;
        h.udp.source = m.own_port;
        h.udp.checksum = 0;
        if (h.agg.flags & FLAG_PAYLOAD != 0) {
            h.udp.length = UDP_PAYLOAD;
            h.ipv4.total_length = IPV4_BYTES + UDP_PAYLOAD;
        } else {
            h.lanes.setInvalid();
            h.udp.length = UDP_EMPTY;
            h.ipv4.total_length = IPV4_BYTES + UDP_EMPTY;
        }
        h.padding.setInvalid();
    }

    action reject() {
        m.answered = 1;
        h.agg.kind = KIND_REJECT;
        h.agg.flags = 0;
        h.agg.reason = (bit<8>)m.reason;
    }

    apply {
        identity.apply();
        ingress_loss.apply(m, standard.ingress_port);
        if (m.reason != 0) {
            // lost
        } else if (h.agg.isValid() && h.ipv4.destination == m.own_ip) {
            if (standard.parser_error != error.NoError) {
                if (standard.parser_error == error.WrongLengths) {
                    m.reason = REASON_LENGTH;
                } else {
                    m.reason = REASON_TRUNCATED;
                }
            } else if (standard.packet_length != ETHERNET_BYTES + (bit<32>)h.ipv4.total_length
                    + (h.packet_out.isValid() ? PACKET_OUT_BYTES : 0)) {
                m.reason = REASON_LENGTH;
            } else if (standard.checksum_error == 1) {
                m.reason = REASON_CHECKSUM;
            } else if (h.agg.version != WIRE_VERSION) {
                m.reason = REASON_VERSION;
            } else if (h.packet_out.isValid()) {
                if (h.agg.kind != KIND_QUERY && h.agg.kind != KIND_SET) {
                    m.reason = REASON_KIND;
                } else if (h.agg.slot >= SLOTS) {
                    m.reason = REASON_SLOT;
                }
            } else if (h.agg.kind == KIND_CONTRIBUTION) {
                admission.apply(h, m, standard);
                // Whoever tries cookies learns nothing.
                if (m.reason != 0 && m.reason != REASON_COOKIE) {
                    reject();
                }
            } else if (h.agg.kind != KIND_HELLO) {
                m.reason = REASON_KIND;
            }
            if (m.reason == 0) {
                if (h.agg.kind == KIND_HELLO) {
                    to_controller();
                } else {
                    slot.apply(h, m);
                }
            }
        } else if (standard.parser_error == error.Opaque) {
            m.reason = REASON_OPAQUE;
        } else if (standard.parser_error != error.NoError && standard.parser_error != error.WrongLengths) {
            m.reason = REASON_TRUNCATED;
        } else if (h.packet_out.isValid()) {
            standard.egress_spec = h.packet_out.egress_port;
        } else if (h.arp.isValid() && !h.vlan_tag.isValid() && h.arp.operation == ARP_REQUEST && h.arp.target_ip == m.own_ip
                || h.icmp.isValid() && h.icmp.type_code == ICMP_ECHO_REQUEST && h.ipv4.destination == m.own_ip) {
            own_address.apply(h, m, standard);
        } else {
            forwarding.apply(h, m, standard);
        }

        if (m.answered == 1 && h.agg.isValid()) {
            if (m.to_members == 1) {
                standard.mcast_grp = m.group;
                events.count(REASON_COMPLETED);
            } else {
                return_to_sender();
            }
            finish_answer();
            if (h.packet_out.isValid()) {
                to_controller();
            }
            if (m.reason != 0) {
                events.count(m.reason);
            }
        } else if (m.reason != 0) {
            events.count(m.reason);
            mark_to_drop(standard);
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    counter(REASONS, CounterType.packets_and_bytes) events;    // by reason
    Loss(REASON_LOST_EGRESS) egress_loss;

    action address(mac_t mac, ip_t ip, bit<16> port, cookie_t cookie) {
        h.ethernet.destination = mac;
        h.ipv4.destination = ip;
        h.udp.destination = port;
        h.agg.rank = standard.egress_rid;
        h.agg.cookie = cookie;
    }

    action drop() {
        mark_to_drop(standard);
    }

    // Where the member with this rank is; several may stand behind one port.
    table members {
        key = {
            h.agg.job: exact @name("job");
            standard.egress_rid: exact @name("rank");
        }
        actions = { address; drop; }
        const default_action = drop();
        size = 4096;
    }

    apply {
        if (m.flooded == 1 && standard.egress_port == standard.ingress_port) {
            drop();
        } else {
            if (m.to_members == 1) {
                members.apply();
            }
            egress_loss.apply(m, standard.egress_port);
            if (m.reason == REASON_LOST_EGRESS) {
                events.count(REASON_LOST_EGRESS);
                drop();
            }
        }
    }
}

V1Switch(SwitchParser(), VerifyChecksums(), SwitchIngress(), SwitchEgress(), ComputeChecksums(), SwitchDeparser()) main;
