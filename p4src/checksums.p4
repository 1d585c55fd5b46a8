// SPDX-License-Identifier: Apache-2.0
//
// Checksums of frames that come in, and of those that the switch has written.

#ifndef CHECKSUMS_P4
#define CHECKSUMS_P4

#include "headers.p4"

control VerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        // With the transmitted checksum among the data a correct frame adds up to zero; so 0xFFFF, which stands for a
        // computed zero (RFC 768), needs no case of its own. Headers that are not valid are left out by the switch.
        verify_checksum(hdr.agg.isValid() && hdr.udp.checksum != 0,
            { hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.length,
              hdr.udp, hdr.agg, hdr.lanes, hdr.narrow, hdr.padding },
            meta.zero, HashAlgorithm.csum16);
        verify_checksum(hdr.agg.isValid(), { hdr.ipv4 }, meta.zero, HashAlgorithm.csum16);
    }
}

control ComputeChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.is_ipv4_changed,
            { hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length, hdr.ipv4.identification,
              hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol,
              hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

#endif
