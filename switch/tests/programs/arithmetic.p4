// Every operator on narrow values; what comes in is overwritten by results.

#include "common.p4"

header operands_t {
    bit<8> a;
    bit<8> b;
    int<8> c;
    int<8> d;
    bit<13> e;
    bit<3> f;
}

header results_t {
    bit<8> sum;
    bit<8> difference;
    bit<8> product;
    bit<8> both;
    bit<8> either;
    bit<8> one;
    bit<8> inverse;
    bit<8> left;
    bit<8> right;
    int<8> signed_right;
    bit<8> saturated_sum;
    bit<8> saturated_difference;
    int<8> signed_saturated_sum;
    int<8> signed_saturated_difference;
    bit<16> joined;
    bit<8> sliced;
    bit<8> chosen;
    int<16> widened;
    bit<16> extended;
    bit<8> constant_left;
    bit<8> constant_right;
    bit<1> less;
    bit<1> less_signed;
    bit<1> equal;
    bit<1> logic;
    bit<4> narrow;
    bit<8> negated;
    bit<16> odd_sum;
}

struct headers_t {
    operands_t in_;
    results_t out_;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.in_);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        h.out_.setValid();
        bit<8> a = h.in_.a;
        bit<8> b = h.in_.b;
        h.out_.sum = a + b;
        h.out_.difference = a - b;
        h.out_.product = a * b;
        h.out_.both = a & b;
        h.out_.either = a | b;
        h.out_.one = a ^ b;
        h.out_.inverse = ~a;
        h.out_.left = a << b;
        h.out_.right = a >> b;
        h.out_.signed_right = h.in_.c >> b;
        h.out_.saturated_sum = a |+| b;
        h.out_.saturated_difference = a |-| b;
        h.out_.signed_saturated_sum = h.in_.c |+| h.in_.d;
        h.out_.signed_saturated_difference = h.in_.c |-| h.in_.d;
        h.out_.joined = a ++ b;
        h.out_.sliced = (a ++ b)[11:4];
        h.out_.chosen = a > b ? a : b;
        h.out_.widened = (int<16>)h.in_.c;
        h.out_.extended = (bit<16>)a;
        h.out_.constant_left = a << 3;
        h.out_.constant_right = a >> 3;
        h.out_.less = a < b ? 1w1 : 0;
        h.out_.less_signed = h.in_.c < h.in_.d ? 1w1 : 0;
        h.out_.equal = (bit<1>)(a == b);
        h.out_.logic = (bit<1>)(a != 0 && b != 0 || !(a < 5));
        h.out_.narrow = a[3:0] + b[7:4];
        h.out_.negated = -a;
        h.out_.odd_sum = (bit<16>)(h.in_.e + (bit<13>)h.in_.f);
        h.in_.setInvalid();
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
