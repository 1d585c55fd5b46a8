// The hash functions, over whole bytes and over what is none, with base and range.

#include "common.p4"

header input_t {
    bit<32> a;
    bit<32> b;
    bit<8> c;
    bit<16> d;
    bit<4> e;
    bit<4> f;
    bit<256> g;
}

header output_t {
    bit<16> crc16;
    bit<32> crc32;
    bit<16> sum;
    bit<16> exclusive;
    bit<64> identity;
    bit<32> ranged;
    bit<16> odd;
    bit<32> wide;
    bit<8> tiny;
    bit<16> custom16;
    bit<32> custom32;
}

struct headers_t {
    input_t in_;
    output_t out_;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.in_);
        transition accept;
    }
}

#define FIVE { h.in_.a, h.in_.b, h.in_.c, h.in_.d }
#define ODD { h.in_.e, h.in_.a, h.in_.d }

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        h.out_.setValid();
        hash(h.out_.crc16, HashAlgorithm.crc16, 16w0, FIVE, 32w65536);
        hash(h.out_.crc32, HashAlgorithm.crc32, 32w0, FIVE, 64w0x100000000);
        hash(h.out_.sum, HashAlgorithm.csum16, 16w0, FIVE, 32w65536);
        hash(h.out_.exclusive, HashAlgorithm.xor16, 16w0, FIVE, 32w65536);
        hash(h.out_.identity, HashAlgorithm.identity, 64w0, { h.in_.a, h.in_.c }, 64w0xFFFFFFFFFFFFFFFF);
        hash(h.out_.ranged, HashAlgorithm.crc32, 32w100, FIVE, 32w7);
        hash(h.out_.odd, HashAlgorithm.crc16, 16w0, ODD, 32w65536);
        hash(h.out_.wide, HashAlgorithm.crc32, 32w0, { h.in_.g, h.in_.f, h.in_.e }, 64w0x100000000);
        hash(h.out_.tiny, HashAlgorithm.xor16, 8w3, { h.in_.f }, 8w0);
        hash(h.out_.custom16, HashAlgorithm.crc16_custom, 16w0, FIVE, 32w65536);
        hash(h.out_.custom32, HashAlgorithm.crc32_custom, 32w0, FIVE, 64w0x100000000);
        standard.egress_spec = 1;
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.in_);
        packet.emit(h.out_);
    }
}

NO_CHECKSUMS
NO_EGRESS
MAIN
