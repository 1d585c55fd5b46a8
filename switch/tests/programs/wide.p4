// Values of up to 2,048 bits: lanes without carries, sums with carries, comparisons, slices, shifts, registers, copies.

#include "common.p4"

header small_t {
    bit<8> operation;
    bit<8> amount;
    bit<16> index;
}

header wide_t {
    bit<2048> a;
    bit<2048> b;
}

header odd_t {
    bit<4> head;
    bit<132> middle;
    bit<128> aligned_not;
    bit<192> tail;
}

struct headers_t {
    small_t small;
    wide_t wide;
    odd_t odd;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.small);
        packet.extract(h.wide);
        packet.extract(h.odd);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    register<bit<2048>>(4) cells;
    register<bit<132>>(2) odd_cells;

    action add() { h.wide.a = h.wide.a + h.wide.b; }
    action subtract() { h.wide.a = h.wide.a - h.wide.b; }
    action lanes() {
        bit<2048> low = (bit<2048>)0x7FFF;
        low = low | low << 16;
        low = low | low << 32;
        low = low | low << 64;
        low = low | low << 128;
        low = low | low << 256;
        low = low | low << 512;
        low = low | low << 1024;
        h.wide.a = ((h.wide.a & low) + (h.wide.b & low)) ^ ((h.wide.a ^ h.wide.b) & ~low);
    }
    action swap() {
        bit<2048> old = h.wide.a;
        h.wide.a = h.wide.b;
        h.wide.b = old;
    }
    action compare() {
        h.small.amount = (h.wide.a == h.wide.b ? 8w1 : 0) | (h.wide.a < h.wide.b ? 8w2 : 0) | (h.wide.a != 0 ? 8w4 : 0);
    }
    action slice() {
        h.small.index = h.wide.a[1031:1016];
        h.small.amount = h.wide.b[5:0] ++ h.wide.a[2047:2046];
        h.odd.head = h.wide.b[1027:1024];
    }
    action shift_left() { h.wide.a = h.wide.a << h.small.amount; }
    action shift_right() { h.wide.a = h.wide.a >> h.small.amount; }
    action keep() {
        bit<2048> sum;
        cells.read(sum, (bit<32>)h.small.index);
        sum = sum ^ h.wide.a;
        cells.write((bit<32>)h.small.index, sum);
        h.wide.b = sum;
        odd_cells.write((bit<32>)h.small.index, h.odd.middle);
    }
    action recall() {
        cells.read(h.wide.a, (bit<32>)h.small.index);
        odd_cells.read(h.odd.middle, (bit<32>)h.small.index);
        cells.write((bit<32>)h.small.index, h.wide.b);
    }
    action odd() {
        h.odd.middle = h.odd.middle + 1;
        h.odd.aligned_not = h.odd.aligned_not * 3;
        h.odd.tail = h.odd.tail - 1;
    }
    action halves() { h.wide.a = h.wide.a[1023:0] ++ h.wide.b[2047:1024]; }
    action choose() { h.wide.a = h.small.amount > 127 ? h.wide.b : ~h.wide.a; }
    action chain() {
        h.wide.a = h.wide.a ^ h.wide.b;
        h.wide.b = h.wide.a ^ h.wide.b;
        h.wide.a = h.wide.a ^ h.wide.b;
        if (h.small.amount == 0) {
            h.wide.b = 5;
        }
    }

    table operation {
        key = { h.small.operation: exact; }
        actions = {
            add; subtract; lanes; swap; compare; slice; shift_left; shift_right; keep; recall; odd; halves; choose; chain;
        }
        default_action = add();
        const entries = {
            1: subtract();
            2: lanes();
            3: swap();
            4: compare();
            5: slice();
            6: shift_left();
            7: shift_right();
            8: keep();
            9: recall();
            10: odd();
            11: halves();
            12: choose();
            13: chain();
        }
    }

    apply {
        operation.apply();
        standard.egress_spec = 1;
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.small);
        packet.emit(h.wide);
        packet.emit(h.odd);
    }
}

NO_CHECKSUMS
NO_EGRESS
MAIN
