"""The aggregation header, said once: its fields, and the numbers of kinds, operators, lane formats, flags and reasons.

Each field of `Header` is one row of the table `FIELDS`: its name and type, its width, what it means, and in which kinds
of frame it means something.  From this table follow:

* the codec, `Header.pack` and `Header.unpack` (whole frames: `switchsum_protocol.wire`);
* `AT`, the offsets with which kernels read and write frames in place;
* Scapy's layer (`scapy_layer.py` of the host's links);
* the tables of Wireshark's dissector, and the drawing and the table in docs/wire.md, which `python
  tools/frame_tables.py` writes;
* the check of the P4 program's header and numbers (tests/protocol/test_frame.py).

All numbers are in network byte order.  docs/wire.md tells the whole story.
"""

from __future__ import annotations

import hashlib
import operator
import struct
from collections import namedtuple
from dataclasses import MISSING, dataclass, fields
from enum import IntEnum, IntFlag
from typing import Annotated, Any, Final, get_args, get_type_hints

from switchsum_switch.wires.headers import LOWER_BYTES

WIRE_VERSION: Final = 4
"""Grows with every change that an older side would misread."""
AGGREGATION_PORT: Final = 21333
"""UDP destination port of everything that is addressed to the switch's aggregation service."""

LANE_BYTES: Final = 4
LANE_WIDTHS: Final = (8, 16, 32, 64)
"""Bits of a lane that the switch can add: p4src/lanes.p4 has masks for them."""
LANE_BUILDS: Final = (128, 256, 2048)
"""Lanes per packet of the compiled builds."""

NO_BLOCK: Final = 0xFFFF_FFFF
"""`next_block` of a sender that has nothing more to send; the largest value, so that the minimum ignores it."""

MAX_WORKERS: Final = 32
"""Members of a job at one switch: one bit each in the bitmap."""
MOST_WORKERS: Final = 4096
"""Of a job over a tree of switches."""
MOST_LINKS: Final = 8
"""Of a worker."""

PADDING_LESS_BYTES: Final = 512
"""BMv2 aborts when a frame grows by more than this, so padding makes up the rest of a result's payload."""


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
    """From the CPU port: set `number` and `bitmap` of that version, and clear its flags."""
    STATE = 8
    """The answer to QUERY and SET."""


