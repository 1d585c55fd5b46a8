"""The intermediate representation: what a program does to a packet, in fixed-width unsigned arithmetic.

A program is a handful of graphs (parser, checksum verification, ingress, egress, checksum update).  A graph is a tuple
of blocks; a block is straight-line statements and one terminator that says which block follows.  Expressions have no
side effects, and every one has a `width` in bits: its value lies between 0 and 2**width - 1, and arithmetic wraps.
Booleans are expressions of width 1.

Header and metadata fields are named by their slot, the index into `Program.fields`; headers, tables, registers and
counters by their index likewise.  `interpreter` says by example what each node means, `verify` what is well-formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from switchsum.switch.meters import MeterUnit
from switchsum.switch.tables import Entry, TableSpec
from switchsum.switch.v1model import DROP_PORT, PASSES


class Op(Enum):
    """Binary operators; both sides have the result's width, but a shift's amount may have any."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    """Unsigned; division by zero gives 0."""
    MOD = "%"
    """Unsigned; modulo zero gives 0."""
    AND = "&"
    OR = "|"
    XOR = "^"
    SHL = "<<"
    """0 where the amount is the width or more."""
    SHR = ">>"
    """Zeros come in."""
    SAR = ">>s"
    """Copies of the top bit come in."""


class Relation(Enum):
    """Comparisons of two values of equal width."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    LT_SIGNED = "<s"
    LE_SIGNED = "<=s"


@dataclass(frozen=True, slots=True)
class Const:
    """A constant."""

    width: int
    value: int


@dataclass(frozen=True, slots=True)
class Field:
    """The value of a field; that of an invalid header is what was last written to it, 0 at first."""

    width: int
    slot: int


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the action that the last Apply chose."""

    width: int
    table: int
    action: int
    index: int


@dataclass(frozen=True, slots=True)
class Valid:
    """Whether a header is valid."""

    header: int

    @property
    def width(self) -> int:
        """Return 1."""
        return 1


@dataclass(frozen=True, slots=True)
class Peek:
    """Bits ahead of the parser, `offset` bits from its cursor; a Require before it makes sure that they are there."""

    width: int
    offset: int


@dataclass(frozen=True, slots=True)
class Binary:
    """An arithmetic or bitwise operation."""

    width: int
    op: Op
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison."""

    relation: Relation
    left: Expr
    right: Expr

    @property
    def width(self) -> int:
        """Return 1."""
        return 1


@dataclass(frozen=True, slots=True)
class Select:
    """`then` where the condition is 1, else `other`."""

    width: int
    condition: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Resize:
    """The low `width` bits; a wider result is filled with zeros, or with copies of the top bit where `signed`."""

    width: int
    value: Expr
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """The value side by side as often as `width` is a multiple of its own."""

    width: int
    value: Expr


@dataclass(frozen=True, slots=True)
class AddLanes:
    """Sums of lanes of `lane` bits side by side, each wrapping for itself."""

    width: int
    lane: int
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class HashInput:
    """A part of what is hashed, left out where its header is not valid."""

    value: Expr
    header: int | None


@dataclass(frozen=True, slots=True)
class Hash:
    """A hash over the bits of the inputs side by side, filled up with zeros to whole bytes, and perhaps the payload."""

    width: int
    algorithm: str
    inputs: tuple[HashInput, ...]
    payload: bool = False


Expr = Const | Field | Param | Valid | Peek | Binary | Compare | Select | Resize | Repeat | AddLanes | Hash


@dataclass(frozen=True, slots=True)
class Assign:
    """Write a field."""

    slot: int
    value: Expr


@dataclass(frozen=True, slots=True)
class SetValid:
    """Make a header valid; one that was not becomes all zeros."""

    header: int


@dataclass(frozen=True, slots=True)
class SetInvalid:
    """Make a header invalid; its fields keep their values."""

    header: int


@dataclass(frozen=True, slots=True)
class CopyHeader:
    """Copy validity and, where the source is valid, all fields to another header of the same type."""

    target: int
    source: int


@dataclass(frozen=True, slots=True)
class Extract:
    """Fill a header from the packet, make it valid and go on behind it; as Require where the packet is too short."""

    header: int


@dataclass(frozen=True, slots=True)
class Require:
    """Where fewer than `bits` are left, set the parser error to the program's `too_short` and end the parser."""

    bits: Expr


@dataclass(frozen=True, slots=True)
class Advance:
    """Skip bits, a multiple of 8 that Require has made sure of."""

    bits: Expr


@dataclass(frozen=True, slots=True)
class ReadRegister:
    """Read a register into a field; beyond its end there are zeros."""

    slot: int
    register: int
    index: Expr


@dataclass(frozen=True, slots=True)
class WriteRegister:
    """Write a register; beyond its end nothing happens."""

    register: int
    index: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Count:
    """Count the packet and the bytes it came in with; beyond the counter's end nothing happens."""

    counter: int
    index: Expr


