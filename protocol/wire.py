"""The wire format: Ethernet / IPv4 / UDP / aggregation header / lanes, in network byte order.

The aggregation header, 48 bytes::

     0        1        2        3        4        5        6        7
    +--------+--------+--------+--------+--------+--------+--------+--------+
    |version |kind    |operator|format  |flags   |reason  |exponent|next exp|
    +--------+--------+--------+--------+--------+--------+--------+--------+
    |job              |epoch            |rank             |tree             |
    +-----------------+-----------------+-----------------+-----------------+
    |slot                               |number                             |
    +-----------------------------------+-----------------------------------+
    |block                              |next block                         |
    +-----------------------------------+-----------------------------------+
    |digest                             |bitmap                             |
    +-----------------------------------+-----------------------------------+
    |cookie                                                                 |
    +-----------------------------------------------------------------------+

`p4src/types.p4` and `p4src/headers.p4` hold the same widths and numbers for the switch; a test compares them.
The meaning of each field is documented on `Header`; docs/wire.md tells the whole story.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

WIRE_VERSION: Final = 3
AGGREGATION_PORT: Final = 21333
"""UDP destination port of everything that is addressed to the switch's aggregation service."""

LANE_BYTES: Final = 4
LANE_BUILDS: Final = (128, 256, 2048)
"""Lanes per packet of the compiled builds."""

NO_BLOCK: Final = 0xFFFF_FFFF
"""`next_block` of a sender that has nothing more to send; the largest value, so that the minimum ignores it."""

MAX_WORKERS: Final = 32
"""Members of a job at one switch: one bit each in the bitmap."""

ETHERNET_BYTES: Final = 14
IPV4_BYTES: Final = 20
UDP_BYTES: Final = 8
HEADER_BYTES: Final = 48
LOWER_BYTES: Final = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
"""Bytes in front of the aggregation header."""
FRAME_BYTES: Final = LOWER_BYTES + HEADER_BYTES
"""Length of a frame without payload and without padding."""

PADDING_LESS_BYTES: Final = 512
"""BMv2 aborts when a frame grows by more than this, so padding makes up the rest of a result's payload."""

_LAYOUT: Final = struct.Struct("!8B4H6IQ")
_ETHERNET: Final = struct.Struct("!6s6sH")
_IPV4: Final = struct.Struct("!BBHHHBBHII")
_UDP: Final = struct.Struct("!HHHH")
_ETHERTYPE_IPV4: Final = 0x0800
_PROTOCOL_UDP: Final = 17
_DONT_FRAGMENT: Final = 0x4000


class Kind(IntEnum):
    """What a frame is."""

    CONTRIBUTION = 1
    RESULT = 2
    HELD = 3
    """The switch already has this contribution; `bitmap` says from whom it has one."""
    REJECT = 4
    """The switch refused a contribution; `reason` says why."""
    HELLO = 5
    """A joining member shows its address; `number` and `digest` hold the controller's 64-bit nonce."""
    QUERY = 6
    """From the CPU port: tell the state of the version `number & 1` of the slot `slot`."""
    SET = 7
    """From the CPU port: set `number` and `bitmap` of that version."""
    STATE = 8
    """The answer to QUERY and SET."""


class Operator(IntEnum):
    """How contributions are combined, lane by lane."""

    SUM = 1
    MAX = 2
    MIN = 3
    OR = 4


class LaneFormat(IntEnum):
    """How a payload is divided into lanes (two's complement)."""

    INT32 = 1
    INT16 = 2
    INT8 = 3
    INT64 = 4

    @property
    def bits(self) -> int:
        """Width of one lane in bits."""
        return (0, 32, 16, 8, 64)[self]


class Flag(IntFlag):
    """The header's flags."""

    PAYLOAD = 1
    """Lanes follow.  In a result: some contribution had lanes."""
    OVERFLOW = 2
    """Some partial sum of the round overflowed its lane."""
    MISMATCH = 4
    """Members contributed different operations to the round."""
    MARK = 8
    """Congestion was met on the way."""
    REPEAT = 16
    """The sender has sent this contribution before."""


class Reason(IntEnum):
    """Why the switch dropped a packet or answered it specially; the index of its counter."""

    TRUNCATED = 1
    """Shorter than its own headers say."""
    LENGTH = 2
    """The lengths of frame, IPv4, UDP and flags do not agree."""
    VERSION = 3
    KIND = 4
    """A kind that this port may not send."""
    OPERATOR = 5
    FORMAT = 6
    CHECKSUM = 7
    NOT_ADMITTED = 8
    """No member has this job, tree, rank, epoch, address and ingress port."""
    SLOT = 9
    """Outside the job's slots."""
    PADDING = 10
    """Without payload and too short to become a result with payload on this switch."""
    STALE = 11
    """A number older than the slot's."""
    HELD = 12
    """Answered `held`: a repeat to a round that is not complete."""
    REPEATED = 13
    """Answered with the stored result: a repeat to a complete round."""
    MISMATCH = 14
    """Counted in the round but not combined: another operation than the round's first contribution."""
    OVERFLOW = 15
    """Combined, and a lane overflowed."""
    SPOOFED = 16
    """Ordinary traffic that bears the switch's own address as its source."""
    UNKNOWN_DESTINATION = 17
    LOST_INGRESS = 18
    """Dropped by the drop simulator on arrival."""
    LOST_EGRESS = 19
    """Dropped by the drop simulator on departure (counted in egress)."""
    CONTRIBUTED = 20
    """Taken into a round."""
    COMPLETED = 21
    """Completed a round, whose result went to every member."""
    COOKIE = 22
    """A contribution with another cookie than its member's; it gets no answer."""
    SPOOFED_INSIDE = 23
    """Within a tag or a tunnel, traffic that bears the switch's own address as its source."""
    OPAQUE = 24
    """Tags or a tunnel in which this program cannot look for such an address."""


