"""A BMv2 program as p4c writes it to JSON, as typed Python objects.

`reader.read_program` makes these objects and checks that the JSON has the right form.  Whether the program has a
meaning for this switch is checked later, in `lower`.  The format is documented in p4lang/behavioral-model,
docs/JSON_format.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ProgramError


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place in the P4 source."""

    file: str
    line: int
    fragment: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.fragment}"


def refusal(what: str, source: Source | None) -> ProgramError:
    """Return the error that refuses `what`, with its place in the P4 source if the JSON gives it."""
    return ProgramError(f"{what} ({source})" if source else what)


@dataclass(frozen=True, slots=True)
class FieldName:
    """A field of a header instance; the field `$valid$` is the header's validity."""

    header: str
    field: str

    def __str__(self) -> str:
        return f"{self.header}.{self.field}"


@dataclass(frozen=True, slots=True)
class Number:
    """A constant; it may be negative."""

    value: int
    width: int | None = None
    """Bits; the JSON gives them in calculations only."""

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean constant."""

    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of the enclosing action, by index."""

    index: int

    def __str__(self) -> str:
        return f"parameter {self.index}"


@dataclass(frozen=True, slots=True)
class StackField:
    """A field of the last extracted member of a header stack, or of a header of the last union of a union stack."""

    stack: str
    field: str
    part: str | None = None
    """Name of the header within the union; None: a header stack."""

    def __str__(self) -> str:
        last = f"{self.stack}.last"
        return f"{last}.{self.field}" if self.part is None else f"{last}.{self.part}.{self.field}"


@dataclass(frozen=True, slots=True)
class NextUnion:
    """A header of the first free union of a union stack."""

    stack: str
    part: str
    """Name of the header within the union."""

    def __str__(self) -> str:
        return f"{self.stack}.next.{self.part}"


@dataclass(frozen=True, slots=True)
class Peek:
    """Bits of the packet ahead of the parser."""

    offset: int
    """Distance in bits from the first bit that is not extracted yet."""
    width: int

    def __str__(self) -> str:
        return f"{self.width} bits ahead"


@dataclass(frozen=True, slots=True)
class Named:
    """A reference by name to a header, stack, calculation, register, counter or meter array, extern or string."""

    kind: str
    """The JSON's type: header, header_stack, calculation, register_array, ..."""
    name: str

    def __str__(self) -> str:
        return self.name or f"a {self.kind}"


@dataclass(frozen=True, slots=True)
class Vector:
    """A list of operands; only log_msg has one."""

    items: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{{{', '.join(map(str, self.items))}}}"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator and its operands; unary operators have no `left`, and only `?` has a `condition`."""

    operator: str
    left: Operand | None
    right: Operand | int
    """An int for access_field, the field's position in its header, and for access_union_header, that of the header."""
    condition: Operand | None = None

    def __str__(self) -> str:
        if self.condition is not None:
            return f"({self.condition} ? {self.left} : {self.right})"
        return f"{self.operator}({self.right})" if self.left is None else f"({self.left} {self.operator} {self.right})"


