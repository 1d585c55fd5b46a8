// SPDX-License-Identifier: Apache-2.0
//
// Where a frame goes that is in order.

#ifndef DISPATCH_P4
#define DISPATCH_P4

#include "headers.p4"
#include "cells.p4"
#include "forwarding.p4"

control Dispatch(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Cells() cells;
    OwnAddress() own_address;
    Forwarding() forwarding;

    apply {
        if ((meta.traffic & OF_CELLS) != 0) {
            cells.apply(hdr, meta, standard_metadata.ingress_global_timestamp);
        } else if (meta.traffic == TRAFFIC_HELLO) {
            meta.reply = reply_t.CONTROLLER;
        } else if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
        } else if ((hdr.arp.isValid() && !hdr.vlan_tag.isValid() && hdr.arp.operation == ARP_REQUEST
                    && hdr.arp.target_ip == meta.own_ip)
                || (hdr.icmp.isValid() && hdr.icmp.type_code == ICMP_ECHO_REQUEST
                    && hdr.ipv4.destination == meta.own_ip)) {
            own_address.apply(hdr, meta, standard_metadata);
        } else {
            forwarding.apply(hdr, meta, standard_metadata);
        }
    }
}

#endif
