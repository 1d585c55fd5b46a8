// One table of each kind; every table writes what it found into a byte of its own.

#include "common.p4"

header key_t {
    bit<8> a;
    bit<16> b;
    bit<48> c;
    bit<128> d;
    bit<8> spare;
}

header found_t {
    bit<8> exact_;
    bit<8> lpm_;
    bit<8> ternary_;
    bit<8> range_;
    bit<8> optional_;
    bit<8> keyless;
    bit<8> declared;
    bit<8> hit;
    bit<8> run;
    bit<8> wide;
    bit<8> valid;
}

struct headers_t {
    key_t key;
    found_t found;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.key);
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) exact_counter;

    action found_exact(bit<8> value, bit<48> echo) {
        h.found.exact_ = value;
        h.key.c = echo;
    }
    action found_lpm(bit<8> value) { h.found.lpm_ = value; }
    action found_ternary(bit<8> value) { h.found.ternary_ = value; }
    action found_range(bit<8> value) { h.found.range_ = value; }
    action found_optional(bit<8> value) { h.found.optional_ = value; }
    action found_keyless(bit<8> value) { h.found.keyless = value; }
    action found_declared(bit<8> value) { h.found.declared = value; }
    action found_hit(bit<8> value) { h.found.hit = value; }
    action one() {}
    action two(bit<8> value) { h.found.run = value; }
    action found_wide(bit<128> value) {
        h.key.d = value;
        h.found.wide = 1;
    }
    action found_valid(bit<8> value) { h.found.valid = value; }

    table exact_table {
        key = {
            h.key.a: exact;
            h.key.c: exact;
        }
        actions = { found_exact; NoAction; }
        default_action = found_exact(0xEE, 7);
        counters = exact_counter;
        size = 64;
    }
    table lpm_table {
        key = {
            h.key.a: exact;
            h.key.b: lpm;
        }
        actions = { found_lpm; }
        default_action = found_lpm(0xEE);
    }
    table ternary_table {
        key = {
            h.key.a: ternary;
            h.key.b: ternary;
            h.key.d: exact;
        }
        actions = { found_ternary; }
        default_action = found_ternary(0xEE);
    }
    table range_table {
        key = {
            h.key.b: range;
            h.key.a: ternary;
            h.key.d: range;
        }
        actions = { found_range; }
        default_action = found_range(0xEE);
    }
    table optional_table {
        key = { h.key.b: optional; }
        actions = { found_optional; }
        default_action = found_optional(0xEE);
    }
    table keyless_table {
        actions = { found_keyless; }
        default_action = found_keyless(0xEE);
    }
    table declared_table {
        key = { h.key.b: ternary; }
        actions = { found_declared; }
        const default_action = found_declared(0xEE);
        const entries = {
            0x0100 &&& 0xFF00: found_declared(1);
            0x0000 &&& 0x00FF: found_declared(2);
            0x1234: found_declared(3);
        }
    }
    table hit_table {
        key = { h.key.a: exact; }
        actions = { found_hit; }
        default_action = found_hit(0xEE);
    }
    table run_table {
        key = { h.key.a: exact; }
        actions = { one; two; NoAction; }
        default_action = NoAction();
    }
    table wide_table {
        key = { h.key.d: exact; }
        actions = { found_wide; NoAction; }
        default_action = NoAction();
    }
    table valid_table {
        key = {
            h.key.isValid(): exact;
            h.key.a & 0x0F: exact @name("low");
        }
        actions = { found_valid; NoAction; }
        default_action = NoAction();
    }

    apply {
        h.found.setValid();
        exact_table.apply();
        lpm_table.apply();
        ternary_table.apply();
        range_table.apply();
        optional_table.apply();
        keyless_table.apply();
        declared_table.apply();
        if (hit_table.apply().hit) {
            h.found.hit = h.found.hit + 100;
        } else {
            h.found.hit = h.found.hit + 1;
        }
        switch (run_table.apply().action_run) {
            one: { h.found.run = 0x11; }
            two: { h.found.run = h.found.run + 1; }
            default: { h.found.run = 0x33; }
        }
        wide_table.apply();
        valid_table.apply();
        standard.egress_spec = 1;
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.key);
        packet.emit(h.found);
    }
}

NO_CHECKSUMS
NO_EGRESS
MAIN
