// Every hash algorithm over fields that are no whole bytes and the payload, as a checksum that is verified or updated.

#include "common.p4"

header hashes_t {
    bit<8> a;
    bit<3> b;
    bit<5> wrong;
    bit<16> csum16;
    bit<16> crc16;
    bit<32> crc32;
    bit<16> xor16;
    bit<64> identity;
}

struct headers_t {
    hashes_t hashes;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.hashes);
        transition accept;
    }
}

#define FIELDS { h.hashes.a, h.hashes.b }

control Verify(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum_with_payload(true, FIELDS, h.hashes.crc32, HashAlgorithm.crc32);
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        h.hashes.wrong = (bit<5>)standard.checksum_error;
        standard.egress_spec = 1;
    }
}

control Update(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum_with_payload(true, FIELDS, h.hashes.csum16, HashAlgorithm.csum16);
        update_checksum_with_payload(true, FIELDS, h.hashes.crc16, HashAlgorithm.crc16);
        update_checksum_with_payload(true, FIELDS, h.hashes.crc32, HashAlgorithm.crc32);
        update_checksum_with_payload(true, FIELDS, h.hashes.xor16, HashAlgorithm.xor16);
        update_checksum_with_payload(true, FIELDS, h.hashes.identity, HashAlgorithm.identity);
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply { packet.emit(h.hashes); }
}

NO_EGRESS
MAIN
