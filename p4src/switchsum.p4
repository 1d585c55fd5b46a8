// SPDX-License-Identifier: Apache-2.0
//
// switchsum: a v1model switch that adds the packets of distributed training while they pass. README.md has a drawing.
//
// config.p4      sizes to choose                           admission.p4   who may contribute
// wire.p4        the aggregation header and its numbers    dispatch.p4    where a frame goes
// types.p4       types, lengths and other numbers          cells.p4       registers of the slot machine
// chunks.p4      lists of fields, for lack of loops        slot.p4        the slot machine
// headers.p4     the frame and its metadata                lanes.p4       wide-lane arithmetic
// parser.p4      parser, deparser                          forwarding.p4  ARP, ping, ordinary traffic
// checksums.p4   checksums                                 owners.p4      whose slot it is, of those that are shared
// loss.p4        the drop simulator                        reply.p4       answers, counters
// validate.p4    is the frame what it says?                egress.p4      results get their addresses

#include <core.p4>
#include <v1model.p4>

#include "parser.p4"
#include "checksums.p4"
#include "loss.p4"
#include "validate.p4"
#include "dispatch.p4"
#include "reply.p4"
#include "egress.p4"

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Loss(reason_t.LOST_INGRESS) ingress_loss;    // not "loss" as in egress: short names must be unique
    Validate() validate;
    Dispatch() dispatch;
    Reply() reply;

    // Who this switch is. growth_bytes: by how much a frame may grow here (BMv2: 512).
    action identify(mac_t mac, ip_t ip, bit<16> port, bit<16> growth_bytes) {
        meta.own_mac = mac;
        meta.own_ip = ip;
        meta.own_port = port;
        meta.growth_bytes = growth_bytes;
    }

    table identity {
        actions = { identify; }
        default_action = identify(0, 0, AGGREGATION_PORT, 512);
    }

    apply {
        identity.apply();
        ingress_loss.apply(meta, standard_metadata.ingress_port);
        if (meta.reason == reason_t.NONE) {
            validate.apply(hdr, meta, standard_metadata);
            if (meta.reason == reason_t.NONE) {
                dispatch.apply(hdr, meta, standard_metadata);
            }
        }
        reply.apply(hdr, meta, standard_metadata);
    }
}

V1Switch(SwitchParser(), VerifyChecksums(), SwitchIngress(), SwitchEgress(), ComputeChecksums(), SwitchDeparser()) main;

#undef LANES
#undef CHUNKS_2
#undef CHUNKS_4
#undef CHUNKS_30
#undef CHUNKS_32
#undef CHUNKS_PAIRS_16
#undef CHUNKS_EACH
#undef CHUNKS_PADDING
#undef CHUNKS_PAIRS
