// One of each thing that P4Runtime can write to: what tests of the server load.
// Compile: p4c-bm2-ss --arch v1model -o entities.json --p4runtime-files entities.p4info.txtpb entities.p4

#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 255;

@controller_header("packet_in")
header packet_in_t {
  bit<9> ingress_port;
  bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
  bit<9> egress_port;
  bit<7> _pad;
}

header ethernet_t {
  bit<48> destination;
  bit<48> source;
  bit<16> kind;
}

header payload_t {
  bit<8> a;
  bit<8> b;
  bit<12> c;
  bit<12> d;
  bit<32> e;
}

struct headers_t {
  packet_in_t packet_in;
  packet_out_t packet_out;
  ethernet_t ethernet;
  payload_t payload;
}

struct metadata_t {}

parser TestParser(packet_in packet, out headers_t headers, inout metadata_t m, inout standard_metadata_t standard) {
  state start {
    transition select(standard.ingress_port) {
      CPU_PORT: parse_packet_out;
      default: parse_ethernet;
    }
  }
  state parse_packet_out {
    packet.extract(headers.packet_out);
    transition parse_ethernet;
  }
  state parse_ethernet {
    packet.extract(headers.ethernet);
    transition select(headers.ethernet.kind) {
      0x88B5: parse_payload;
      default: accept;
    }
  }
  state parse_payload {
    packet.extract(headers.payload);
    transition accept;
  }
}

control TestVerifyChecksum(inout headers_t headers, inout metadata_t m) {
  apply {}
}

control TestIngress(inout headers_t headers, inout metadata_t m, inout standard_metadata_t standard) {
  counter(8, CounterType.packets_and_bytes) by_port;
  direct_counter(CounterType.packets_and_bytes) hits;
  register<bit<32>>(16) words;
  register<bit<256>>(4) wide;
  register<int<16>>(4) signed_words;

  action drop() {
    mark_to_drop(standard);
  }
  action forward(bit<9> port) {
    standard.egress_spec = port;
  }
  action multicast(bit<16> group) {
    standard.mcast_grp = group;
  }
  action to_controller() {
    standard.egress_spec = CPU_PORT;
    headers.packet_in.setValid();
    headers.packet_in.ingress_port = standard.ingress_port;
    headers.packet_in.reason = 5;
  }
  action tally(bit<32> index) {
    by_port.count(index);
    bit<32> value;
    words.read(value, index);
    words.write(index, value + 1);
  }
  action remember(bit<256> value, bit<16> number) {
    wide.write(0, value);
    signed_words.write(0, (int<16>) number);
  }
  action mark(bit<8> value) {
    headers.payload.b = value;
  }

  table stations {
    key = { headers.ethernet.destination: exact @name("destination"); }
    actions = { forward; multicast; to_controller; @defaultonly drop; @tableonly tally; }
    default_action = drop();
    counters = hits;
    size = 4;
  }
  table routes {
    key = { headers.payload.e: lpm @name("e"); }
    actions = { mark; NoAction; }
  }
  table rules {
    key = {
      headers.payload.a: exact @name("a");
      headers.payload.c: ternary @name("c");
      headers.payload.d: range @name("d");
      headers.payload.b: optional @name("b");
      headers.payload.e: lpm @name("e");
    }
    actions = { mark; NoAction; }
    const default_action = NoAction();
    size = 16;
  }
  table fixed {
    key = { headers.payload.a: exact @name("a"); }
    actions = { tally; NoAction; }
    const entries = {
      1: tally(1);
      2: tally(2);
    }
  }
  table keyless {
    actions = { remember; NoAction; }
    default_action = remember(7, 0xFFFE);
  }

  apply {
    if (headers.packet_out.isValid()) {
      standard.egress_spec = headers.packet_out.egress_port;
      headers.packet_out.setInvalid();
    } else {
      stations.apply();
      if (headers.payload.isValid()) {
        routes.apply();
        rules.apply();
        fixed.apply();
        keyless.apply();
      }
    }
  }
}

control TestEgress(inout headers_t headers, inout metadata_t m, inout standard_metadata_t standard) {
  apply {}
}

control TestComputeChecksum(inout headers_t headers, inout metadata_t m) {
  apply {}
}

control TestDeparser(packet_out packet, in headers_t headers) {
  apply {
    packet.emit(headers.packet_in);
    packet.emit(headers.ethernet);
    packet.emit(headers.payload);
  }
}

V1Switch(
  TestParser(), TestVerifyChecksum(), TestIngress(), TestEgress(), TestComputeChecksum(), TestDeparser()
) main;
