"""The intermediate representation (IR): what a P4 program does to a packet, in fixed-width unsigned arithmetic.

A program has five graphs: parser, checksum verification, ingress, egress and checksum update.  A graph is a tuple of
basic blocks.  A block is a list of statements and one terminator that says which block follows.  An expression has no
side effects and has a `width` in bits: its value lies between 0 and 2**width - 1, and arithmetic wraps.  A boolean is
an expression of width 1.

A field of a header or of metadata is named by its slot, the index into `Program.fields`.  Headers, tables, registers,
counters and meters are named by their index, too.

The IR knows nothing of P4's types or of BMv2's integers without bounds: `lower` has made both into widths.  So a pass
or a code generator has few cases to get right.  `interpreter` defines what each node does, and `verify` defines which
programs are well-formed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ..state.meters import MeterUnit
from ..state.profiles import ProfileInfo
from ..state.tables import Entry, TableSpec
from .v1model import DROP_PORT, PASSES, Intrinsics


class Op(Enum):
    """Binary operators; both operands have the width of the result, except that a shift's amount may have any width."""

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
    """Gives 0 if the amount is the width or more."""
    SHR = ">>"
    """Shifts zeros in."""
    SAR = ">>s"
    """Shifts copies of the top bit in."""


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
    """The value of a field.  A field of an invalid header has the value that was last written to it, at first 0."""

    width: int
    slot: int


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the action that the last Apply of the table has chosen."""

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
    """Bits ahead of the parser, `offset` bits from its cursor; a Require before it has checked that they exist."""

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
    """The low `width` bits of a value; a wider result gets zeros or, if `signed`, copies of the top bit."""

    width: int
    value: Expr
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """Copies of a value side by side, as many as fill `width`, a multiple of the value's width."""

    width: int
    value: Expr


@dataclass(frozen=True, slots=True)
class AddLanes:
    """The sum of two vectors of lanes of `lane` bits; each lane wraps on its own."""

    width: int
    lane: int
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class HashInput:
    """One input of a hash; it is left out if its header is not valid."""

    value: Expr
    header: int | None
    bits: Expr | None = None
    """How many bits of a variable field count, from the top; None: all."""


@dataclass(frozen=True, slots=True)
class Hash:
    """A hash over the inputs' bits side by side, filled up with zeros to whole bytes, and over the payload if asked."""

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
    """Make a header valid; if it was invalid, all its fields become 0, and a variable field keeps its length.

    When a header becomes valid by this or any other statement, the other headers of its union become invalid.
    """

    header: int


@dataclass(frozen=True, slots=True)
class SetInvalid:
    """Make a header invalid; its fields keep their values."""

    header: int
    forgets: bool = False
    """Nobody can count on these values: the header is a member of a stack that was shifted."""


@dataclass(frozen=True, slots=True)
class CopyHeader:
    """Copy validity and, where the source is valid, all fields to another header of the same type."""

    target: int
    source: int
    forgets: bool = field(default=False, kw_only=True)
    """Nobody can count on the target's fields if the source is invalid: both are members of a stack that is shifted."""


@dataclass(frozen=True, slots=True)
class Extract:
    """Fill a header from the packet, make it valid and move the cursor behind it; a short packet ends as in Require."""

    header: int
    bits: Expr | None = None
    """Bits of its variable field: whole bytes, no more than the field has.  None: the header has none."""


@dataclass(frozen=True, slots=True)
class Require:
    """If fewer than `bits` bits are left, set the parser error to the program's `too_short` and end the parser."""

    bits: Expr


@dataclass(frozen=True, slots=True)
class Advance:
    """Skip bits, a multiple of 8; a Require before it has checked that they exist."""

    bits: Expr


@dataclass(frozen=True, slots=True)
class ReadRegister:
    """Read a register into a field; an index beyond the register's end reads 0."""

    slot: int
    register: int
    index: Expr


@dataclass(frozen=True, slots=True)
class WriteRegister:
    """Write a register; an index beyond the register's end writes nothing."""

    register: int
    index: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Count:
    """Count the packet and its bytes on arrival; an index beyond the counter's end counts nothing."""

    counter: int
    index: Expr


@dataclass(frozen=True, slots=True)
class ExecuteMeter:
    """Pass the packet through a meter and write its colour to a field; an index beyond the end changes nothing."""

    slot: int
    meter: int
    index: Expr


@dataclass(frozen=True, slots=True)
class Random:
    """Write a random number from `low` to `high` (64 bits each) to a field; if low exceeds high, write nothing."""

    slot: int
    low: Expr
    high: Expr


@dataclass(frozen=True, slots=True)
class Learn:
    """Append a record to a digest, for the control plane."""

    digest: int
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Say:
    """Say something in a trace; native code leaves it out, and the packet stays as it is."""

    text: str
    """Has braces where the values stand."""
    values: tuple[Expr, ...]
    signed: tuple[bool, ...]
    """For each value, whether it is in two's complement."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Say `text` in a trace if the condition is 0; native code leaves it out, and the packet goes on in any case."""

    text: str
    condition: Expr


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
    | Learn
    | Say
    | Claim
)


