// Registers of several widths, counters, random numbers; indices may lie beyond the end.

#include "common.p4"

header request_t {
    bit<16> index;
    bit<8> low;
    bit<8> high;
    bit<1> one;
    bit<7> seven;
    bit<88> tag;
    int<16> number;
    bit<136> long;
    bit<32> dice;
    bit<64> big_dice;
}

struct headers_t {
    request_t request;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.request);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    register<bit<1>>(8) ones;
    register<bit<7>>(8) sevens;
    register<bit<88>>(8) tags;
    register<int<16>>(8) numbers;
    register<bit<136>>(8) longs;
    counter(4, CounterType.packets_and_bytes) events;

    apply {
        bit<32> index = (bit<32>)h.request.index;
        bit<1> one;
        bit<7> seven;
        bit<88> tag;
        int<16> number;
        bit<136> long;
        ones.read(one, index);
        sevens.read(seven, index);
        tags.read(tag, index);
        numbers.read(number, index);
        longs.read(long, index);
        one = one ^ h.request.one;
        seven = seven + h.request.seven;
        tag = tag + h.request.tag;
        number = number - h.request.number;
        long = long + h.request.long;
        ones.write(index, one);
        sevens.write(index, seven);
        tags.write(index, tag);
        numbers.write(index, number);
        longs.write(index, long);
        h.request.one = one;
        h.request.seven = seven;
        h.request.tag = tag;
        h.request.number = number;
        h.request.long = long;
        events.count(index);
        events.count((bit<32>)h.request.low);
        random(h.request.dice, (bit<32>)h.request.low, (bit<32>)h.request.high);
        random(h.request.big_dice, 64w0, 0xFFFFFFFFFFFFFFFF);
        standard.egress_spec = 1;
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.request);
    }
}

NO_CHECKSUMS
NO_EGRESS
MAIN