REASONS: Final = 32
"""Size of the switch's event counter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The aggregation header."""

    kind: Kind | int
    """What the frame is."""
    version: int = WIRE_VERSION
    """Wire version, 8 bits."""
    operator: Operator | int = Operator.SUM
    """How lanes are combined, 8 bits."""
    format: LaneFormat | int = LaneFormat.INT32
    """How the payload is divided into lanes, 8 bits."""
    flags: Flag | int = 0
    """8 bits."""
    reason: Reason | int = 0
    """Of a REJECT: why, 8 bits."""
    exponent: int = 0
    """Of floats: biased exponent, 0 to 255, that the payload was scaled by.  Of integers: 0, or 1 and up, which part of
    them the lanes hold."""
    next_exponent: int = 0
    """Biased exponent of the block `next_block`, 0 to 255; of a result: the largest among those who named it."""
    job: int = 0
    """Number of the job, 16 bits."""
    epoch: int = 0
    """Incarnation of the job, 16 bits."""
    rank: int = 0
    """Of a contribution its sender, of a result its receiver, 16 bits."""
    tree: int = 0
    """Which of the job's trees the slot belongs to, 16 bits."""
    slot: int = 0
    """Slot of the switch, 32 bits."""
    number: int = 0
    """Serial number of the slot's round, 32 bits; its lowest bit is the version."""
    block: int = 0
    """Index of the block that the lanes belong to, 32 bits."""
    next_block: int = NO_BLOCK
    """The sender's next non-zero block in this slot's column; of a result: the smallest; `NO_BLOCK`: none."""
    digest: int = 0
    """Digest of the operation (dtype, shape, operation counter), 32 bits."""
    bitmap: int = 0
    """Which members have contributed, 32 bits."""
    cookie: int = 0
    """What the member, the switch and the controller alone know, 64 bits; 0 in hellos and to and from the CPU port."""

    def pack(self) -> bytes:
        """Encode; raises `struct.error` when a field does not fit its width."""
        return _LAYOUT.pack(
            self.version,
            self.kind,
            self.operator,
            self.format,
            self.flags,
            self.reason,
            self.exponent,
            self.next_exponent,
            self.job,
            self.epoch,
            self.rank,
            self.tree,
            self.slot,
            self.number,
            self.block,
            self.next_block,
            self.digest,
            self.bitmap,
            self.cookie,
        )

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Header | None:
        """Decode the first 48 bytes; None when they are too few.  Field values are not judged here."""
        if len(data) < HEADER_BYTES:
            return None
        values = _LAYOUT.unpack_from(data)
        return cls(**dict(zip(FIELD_ORDER, values, strict=True)))


FIELD_ORDER: Final = (
    "version",
    "kind",
    "operator",
    "format",
    "flags",
    "reason",
    "exponent",
    "next_exponent",
    "job",
    "epoch",
    "rank",
    "tree",
    "slot",
    "number",
    "block",
    "next_block",
    "digest",
    "bitmap",
    "cookie",
)
FIELD_BYTES: Final = dict(zip(FIELD_ORDER, (1,) * 8 + (2,) * 4 + (4,) * 6 + (8,), strict=True))
FIELD_OFFSET: Final = {name: sum(list(FIELD_BYTES.values())[:i]) for i, name in enumerate(FIELD_ORDER)}
"""Byte offset of each field within the aggregation header, for code that reads frames in place."""