Operand = FieldName | Number | Truth | Argument | StackField | NextUnion | Peek | Named | Vector | Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """A field of a header type."""

    name: str
    width: int
    """Bits; of a variable field the maximum, 0 if the file does not give it."""
    signed: bool = False
    variable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderType:
    """A header or metadata type."""

    name: str
    fields: tuple[FieldType, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderInstance:
    """A header or metadata instance."""

    name: str
    type: HeaderType
    metadata: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderStack:
    """A stack of headers or of header unions, and the instances that are its members, in order."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderUnion:
    """A header union: at most one of its headers is valid."""

    name: str
    members: tuple[str, ...]
    """Header instances."""
    parts: tuple[str, ...]
    """Their names within the union."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """A step of an action, or an operation of a parser state."""

    operation: str
    operands: tuple[Operand, ...]
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action: parameters (name, bits) and steps."""

    name: str
    id: int
    params: tuple[tuple[str, int], ...]
    primitives: tuple[Primitive, ...]
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A case of a parser state's select."""

    value: int | None
    """The key's fields side by side, each rounded up to whole bytes; None for the default case."""
    mask: int | None
    next_state: str | None
    value_set: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserState:
    """A parser state."""

    name: str
    operations: tuple[Primitive, ...]
    key: tuple[Operand, ...]
    transitions: tuple[Transition, ...]
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """A parser; its start state is None if the program parses nothing."""

    start: str | None
    states: tuple[ParserState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKey:
    """One field of a table's key."""

    name: str
    kind: str
    """exact, lpm, ternary, range, valid or selector."""
    operand: FieldName
    mask: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """An entry that the program declares."""

    match: tuple[tuple[str, int, int], ...]
    """For each key field its kind and two numbers: value and mask, value and prefix length, or low and high."""
    action_id: int
    arguments: tuple[int, ...]
    priority: int
    """As in BMv2, the entry with the smallest number wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultEntry:
    """The default action that the program declares."""

    action_id: int
    arguments: tuple[int, ...]
    const: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A match-action table; p4c also makes tables of plain statements, and these are included."""

    name: str
    kind: str
    """simple, indirect or indirect_ws."""
    size: int
    keys: tuple[TableKey, ...]
    action_ids: tuple[int, ...]
    next_by_action: dict[int, str | None]
    next_by_hit: tuple[str | None, str | None] | None
    """Next nodes on hit and on miss, if the program branches on these and not on the action."""
    next_default: str | None
    """Next node after an action that `next_by_action` does not list."""
    default: DefaultEntry
    entries: tuple[TableEntry, ...]
    const_entries: bool
    counters: bool
    meter: str | None
    timeout: bool
    source: Source | None
    profile: str | None = None
    """The action profile that has the table's actions; None: entries have actions themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """An action profile; one with a selector has groups, and the selector's hash chooses the member of a group."""

    name: str
    size: int
    """Most members."""
    selector: Calculation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditional:
    """A branch of a control."""

    name: str
    condition: Operand
    true_next: str | None
    false_next: str | None
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Ingress or egress: a graph of tables and conditionals, entered at `start`."""

    name: str
    start: str | None
    tables: tuple[Table, ...]
    conditionals: tuple[Conditional, ...]
    profiles: tuple[Profile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculation:
    """A named hash or checksum over a list of fields."""

    name: str
    algorithm: str
    inputs: tuple[Operand, ...]
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnList:
    """The values of a digest."""

    name: str
    elements: tuple[Operand, ...]
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """A field that is verified after parsing or updated before deparsing, if the condition holds."""

    target: FieldName
    calculation: str
    verify: bool
    update: bool
    condition: Operand | None
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """An array of registers, counters or meters; a direct array belongs to a table."""

    name: str
    size: int
    width: int
    """Bits of a register's cell, else 0."""
    direct: bool
    source: Source | None
    unit: str = ""
    """Unit that a meter counts: bytes or packets."""
    target: FieldName | None = None
    """The field to which a direct meter writes its colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bmv2Program:
    """All parts of the JSON that this switch uses."""

    name: str
    headers: tuple[HeaderInstance, ...]
    stacks: tuple[HeaderStack, ...]
    unions: tuple[HeaderUnion, ...]
    union_stacks: tuple[HeaderStack, ...]
    field_lists: dict[int, tuple[Operand, ...]]
    """The fields that resubmit, recirculate and clone preserve, by identifier of the list."""
    learn_lists: dict[int, LearnList]
    """Digests by identifier."""
    errors: dict[str, int]
    parser: Parser
    value_sets: dict[str, int]
    """For each parser value set, the number of members that it may have."""
    deparser: tuple[str, ...]
    """Headers in the order in which they leave."""
    deparsing: tuple[Primitive, ...]
    """Steps of the deparser, which come before it writes headers."""
    registers: tuple[Array, ...]
    counters: tuple[Array, ...]
    meters: tuple[Array, ...]
    calculations: tuple[Calculation, ...]
    checksums: tuple[Checksum, ...]
    actions: tuple[Action, ...]
    ingress: Control
    egress: Control
    externs: tuple[str, ...]
    aliases: dict[str, FieldName]
    """The names of simple_switch for standard fields, and the fields of this program that they stand for."""
