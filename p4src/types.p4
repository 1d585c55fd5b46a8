// Widths, numbers and limits of switchsum. protocol/wire.py holds the same ones for the hosts; a test compares them.

#ifndef TYPES_P4
#define TYPES_P4

// Lanes of 32 bits in one packet: 128, 256 or 2048, chosen when compiling (-DLANES=...).
#ifndef LANES
#define LANES 256
#endif

// p4c's widest bit type is 2,048 bits: one chunk of 64 lanes, added in one go. CHUNKS(F) writes F(0) F(1) ...
#define CHUNKS_2(F) F(0) F(1)
#define CHUNKS_4(F) CHUNKS_2(F) F(2) F(3)
#define CHUNKS_30(F) CHUNKS_4(F) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16) F(17) \
    F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) F(26) F(27) F(28) F(29)
#define CHUNKS_32(F) CHUNKS_30(F) F(30) F(31)

// BMv2 aborts when a frame grows by more than 512 bytes (two chunks): a contribution without payload is padded by the
// rest, so that it can become a result with payload. 128 lanes need no padding.
#if LANES == 128
#define CHUNKS 2
#define EACH_CHUNK(F) CHUNKS_2(F)
#define EACH_PADDING(F)
#elif LANES == 256
#define CHUNKS 4
#define EACH_CHUNK(F) CHUNKS_4(F)
#define EACH_PADDING(F) CHUNKS_2(F)
#elif LANES == 2048
#define CHUNKS 32
#define EACH_CHUNK(F) CHUNKS_32(F)
#define EACH_PADDING(F) CHUNKS_30(F)
#else
#error "LANES must be 128, 256 or 2048"
#endif

const bit<8> WIRE_VERSION = 3;
const bit<16> AGGREGATION_PORT = 21333;

// Slots of the switch. Each has two versions (cells): while a round may still be repeated, the next one fills.
const bit<32> SLOTS = 1024;
const bit<32> CELLS = 2 * SLOTS;

// Lengths in bytes: lower headers are Ethernet 14, IPv4 20, UDP 8; the aggregation header has 48.
const bit<16> PAYLOAD_BYTES = CHUNKS * 256;
const bit<16> PADDING_BYTES = PAYLOAD_BYTES - 512;
const bit<16> UDP_EMPTY = 8 + 48;
const bit<16> UDP_PAYLOAD = UDP_EMPTY + PAYLOAD_BYTES;
const bit<16> UDP_PADDED = UDP_EMPTY + PADDING_BYTES;
const bit<16> IPV4_BYTES = 20;
const bit<32> ETHERNET_BYTES = 14;
const bit<32> PACKET_OUT_BYTES = 2;

typedef bit<9> port_t;
typedef bit<48> mac_t;
typedef bit<32> ip_t;
typedef bit<64> cookie_t;
typedef bit<2048> chunk_t;

const port_t CPU_PORT = 255;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ETHERTYPE_TAG = 0x8100;            // 802.1Q
const bit<16> ETHERTYPE_SERVICE_TAG = 0x88A8;    // 802.1ad
const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<16> ETHERTYPE_BRIDGED = 0x6558;        // in GRE: a whole Ethernet frame
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_IPV4 = 4;               // a packet in a packet
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_IPV6 = 41;
const bit<8> PROTOCOL_GRE = 47;
const bit<3> MORE_FRAGMENTS = 1;
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;
const bit<16> ICMP_ECHO_REQUEST = 0x0800;   // type 8, code 0
const bit<16> ICMP_ECHO_REPLY = 0x0000;

// What a frame is.
typedef bit<8> kind_t;
const kind_t KIND_CONTRIBUTION = 1;
const kind_t KIND_RESULT = 2;
const kind_t KIND_HELD = 3;
const kind_t KIND_REJECT = 4;
const kind_t KIND_HELLO = 5;
const kind_t KIND_QUERY = 6;
const kind_t KIND_SET = 7;
const kind_t KIND_STATE = 8;

// How contributions are combined.
typedef bit<8> operator_t;
const operator_t OPERATOR_SUM = 1;
@noWarn("unused") const operator_t OPERATOR_MAX = 2;
const operator_t OPERATOR_MIN = 3;
const operator_t OPERATOR_OR = 4;
const operator_t OPERATOR_LAST = OPERATOR_OR;

// How a payload is divided into lanes.
typedef bit<8> format_t;
const format_t FORMAT_INT32 = 1;
const format_t FORMAT_INT16 = 2;
const format_t FORMAT_INT8 = 3;
const format_t FORMAT_INT64 = 4;
const format_t FORMAT_LAST = FORMAT_INT64;

// Next block of a sender that has nothing more to send.
@noWarn("unused") const bit<32> NO_BLOCK = 0xFFFFFFFF;

typedef bit<8> flags_t;
const flags_t FLAG_PAYLOAD = 1;
const flags_t FLAG_OVERFLOW = 2;
const flags_t FLAG_MISMATCH = 4;
const flags_t FLAG_MARK = 8;
@noWarn("unused") const flags_t FLAG_REPEAT = 16;

// What happened to a packet that did not simply pass; the index of its counter.
typedef bit<32> reason_t;
const bit<32> REASONS = 32;
const reason_t REASON_TRUNCATED = 1;
const reason_t REASON_LENGTH = 2;
const reason_t REASON_VERSION = 3;
const reason_t REASON_KIND = 4;
const reason_t REASON_OPERATOR = 5;
const reason_t REASON_FORMAT = 6;
const reason_t REASON_CHECKSUM = 7;
const reason_t REASON_NOT_ADMITTED = 8;
const reason_t REASON_SLOT = 9;
const reason_t REASON_PADDING = 10;
const reason_t REASON_STALE = 11;
const reason_t REASON_HELD = 12;
const reason_t REASON_REPEATED = 13;
const reason_t REASON_MISMATCH = 14;
const reason_t REASON_OVERFLOW = 15;
const reason_t REASON_SPOOFED = 16;
const reason_t REASON_UNKNOWN_DESTINATION = 17;
const reason_t REASON_LOST_INGRESS = 18;
const reason_t REASON_LOST_EGRESS = 19;
const reason_t REASON_CONTRIBUTED = 20;
const reason_t REASON_COMPLETED = 21;
const reason_t REASON_COOKIE = 22;
const reason_t REASON_SPOOFED_INSIDE = 23;
const reason_t REASON_OPAQUE = 24;

#endif