_ENUMS: Final = [{member.name: int(member) for member in kind} for kind in (Kind, Operator, LaneFormat, Flag, Reason)]
WIRE_DIGEST: Final = hashlib.sha256(repr((WIRE_VERSION, AGGREGATION_PORT, FIELD_BYTES, _ENUMS)).encode()).hexdigest()[
    :8
]
"""Names the format itself: two sides whose digests differ do not understand each other, whatever version they claim."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Address:
    """Where a member or the switch is reached."""

    mac: int
    """48 bits."""
    ip: int
    """32 bits."""
    port: int
    """UDP port, 16 bits."""

    def __str__(self) -> str:
        return f"{format_ip(self.ip)}:{self.port} ({format_mac(self.mac)})"


def format_ip(ip: int) -> str:
    """Write an IPv4 address in dotted form."""
    return ".".join(str(byte) for byte in ip.to_bytes(4))


def parse_ip(text: str) -> int:
    """Read a dotted IPv4 address; raises ValueError."""
    parts = text.split(".")
    if len(parts) != 4 or not all(part.isdigit() and int(part) < 256 for part in parts):
        raise ValueError(f"not an IPv4 address: {text!r}")
    return int.from_bytes(bytes(int(part) for part in parts))


def format_mac(mac: int) -> str:
    """Write an Ethernet address with colons."""
    return mac.to_bytes(6).hex(":")


def parse_mac(text: str) -> int:
    """Read an Ethernet address written with colons; raises ValueError."""
    parts = text.split(":")
    if len(parts) != 6:
        raise ValueError(f"not an Ethernet address: {text!r}")
    return int.from_bytes(bytes(int(part, 16) for part in parts))


def payload_bytes(lanes: int) -> int:
    """Length of the payload of the build with `lanes` 32-bit lanes."""
    return lanes * LANE_BYTES


def padding_bytes(lanes: int, growth_bytes: int | None) -> int:
    """Return the padding of a frame without payload where frames may grow by `growth_bytes` (None: no limit)."""
    if growth_bytes is None or growth_bytes >= payload_bytes(lanes):
        return 0
    return payload_bytes(lanes) - PADDING_LESS_BYTES


def internet_checksum(data: bytes | memoryview) -> int:
    """Return the Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data = bytes(data) + b"\0"
    # 2**16 is 1 modulo 65535, so the end-around-carry sum of 16-bit words is the whole number modulo 65535.
    value = int.from_bytes(data)
    remainder = value % 0xFFFF
    total = 0xFFFF if value and remainder == 0 else remainder
    return ~total & 0xFFFF


def lower_headers(source: Address, destination: Address, body_bytes: int) -> bytes:
    """Ethernet, IPv4 and UDP headers (UDP checksum 0) in front of a UDP body of `body_bytes`."""
    udp_length = UDP_BYTES + body_bytes
    ip = _IPV4.pack(
        0x45, 0, IPV4_BYTES + udp_length, 0, _DONT_FRAGMENT, 64, _PROTOCOL_UDP, 0, source.ip, destination.ip
    )
    ip = ip[:10] + internet_checksum(ip).to_bytes(2) + ip[12:]
    ethernet = _ETHERNET.pack(destination.mac.to_bytes(6), source.mac.to_bytes(6), _ETHERTYPE_IPV4)
    return ethernet + ip + _UDP.pack(source.port, destination.port, udp_length, 0)


def udp_checksum(frame: bytes) -> int:
    """Return the UDP checksum (RFC 768), never 0, of a frame whose UDP header is at its usual place."""
    ip = frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]
    udp = bytearray(frame[ETHERNET_BYTES + IPV4_BYTES :])
    udp[6:8] = b"\0\0"
    pseudo = ip[12:20] + bytes((0, _PROTOCOL_UDP)) + len(udp).to_bytes(2)
    return internet_checksum(pseudo + bytes(udp)) or 0xFFFF


def build_frame(
    source: Address, destination: Address, header: Header, payload: bytes = b"", *, checksum: bool = False
) -> bytes:
    """Build a whole frame; `checksum` fills in the UDP checksum."""
    frame = lower_headers(source, destination, HEADER_BYTES + len(payload)) + header.pack() + payload
    if checksum:
        at = LOWER_BYTES - 2
        frame = frame[:at] + udp_checksum(frame).to_bytes(2) + frame[at + 2 :]
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """A parsed frame."""

    source: Address
    """From the frame's Ethernet, IPv4 and UDP headers."""
    destination: Address
    """Likewise."""
    header: Header
    """The aggregation header."""
    payload: bytes
    """What follows the aggregation header within the UDP datagram."""


def parse_frame(frame: bytes) -> Packet | None:
    """Parse a frame of ours; None for any other or broken one (lengths and types; field values are not judged)."""
    if len(frame) < FRAME_BYTES:
        return None
    destination_mac, source_mac, ethertype = _ETHERNET.unpack_from(frame)
    first, _, total, _, fragment, _, protocol, _, source_ip, destination_ip = _IPV4.unpack_from(frame, ETHERNET_BYTES)
    source_port, destination_port, udp_length, _ = _UDP.unpack_from(frame, ETHERNET_BYTES + IPV4_BYTES)
    if (ethertype, first, protocol, fragment & 0x3FFF) != (_ETHERTYPE_IPV4, 0x45, _PROTOCOL_UDP, 0):
        return None
    if total != udp_length + IPV4_BYTES or len(frame) != total + ETHERNET_BYTES:
        return None
    header = Header.unpack(frame[LOWER_BYTES:])
    assert header is not None  # the frame is long enough
    return Packet(
        source=Address(mac=int.from_bytes(source_mac), ip=source_ip, port=source_port),
        destination=Address(mac=int.from_bytes(destination_mac), ip=destination_ip, port=destination_port),
        header=header,
        payload=frame[FRAME_BYTES:],
    )
