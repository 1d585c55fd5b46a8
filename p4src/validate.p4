// SPDX-License-Identifier: Apache-2.0
//
// What a frame is, and whether it is what it says: lengths, checksums, version, kind, sender.

#ifndef VALIDATE_P4
#define VALIDATE_P4

#include "headers.p4"
#include "parser.p4"
#include "admission.p4"

// Says in meta.traffic what the frame is, unless it is ordinary, and in meta.reason why it is dropped.
control Validate(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Admission() admission;
    Above() above;

    apply {
        if (hdr.agg.isValid() && hdr.ipv4.destination == meta.own_ip) {
            if (standard_metadata.parser_error != error.NoError) {
                if (standard_metadata.parser_error == error.WrongLengths) {
                    meta.reason = reason_t.LENGTH;
                } else {
                    meta.reason = reason_t.TRUNCATED;
                }
            } else if (standard_metadata.packet_length != ETHERNET_BYTES + (bit<32>)hdr.ipv4.total_length
                    + (hdr.packet_out.isValid() ? PACKET_OUT_BYTES : 0)) {
                meta.reason = reason_t.LENGTH;
            } else if (standard_metadata.checksum_error == 1) {
                meta.reason = reason_t.CHECKSUM;
            } else if (hdr.agg.version != WIRE_VERSION) {
                meta.reason = reason_t.VERSION;
            } else if (hdr.packet_out.isValid()) {
                meta.traffic = TRAFFIC_STATE_REQUEST;
                if (hdr.agg.kind != kind_t.QUERY && hdr.agg.kind != kind_t.SET) {
                    meta.reason = reason_t.KIND;
                } else if (hdr.agg.slot >= SLOTS) {
                    meta.reason = reason_t.SLOT;
                }
            } else if (hdr.agg.kind == kind_t.CONTRIBUTION) {
                admission.apply(hdr, meta, standard_metadata);
            } else if (hdr.agg.kind == kind_t.HELLO) {
                meta.traffic = TRAFFIC_HELLO;
            } else if (hdr.agg.kind == kind_t.RESULT || hdr.agg.kind == kind_t.HELD || hdr.agg.kind == kind_t.REJECT) {
                above.apply(hdr, meta, standard_metadata);
            } else {
                meta.reason = reason_t.KIND;
            }
        } else if (standard_metadata.parser_error == error.Opaque) {
            meta.reason = reason_t.OPAQUE;
        } else if (standard_metadata.parser_error != error.NoError
                && standard_metadata.parser_error != error.WrongLengths) {
            meta.reason = reason_t.TRUNCATED;
        }
    }
}

#endif
