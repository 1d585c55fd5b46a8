// Header unions: extracted, made valid and invalid, copied, compared; stacks of unions.

#include "common.p4"

header command_t {
    bit<8> operation;
    bit<8> index;
    bit<8> result;
}

header byte_t {
    bit<8> value;
}

header word_t {
    bit<16> value;
}

header_union option_t {
    byte_t byte;
    word_t word;
}

struct headers_t {
    command_t command;
    option_t first;
    option_t second;
    option_t[3] more;
    option_t[3] copies;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.command);
        transition select(packet.lookahead<bit<8>>()) {
            0: parse_bytes;
            default: parse_word;
        }
    }
    state parse_bytes {
        packet.extract(h.first.byte);
        packet.extract(h.second.byte);
        transition parse_more;
    }
    state parse_word {
        packet.extract(h.first.word);
        transition parse_more;
    }
    state parse_more {
        transition select(packet.lookahead<bit<8>>()) {
            0xB0: parse_byte_of_more;
            0xC0: parse_word_of_more;
            default: accept;
        }
    }
    state parse_byte_of_more {
        packet.extract(h.more.next.byte);
        transition parse_more;
    }
    state parse_word_of_more {
        packet.extract(h.more.next.word);
        transition parse_more;
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error == error.StackOutOfBounds) {
            h.command.result = 0xEE;
        } else if (h.command.operation == 1) {
            h.first.word.setValid();
            h.first.word.value = 0xABCD;
        } else if (h.command.operation == 2) {
            h.first.byte.setInvalid();
        } else if (h.command.operation == 3) {
            h.second = h.first;
        } else if (h.command.operation == 4) {
            h.second.byte = h.first.byte;
        } else if (h.command.operation == 5) {
            if (h.first.isValid()) {
                h.command.result[0:0] = 1;
            }
            if (h.second.isValid()) {
                h.command.result[1:1] = 1;
            }
            if (h.first.byte.isValid()) {
                h.command.result[2:2] = 1;
            }
            if (h.first == h.second) {
                h.command.result[3:3] = 1;
            }
        } else if (h.command.operation == 6) {
            h.copies = h.more;
            h.more[1].byte.setInvalid();
        } else if (h.command.operation == 7) {
            h.more[0] = h.more[2];
        } else if (h.command.operation == 8) {
            h.more.push_front(1);
            h.more[0].byte.setValid();
            h.more[0].byte.value = 0x2A;
        } else if (h.command.operation == 9) {
            h.more.pop_front(1);
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        if (h.command.operation == 10) {
            h.first.byte.setValid();
            h.first.byte.value = 0x55;
        }
    }
}

NO_CHECKSUMS

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.command);
        packet.emit(h.first);
        packet.emit(h.second);
        packet.emit(h.more);
        packet.emit(h.copies);
    }
}

MAIN