@dataclass(frozen=True, slots=True)
class Jump:
    """Continue with a block."""

    target: int


@dataclass(frozen=True, slots=True)
class Branch:
    """Continue with `then` if the condition is 1, else with `other`."""

    condition: Expr
    then: int
    other: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Look a key up in a table and continue with the block of the action that was found."""

    table: int
    on_hit: tuple[int, ...]
    """For each action of the table, the block that follows if an entry matched."""
    on_miss: tuple[int, ...]
    """For each action of the table, the block that follows if none matched and it is the default action."""


@dataclass(frozen=True, slots=True)
class End:
    """End the graph."""


Terminator = Jump | Branch | Apply | End


@dataclass(frozen=True, slots=True)
class Block:
    """Statements in order, then a terminator."""

    name: str
    statements: tuple[Statement, ...]
    end: Terminator


Graph = tuple[Block, ...]
"""The blocks of a graph; it begins with the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldInfo:
    """A field."""

    name: str
    """header.field"""
    header: int
    width: int
    offset: int
    """Bits from the header's start; a variable field in front of it counts with all that it may have."""
    length: int | None = None
    """Slot with the length in bits of a variable field: whole bytes, at the top of `width`, 0 behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderInfo:
    """A header; or metadata, which is always valid and never on the wire."""

    name: str
    metadata: bool
    slots: tuple[int, ...]
    """Slots of its fields, in the order of the wire, and last the length of its variable field."""
    width: int
    """Bits; of a header a multiple of 8.  A variable field counts with all that it may have."""
    siblings: tuple[int, ...] = ()
    """The other headers of its union."""
    variable: int | None = None
    """Slot of its variable field."""
    length: int | None = None
    """Slot of that field's length."""

    @property
    def wire(self) -> tuple[int, ...]:
        """Return its fields without the length of the variable one, which is not on the wire."""
        return self.slots if self.length is None else self.slots[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """A table that is looked up at run time."""

    spec: TableSpec
    keys: tuple[Expr, ...]
    """The values that `spec.keys` are compared with."""
    default: tuple[str, tuple[int, ...]]
    """Name and parameters of the default action in the program."""
    entries: tuple[Entry, ...]
    """Entries that the program declares."""
    selector: Hash | None = None
    """Chooses the member of an action profile's group; None: the table has no groups."""
    turn: int | None = None
    """The register that counts the choices, where the selector takes one member after the other."""
    colour: int | None = None
    """Field that gets the colour of the matching entry's direct meter; a miss does not change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayInfo:
    """An array of registers, counters or meters."""

    name: str
    size: int
    width: int
    """Bits of a cell; 0 for counters and meters."""
    unit: MeterUnit | None = None
    """Unit that a meter measures; None for registers and counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestInfo:
    """A digest."""

    name: str
    widths: tuple[int, ...]
    """Bits of each of its values, of which there is at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that is ready to run."""

    headers: tuple[HeaderInfo, ...]
    fields: tuple[FieldInfo, ...]
    tables: tuple[TableInfo, ...]
    registers: tuple[ArrayInfo, ...]
    counters: tuple[ArrayInfo, ...]
    meters: tuple[ArrayInfo, ...] = ()
    profiles: tuple[ProfileInfo, ...] = ()
    digests: tuple[DigestInfo, ...] = ()
    value_sets: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Parser value sets by name, and for each the tables that hold its members, one for each select that uses it."""
    fixed_tables: tuple[TableInfo, ...] = ()
    """Tables that always run one action, which stands in the graph in their place; the control plane sees them."""
    intrinsics: Intrinsics
    parser: Graph
    verify: Graph
    """Checksum verification, after the parser."""
    ingress: Graph
    egress: Graph
    update: Graph
    """Checksum update, before the deparser."""
    field_lists: tuple[tuple[int, ...], ...]
    """Metadata that clones, resubmitted and recirculated packets keep; list 0 is empty."""
    stack_counts: tuple[int, ...]
    """The `next` index of each header stack; it belongs to the headers, and is kept when metadata is set to zero."""
    deparser: tuple[int, ...]
    """Headers in the order in which the valid ones leave."""
    too_short: int
    """The error code of a packet that ends within a header."""
    drop_port: int = DROP_PORT
    """Egress port of packets that are dropped."""
    passes: int = PASSES
    """How often ingress may run for one frame that is resubmitted or recirculated."""
    queues: int = 1
    """Queues of each port; a packet with a priority of `queues` or more is dropped before egress."""

    @property
    def growth_bytes(self) -> int:
        """How many bytes longer than it arrived a frame may leave at most: all headers of the deparser."""
        return sum(self.headers[header].width // 8 for header in self.deparser)