class Operator(IntEnum):
    """How contributions are combined, lane by lane; callers know an operator by its name in small letters.

    Each has its number on the wire, the name of a function that does the same, and whether zero changes nothing: then
    blocks of zeros need not travel.  The function is numpy's, or one of `slot_rules.OWN_FUNCTIONS`; the name of one
    that combines bits begins with "bitwise".
    """

    SUM = 1, "add", True
    MAX = 2, "maximum", False
    MIN = 3, "minimum", False
    OR = 4, "bitwise_or", True

    function: str
    skips_zeros: bool

    def __new__(cls, number: int, function: str = "", skips_zeros: bool = False) -> Operator:
        """Make the member of this number."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.function, member.skips_zeros = function, skips_zeros
        return member

    @property
    def is_bitwise(self) -> bool:
        """Whether it combines bits, so that only integers and bool have it."""
        return self.function.startswith("bitwise")


class LaneFormat(IntEnum):
    """How a payload is divided into lanes (two's complement).

    Each describes itself: its number on the wire, the bits of a lane, the bits that a contribution has for one, and the
    name under which users add floats in it, if they do.  If a contribution has half of each lane, the switch widens it.
    docs/lane-formats.md adds one.
    """

    INT32 = 1, 32, 32, "int32"
    INT16 = 2, 16, 16, "int16"
    INT8 = 3, 8, 8
    INT64 = 4, 64, 64
    WIDENED = 7, 16, 8, "int8"
    """Lanes of 16 bits, for which a contribution may have 8: the switch widens these."""
    NIBBLES = 8, 8, 4
    """Lanes of 8 bits, for which a contribution may have 4: the switch widens these."""

    bits: int
    """Width of one lane in bits, as sums come down."""
    value_bits: int
    """Width of what a contribution adds to one lane, as it goes up."""
    floats: str
    """Name of these lanes for sums of floats; empty: integers alone travel in them."""

    def __new__(cls, number: int, bits: int = 0, value_bits: int = 0, floats: str = "") -> LaneFormat:
        """Make the member of this number; raises ValueError if no switch has such lanes."""
        if bits not in LANE_WIDTHS or value_bits not in (bits, bits // 2):
            raise ValueError(f"lanes are {LANE_WIDTHS} bits wide, and values as wide or half: not {bits}, {value_bits}")
        member = int.__new__(cls, number)
        member._value_ = number
        member.bits, member.value_bits, member.floats = bits, value_bits, floats
        return member

    @property
    def is_widened(self) -> bool:
        """Whether a contribution may have half of each lane."""
        return self.value_bits < self.bits

    @property
    def dtype(self) -> str:
        """Numpy's name of a lane on the wire."""
        return f">i{self.bits // 8}"


WIDENED_FORMATS: Final = tuple(one for one in LaneFormat if one.is_widened)
"""Formats of which a contribution may have half of each lane."""
LANE_BITS: Final = tuple(LaneFormat(n).bits if n in list(LaneFormat) else 0 for n in range(max(LaneFormat) + 1))
"""Width of a lane, by the format's number.  A tuple, since kernels take one for a constant."""
VALUE_BITS: Final = tuple(LaneFormat(n).value_bits if n in list(LaneFormat) else 0 for n in range(len(LANE_BITS)))
"""Width of what a contribution may have for a lane, by the format's number."""
FLOAT_FORMATS: Final = {one.floats: one for one in LaneFormat if one.floats}
"""Formats for sums of floats, by the name that users write."""


class Flag(IntFlag):
    """The header's flags; docs/wire.md says who sets and who reads each."""

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
    FINAL = 32
    """The lanes of a switch's contribution, or a cell's, are the result of the whole job.  No worker gets to see it."""
    RECALL = 64
    """Of a repeat: the sender holds this round's result, and repeats for the others' sake."""
    SELECT = 128
    """`bitmap` says which workers get the lanes of the result; see `selection`."""


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
    TAKEN = 25
    """Passed on to the job's fallback, for another job has the shared slot. In a result: it is from there."""


REASONS: Final = 32
"""Size of the switch's event counter."""


ALL_KINDS: Final = frozenset(Kind)
ROUND_KINDS: Final = frozenset((Kind.CONTRIBUTION, Kind.RESULT, Kind.HELD, Kind.REJECT))
"""What a member and the switch say to each other about a round."""
CPU_KINDS: Final = frozenset((Kind.QUERY, Kind.SET, Kind.STATE))
"""What the controller and the switch say to each other, over the CPU port."""
_MEMBER: Final = ROUND_KINDS | {Kind.HELLO}
_CELL: Final = ROUND_KINDS | {Kind.STATE}


@dataclass(frozen=True, slots=True)
class OnWire:
    """What a field of `Header` is in a frame."""

    bits: int
    """Width: 8, 16, 32 or 64."""
    meaning: str
    """One phrase, in the Markdown of docs/wire.md."""
    kinds: frozenset[Kind] = ALL_KINDS
    """Kinds of frame in which the field means something.  In others nobody reads it: hosts and controller write its
    default, the switch gives back what came."""
    unit: str = ""
    """What the number counts, where it counts something."""
    none: int | None = None
    """The value that stands for no block."""
    is_hexadecimal: bool = False
    """People read it digit by digit: tools show it so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The aggregation header, 48 bytes, in the order of the wire.  Fields that are not given have their defaults."""

    version: Annotated[int, OnWire(8, "wire version")] = WIRE_VERSION
    kind: Annotated[Kind | int, OnWire(8, "what the frame is")]
    operator: Annotated[Operator | int, OnWire(8, "how lanes are combined", _CELL)] = Operator.SUM
    format: Annotated[LaneFormat | int, OnWire(8, "how the payload is divided into lanes", _CELL)] = LaneFormat.INT32
    flags: Annotated[Flag | int, OnWire(8, "one bit each, see Flags", _CELL | {Kind.HELLO}, is_hexadecimal=True)] = 0
    reason: Annotated[
        Reason | int,
        OnWire(
            8,
            "why the switch refused the contribution; of a result 25 if the job's fallback added it, since the slot "
            "was taken",
            frozenset((Kind.REJECT, Kind.RESULT)),
        ),
    ] = 0
    exponent: Annotated[
        int,
        OnWire(
            8,
            "of sums of floats, what the payload was scaled by (255: some value is infinite or NaN); of all else 0, or "
            "which part of the integers the lanes hold, see Integers in parts",
            _CELL,
            unit="power of two, plus 127",
        ),
    ] = 0
    next_exponent: Annotated[
        int,
        OnWire(
            8,
            "of sums of floats, the exponent of the block `next_block`; from the switch the largest that was named",
            _CELL,
            unit="power of two, plus 127",
        ),
    ] = 0
    job: Annotated[int, OnWire(16, "number of the job; of query, set and state the upper half of a token")] = 0
    epoch: Annotated[int, OnWire(16, "incarnation of the job; of query, set and state the token's lower half")] = 0
    rank: Annotated[int, OnWire(16, "the member that contributes or joins; of a result its receiver", _MEMBER)] = 0
    tree: Annotated[
        int,
        OnWire(
            16,
            "which of the job's trees the slot belongs to; of a hello the sender's link, of query, set and state the "
            "version that is meant",
        ),
    ] = 0
    slot: Annotated[int, OnWire(32, "slot of the switch", ROUND_KINDS | CPU_KINDS)] = 0
    number: Annotated[
        int,
        OnWire(
            32,
            "serial number of the slot's round, its lowest bit chooses the version; of a hello the nonce's upper half",
            unit="rounds, modulo 2^32",
        ),
    ] = 0
    block: Annotated[
        int, OnWire(32, "the block that the lanes belong to", _CELL, unit="blocks of the array", none=NO_BLOCK)
    ] = 0
    next_block: Annotated[
        int,
        OnWire(
            32,
            "the next block of the slot's column that the sender has lanes for; from the switch the smallest of these",
            _CELL,
            unit="blocks of the array",
            none=NO_BLOCK,
        ),
    ] = NO_BLOCK
    digest: Annotated[
        int,
        OnWire(
            32,
            "digest of the operation (dtype, shape, operator, operation counter); of a hello the nonce's lower half",
            _CELL | {Kind.HELLO},
            is_hexadecimal=True,
        ),
    ] = 0
    bitmap: Annotated[
        int,
        OnWire(
            32,
            "which members have contributed, bit `rank`; with flag 128 who gets the lanes, see Selections",
            frozenset((Kind.CONTRIBUTION, Kind.RESULT, Kind.HELD, Kind.SET, Kind.STATE)),
            is_hexadecimal=True,
        ),
    ] = 0
    cookie: Annotated[
        int,
        OnWire(
            64,
            "secret of this member, the switch and the controller, see Cookies; of state who holds a shared slot: "
            "job, epoch and digest",
            ROUND_KINDS | {Kind.STATE},
            is_hexadecimal=True,
        ),
    ] = 0

    @property
    def link(self) -> int:
        """Of a hello: the number of the link over which it goes, which stands where other frames have their tree."""
        return self.tree

    @property
    def cell_version(self) -> int:
        """Of query, set and state: the version of the slot that is meant, which stands in the same place."""
        return self.tree

    def pack(self) -> bytes:
        """Encode; raises `struct.error` when a field does not fit its width."""
        return _LAYOUT.pack(*_VALUES(self))

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Header | None:
        """Decode the first 48 bytes; None when they are too few.  Field values are not judged here."""
        if len(data) < HEADER_BYTES:
            return None
        return cls(**dict(zip(FIELDS, _LAYOUT.unpack_from(data), strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderField:
    """One row of the table."""

    name: str
    offset: int
    """In bytes, from the beginning of the aggregation header."""
    default: int | None
    """None: a header must be given one."""
    values: type[IntEnum] | type[IntFlag] | None
    """What its values are called, where they have names."""
    wire: OnWire

    @property
    def size(self) -> int:
        """Width in bytes."""
        return self.wire.bits // 8


def _table() -> dict[str, HeaderField]:
    """Return the table that `Header` writes down."""
    hints = get_type_hints(Header, include_extras=True)
    table: dict[str, HeaderField] = {}
    offset = 0
    for row in fields(Header):
        kind, wire = get_args(hints[row.name])
        named = [each for each in get_args(kind) if issubclass(each, IntEnum | IntFlag)]
        default = None if row.default is MISSING else int(row.default)
        table[row.name] = HeaderField(
            name=row.name, offset=offset, default=default, values=named[0] if named else None, wire=wire
        )
        offset += wire.bits // 8
    return table


FIELDS: Final = _table()
"""The fields by name, in the order of the wire."""
HEADER_BYTES: Final = sum(field.size for field in FIELDS.values())
FRAME_BYTES: Final = LOWER_BYTES + HEADER_BYTES
"""Length of a frame without payload and without padding."""

_CODES: Final = {8: "B", 16: "H", 32: "I", 64: "Q"}
_LAYOUT: Final = struct.Struct("!" + "".join(_CODES[field.wire.bits] for field in FIELDS.values()))
_VALUES: Final = operator.attrgetter(*FIELDS)

_Offsets: Any = namedtuple("_Offsets", FIELDS)  # type: ignore[misc]
AT: Final[Any] = _Offsets(*(LOWER_BYTES + field.offset for field in FIELDS.values()))
"""Offset of each field within a frame, in bytes (`AT.kind`).  A tuple, since kernels take one for a constant."""

_ENUMS: Final = [{member.name: int(member) for member in kind} for kind in (Kind, Operator, LaneFormat, Flag, Reason)]
_SIZES: Final = {name: field.size for name, field in FIELDS.items()}
WIRE_DIGEST: Final = hashlib.sha256(repr((WIRE_VERSION, AGGREGATION_PORT, _SIZES, _ENUMS)).encode()).hexdigest()[:8]
"""Names the format itself: two sides whose digests differ do not understand each other, whatever version they claim."""


ALL_BUT: Final = 1 << 31
"""In the `bitmap` of a selection: all workers but one get the lanes; else that one alone does."""


def selection(rank: int, workers: int, *, but: bool) -> int:
    """Return the `bitmap` that says, with the flag SELECT, that a worker alone gets the lanes, or all others do.

    It has the number of workers: ranks from there on are of switches, which need the lanes for those below.
    """
    return (ALL_BUT if but else 0) | workers << 16 | rank


def is_selected(bitmap: int, rank: int) -> bool:
    """Tell whether a member gets the lanes of a result that has the flag SELECT."""
    return rank >= bitmap >> 16 & 0x7FFF or (rank == bitmap & 0xFFFF) != bool(bitmap & ALL_BUT)


def payload_bytes(lanes_per_frame: int) -> int:
    """Return the length of the payload of a frame with so many lanes of 32 bits."""
    return lanes_per_frame * LANE_BYTES


def narrow_bytes(lanes_per_frame: int) -> int:
    """Return the length of a payload of half of each lane, which the switch widens."""
    return payload_bytes(lanes_per_frame) // 2


def may_be_narrow(lanes_per_frame: int, growth_bytes: int | None) -> bool:
    """Tell whether a contribution with such a payload can become a result where frames may grow by `growth_bytes`."""
    return growth_bytes is None or growth_bytes >= payload_bytes(lanes_per_frame) - narrow_bytes(lanes_per_frame)


def padding_bytes(lanes_per_frame: int, growth_bytes: int | None) -> int:
    """Return the padding of a frame without payload where frames may grow by `growth_bytes` (None: no limit)."""
    if growth_bytes is None or growth_bytes >= payload_bytes(lanes_per_frame):
        return 0
    return payload_bytes(lanes_per_frame) - PADDING_LESS_BYTES
