// Header stacks: extracted in a loop, pushed, popped, indexed at run time, copied.

#include "common.p4"

header command_t {
    bit<8> operation;
    bit<8> index;
    bit<8> result;
}

header label_t {
    bit<7> value;
    bit<1> last;
}

header number_t {
    int<8> value;
    bit<8> next;
}

struct headers_t {
    command_t command;
    label_t[4] labels;
    label_t[4] copies;
    number_t[3] numbers;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.command);
        transition select(h.command.operation) {
            7: parse_numbers;
            8: parse_numbers;
            default: parse_label;
        }
    }
    state parse_numbers {
        packet.extract(h.numbers.next);
        packet.extract(h.numbers.next);
        packet.extract(h.numbers.next);
        transition select(h.numbers.last.value) {
            8s1: parse_label;
            default: accept;
        }
    }
    state parse_label {
        packet.extract(h.labels.next);
        transition select(h.labels.last.last) {
            1: accept;
            default: parse_label;
        }
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error == error.StackOutOfBounds) {
            h.command.result = 0xEE;
        } else if (h.command.operation == 1) {
            h.labels.push_front(1);
            h.labels[0].setValid();
            h.labels[0].value = 0x55;
        } else if (h.command.operation == 2) {
            h.labels.pop_front(2);
        } else if (h.command.operation == 3) {
            h.command.result = (bit<8>)h.labels[h.command.index].value;
        } else if (h.command.operation == 4) {
            h.labels[h.command.index].value = 0x2A;
        } else if (h.command.operation == 5) {
            h.copies = h.labels;
            h.copies[0].value = 1;
        } else if (h.command.operation == 6) {
            h.labels[3] = h.labels[0];
        } else if (h.command.operation == 7) {
            if (h.numbers[h.command.index].value < 0) {
                h.command.result = (bit<8>)(h.numbers[h.command.index].value |-| h.numbers[0].value);
            }
        } else if (h.command.operation == 8) {
            h.numbers[h.numbers[0].next].next = h.command.index;
        }
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.command);
        packet.emit(h.labels);
        packet.emit(h.copies);
        packet.emit(h.numbers);
    }
}

NO_CHECKSUMS
NO_EGRESS
MAIN
