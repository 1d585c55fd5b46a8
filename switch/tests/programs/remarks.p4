// What says something about a packet and does nothing to it: log_msg, assert, assume; numbers of all kinds in texts.

#include "common.p4"

header word_t {
    bit<8> value;
    int<16> change;
    bit<136> wide;
}

struct headers_t {
    word_t word;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.word);
        log_msg("parsed {}", { h.word.value });
        transition accept;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        assume(h.word.isValid());
        assert(h.word.value < 100);
        log_msg("forwarded {} and {}, {}", { h.word.change, h.word.wide, h.word.value == 7 });
        log_msg("nothing");
        standard.egress_spec = 1;
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        log_msg("sent with {}", { h.word.change });
        assert(h.word.change != 4);
        packet.emit(h);
        truncate(20);
    }
}

NO_CHECKSUMS
NO_EGRESS
MAIN
