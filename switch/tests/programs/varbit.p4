// Fields of variable length: extracted with a length, in stacks, copied, compared, hashed, in checksums, and sent.

#include "common.p4"

header command_t {
    bit<8> operation;
    bit<8> bits;
    bit<32> result;
    bit<16> checksum;
}

header option_t {
    bit<4> kind;
    bit<4> flags;
    varbit<96> data;
    bit<4> next;
    bit<12> behind;
}

header long_t {
    varbit<16384> data;
}

header item_t {
    bit<8> bytes;
    varbit<24> data;
}

struct headers_t {
    command_t command;
    option_t option;
    option_t other;
    item_t[3] items;
    long_t long;
}

parser SwitchParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    state start {
        packet.extract(h.command);
        packet.extract(h.option, (bit<32>)h.command.bits);
        transition select(h.option.next) {
            1: parse_other;
            2: parse_item;
            3: parse_long;
            default: accept;
        }
    }
    state parse_other {
        packet.extract(h.other, 32);
        transition accept;
    }
    state parse_item {
        packet.extract(h.items.next, (bit<32>)(packet.lookahead<bit<8>>() << 3));
        transition select(h.items.last.bytes) {
            0: accept;
            default: parse_item;
        }
    }
    state parse_long {
        packet.extract(h.long, 32 * (bit<32>)h.option.behind);
        transition accept;
    }
}

control Verify(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.option.flags == 1, { h.option.kind, h.option.flags, h.option.data, h.option.next, h.option.behind },
            h.command.checksum, HashAlgorithm.csum16);
    }
}

control SwitchIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error != error.NoError) {
            h.command.result = (bit<32>)h.command.bits;
            if (standard.parser_error == error.ParserInvalidArgument) {
                h.command.result[31:24] = 0xA1;
            }
            if (standard.parser_error == error.PacketTooShort) {
                h.command.result[31:24] = 0xA2;
            }
            if (standard.parser_error == error.HeaderTooShort) {
                h.command.result[31:24] = 0xA3;
            }
            if (standard.parser_error == error.StackOutOfBounds) {
                h.command.result[31:24] = 0xA4;
            }
        } else if (h.command.operation == 1) {
            h.other = h.option;
            h.other.kind = 0xF;
        } else if (h.command.operation == 2) {
            h.option.data = h.other.data;
        } else if (h.command.operation == 3) {
            if (h.option == h.other) {
                h.command.result[0:0] = 1;
            }
            if (h.option.data == h.other.data) {
                h.command.result[1:1] = 1;
            }
        } else if (h.command.operation == 4) {
            hash(h.command.result, HashAlgorithm.crc32, (bit<32>)0,
                { h.option.kind, h.option.data, h.other.data, h.option.flags }, 64w0x1_0000_0000);
        } else if (h.command.operation == 5) {
            h.option.setInvalid();
            h.option.setValid();
            h.option.next = 9;
        } else if (h.command.operation == 6) {
            h.items.pop_front(1);
        } else if (h.command.operation == 7) {
            h.option.setInvalid();
        } else if (h.command.operation == 8) {
            h.command.result = (bit<32>)standard.checksum_error;
        }
    }
}

control SwitchEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t standard) {
    apply {
        if (h.command.operation == 7) {
            h.command.result = standard.packet_length;
        }
    }
}

control Update(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum_with_payload(h.option.isValid() && h.option.flags == 2,
            { h.option.kind, h.option.flags, h.option.data, h.option.next, h.option.behind }, h.command.checksum,
            HashAlgorithm.csum16);
    }
}

control SwitchDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h);
    }
}

MAIN