@dataclass(frozen=True, slots=True)
class ExecuteMeter:
    """Pass the packet through a meter and write its colour to a field; beyond the meter's end nothing happens."""

    slot: int
    meter: int
    index: Expr


@dataclass(frozen=True, slots=True)
class Random:
    """Write a number between `low` and `high` (64 bits each) to a field, evenly; nothing where low exceeds high."""

    slot: int
    low: Expr
    high: Expr


Statement = (
    Assign
    | SetValid
    | SetInvalid
    | CopyHeader
    | Extract
    | Require
    | Advance
    | ReadRegister
    | WriteRegister
    | Count
    | ExecuteMeter
    | Random
)


@dataclass(frozen=True, slots=True)
class Jump:
    """Go on with a block."""

    target: int


@dataclass(frozen=True, slots=True)
class Branch:
    """Go on with one of two blocks."""

    condition: Expr
    then: int
    other: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Look a table up and go on with the block of the action found."""

    table: int
    on_hit: tuple[int, ...]
    """Block for each of the table's actions when an entry matched."""
    on_miss: tuple[int, ...]
    """Block for each of the table's actions when it is the default action."""


@dataclass(frozen=True, slots=True)
class End:
    """The graph is done."""


Terminator = Jump | Branch | Apply | End


@dataclass(frozen=True, slots=True)
class Block:
    """Statements in order, then a terminator."""

    name: str
    statements: tuple[Statement, ...]
    end: Terminator


Graph = tuple[Block, ...]
"""The first block is the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldInfo:
    """A field."""

    name: str
    """header.field"""
    header: int
    width: int
    offset: int
    """Bits from the header's start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderInfo:
    """A header, or metadata, which is always valid and never on the wire."""

    name: str
    metadata: bool
    slots: tuple[int, ...]
    """Its fields, first to last on the wire."""
    width: int
    """Bits; headers have whole bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """A table that is looked up at run time."""

    spec: TableSpec
    keys: tuple[Expr, ...]
    """What `spec.keys` are compared with."""
    default: tuple[str, tuple[int, ...]]
    """Action and parameters that the program gives as default."""
    entries: tuple[Entry, ...]
    """Entries that the program declares."""
    colour: int | None = None
    """Field that gets the colour of the direct meter of the entry that matched; a miss leaves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayInfo:
    """A register, counter or meter array."""

    name: str
    size: int
    width: int
    """Bits of a cell; 0 for counters and meters."""
    unit: MeterUnit | None = None
    """What a meter measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrinsics:
    """Slots of the fields that the switch around the program reads and writes."""

    ingress_port: int
    egress_spec: int
    egress_port: int
    instance_type: int
    packet_length: int
    mcast_grp: int
    egress_rid: int
    parser_error: int
    checksum_error: int
    ingress_timestamp: int
    egress_timestamp: int
    enqueue_timestamp: int
    enq_qdepth: int
    deq_qdepth: int
    deq_timedelta: int
    qid: int
    priority: int
    length: int
    """Bytes of the packet as headers come and go; becomes `packet_length` in egress."""
    cut: int
    """One more than the bytes that the packet is truncated to; 0 for all."""
    clone: int
    """One more than the session that the packet is cloned to when ingress or egress ends; 0: no clone."""
    clone_list: int
    """Field list that the clone keeps."""
    resubmit: int
    """Field list with which the packet enters ingress again as it came; 0: it goes on."""
    recirculate: int
    """Field list with which the packet enters ingress again as it would leave; 0: it leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that is ready to run."""

    headers: tuple[HeaderInfo, ...]
    fields: tuple[FieldInfo, ...]
    tables: tuple[TableInfo, ...]
    registers: tuple[ArrayInfo, ...]
    counters: tuple[ArrayInfo, ...]
    meters: tuple[ArrayInfo, ...] = ()
    value_sets: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Parser value sets by name, and the tables that hold their members, one for each place that asks."""
    settled: tuple[TableInfo, ...] = ()
    """Tables that nothing looks up, for they only ever run one action; the control plane sees them."""
    intrinsics: Intrinsics
    parser: Graph
    verify: Graph
    """Checksum verification, after the parser."""
    ingress: Graph
    egress: Graph
    update: Graph
    """Checksum update, before the deparser."""
    field_lists: tuple[tuple[int, ...], ...]
    """Metadata that clones and packets that enter again keep; number 0 is empty."""
    stack_counts: tuple[int, ...]
    """Metadata that belongs to header stacks, and stays when other metadata is set to zero."""
    deparser: tuple[int, ...]
    """Headers in the order in which they leave, those that are valid."""
    too_short: int
    """The error code of a packet that ends within a header."""
    drop_port: int = DROP_PORT
    """Egress port of packets that are dropped."""
    passes: int = PASSES
    """How often ingress may run for one frame."""
    queues: int = 1
    """Queues of each port; packets whose priority is none of them are dropped before egress."""
