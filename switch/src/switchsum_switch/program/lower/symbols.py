"""The names of a program: the index in the IR of each header, field, stack, register, counter and meter.

The switch also needs fields of its own for each packet: the next index of each header stack, and notes of what clone,
resubmit, recirculate and truncate are to do.  They are fields of one more metadata header, `HIDDEN`.  A standard field
that the program's architecture file lacks is added there, too, so that the rest of the switch need not ask.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from ...errors import ProgramError
from ...state.meters import MeterUnit
from ...state.state import WIDE_BITS
from .. import ir, model, v1model

_K = TypeVar("_K")
_V = TypeVar("_V")

HIDDEN = "$switch"
"""Name of the metadata header for the switch's own fields; no P4 name begins with a dollar sign."""

LENGTH = "$length"
"""Name of the field that holds the length of a header's variable field."""
INDEX = "index"
"""The hidden field with the index of the member of a stack that is about to be assigned."""
DIGEST = "digest"
"""The hidden field with the digest that the end of ingress is to make, plus 1; 0: none."""
NOTHING = "nothing"
"""The hidden field in the place of all that have no bits."""
RESTORES = "restores"
"""The hidden field with the number of the list whose fields of headers a clone gets back; 0: none."""
TURN_BITS = 64
"""Bits of the numbers that `round_robin` gives."""
VARIABLE = "variable"
"""The hidden field with the length of a variable field that is about to be extracted."""

MAX_WIDTH = 2048
"""Most bits of a field, as in p4c."""
MAX_VARIABLE_WIDTH = 8 * 65536
"""Most bits of a field of variable length: no frame is longer."""
_VARIABLE_STEP, _LEAST_VARIABLE = 64, 128
"""A variable field has room for a multiple of so many bits, and at least for so many, so that it is always wide."""

# The fields that the switch reads and writes: simple_switch's name, and the width if the program lacks the field.
_STANDARD = {
    "ingress_port": ("standard_metadata.ingress_port", 9),
    "egress_spec": ("standard_metadata.egress_spec", 9),
    "egress_port": ("standard_metadata.egress_port", 9),
    "instance_type": ("standard_metadata.instance_type", 32),
    "packet_length": ("standard_metadata.packet_length", 32),
    "mcast_grp": ("intrinsic_metadata.mcast_grp", 16),
    "egress_rid": ("intrinsic_metadata.egress_rid", 16),
    "parser_error": ("standard_metadata.parser_error", 32),
    "checksum_error": ("standard_metadata.checksum_error", 1),
    "ingress_timestamp": ("intrinsic_metadata.ingress_global_timestamp", 48),
    "egress_timestamp": ("intrinsic_metadata.egress_global_timestamp", 48),
    "enqueue_timestamp": ("queueing_metadata.enq_timestamp", 32),
    "enq_qdepth": ("queueing_metadata.enq_qdepth", 19),
    "deq_qdepth": ("queueing_metadata.deq_qdepth", 19),
    "deq_timedelta": ("queueing_metadata.deq_timedelta", 32),
    "qid": ("queueing_metadata.qid", 8),
    "priority": ("intrinsic_metadata.priority", 3),
    "length": (f"{HIDDEN}.length", 32),
    "cut": (f"{HIDDEN}.cut", 33),
    "clone": (f"{HIDDEN}.clone", 17),
    "clone_list": (f"{HIDDEN}.clone_list", 16),
    "resubmit": (f"{HIDDEN}.resubmit", 16),
    "recirculate": (f"{HIDDEN}.recirculate", 16),
}


class Symbols:
    """The indices of all that has a name; a name that is missing or not supported raises ProgramError."""

    def __init__(self, program: model.Bmv2Program, drop_port: int) -> None:
        if program.externs:
            raise ProgramError(f"extern objects are not supported ({', '.join(program.externs)})")
        self.errors = program.errors
        self.drop_port = drop_port
        self.value_sets = program.value_sets
        self.headers: list[ir.HeaderInfo] = []
        self.fields: list[ir.FieldInfo] = []
        self._header_index: dict[str, int] = {}
        self._slots: dict[tuple[str, str], int] = {}
        self._signed: set[int] = set()
        self._most_variable: dict[int, int] = {}
        self._positions: dict[int, tuple[str, ...]] = {}
        """The names of a header's fields in the order of the file, those of no bits among them."""
        self._without_bits: set[tuple[str, str]] = set()
        self._aliases = program.aliases
        for header in program.headers:
            self._add_header(header.name, header.type.fields, header.metadata)
        self.stacks = {stack.name: tuple(map(self.header, stack.members)) for stack in program.stacks}
        self._unions = {union.name: union for union in program.unions}
        self._union_stacks = {stack.name: stack.members for stack in program.union_stacks}
        for union in program.unions:
            self._relate(self.union(union.name))
        self.stack_names = (*self.stacks, *self._union_stacks)
        hidden = [model.FieldType(name=f"next {name}", width=32) for name in self.stack_names]
        hidden += [
            model.FieldType(name=name, width=width)
            for name, (standard, width) in _STANDARD.items()
            if self._standard(standard) is None
        ]
        self._digests = {identifier: number for number, identifier in enumerate(program.learn_lists)}
        if self._digests:
            hidden.append(model.FieldType(name=DIGEST, width=16))
        if self.stack_names:
            hidden.append(model.FieldType(name=INDEX, width=32))
        if any(header.variable is not None for header in self.headers):
            hidden.append(model.FieldType(name=VARIABLE, width=32))
        if self._without_bits:
            hidden.append(model.FieldType(name=NOTHING, width=1))
        self._add_header(HIDDEN, tuple(hidden), True)
        self._nothing = self._slots.get((HIDDEN, NOTHING))
        self._slots |= {name: self.slot(HIDDEN, NOTHING) for name in self._without_bits}
        self.intrinsics = v1model.Intrinsics(**{name: self._intrinsic(name) for name in _STANDARD})
        self.stack_counts = tuple(map(self.next_slot, self.stack_names))
        # List 0 is empty: it stands for "no list", so that the field which holds a list's number may start at 0.
        self._lists = {identifier: number for number, identifier in enumerate(program.field_lists, start=1)}
        self.restored: dict[int, tuple[tuple[int, int], ...]] = {}
        """Of each list that has fields of headers, these fields and the hidden ones that keep them for a clone."""
        self.field_lists = ((), *map(self._field_list, self._lists.values(), program.field_lists.values()))
        self.registers, self._register_index = _arrays(program.registers)
        self.counters, self._counter_index = _arrays(program.counters)
        for meter in program.meters:
            if meter_unit(meter) is None:
                raise model.refusal(
                    f"not a BMv2 program: meter {meter.name} does not say what it measures", meter.source
                )
        self.meters, self._meter_index = _arrays(program.meters)
        self.direct_meters = {meter.name: meter for meter in program.meters if meter.direct}
        self.calculations = {calculation.name: calculation for calculation in program.calculations}
        self._reads_validity = _validity_reads(program)

    def header(self, name: str) -> int:
        """Return the index of a header; raises ProgramError for metadata."""
        index = _find(self._header_index, "header", name)
        if self.headers[index].metadata:
            raise ProgramError(f"metadata {name} where a header is needed is not supported")
        return index

    def is_metadata(self, name: str) -> bool:
        """Return whether a name is that of metadata and not of a header."""
        return self.headers[_find(self._header_index, "header", name)].metadata

    def slots_of(self, name: str) -> tuple[int, ...]:
        """Return the fields of a header or of metadata."""
        return self.headers[_find(self._header_index, "header", name)].wire

    def most_variable_bits(self, header: int) -> int:
        """Return how many bits the variable field of a header may have."""
        return self._most_variable[header]

    def validity(self, name: str) -> ir.Expr:
        """Return an expression that tells whether a header is valid; metadata always is."""
        index = _find(self._header_index, "header", name)
        return ir.Const(1, 1) if self.headers[index].metadata else ir.Valid(index)

    def reads_validity(self, header: str) -> bool:
        """Return whether the program reads the field `$valid$` of a header."""
        return header in self._reads_validity

    def scratch(self, name: str, width: int) -> int:
        """Return the slot of a hidden field, which is made when it is first asked for."""
        if (HIDDEN, name) not in self._slots:
            [index] = [number for number, header in enumerate(self.headers) if header.name == HIDDEN]
            slot, info = len(self.fields), self.headers[index]
            field = ir.FieldInfo(name=f"{HIDDEN}.{name}", header=index, width=width, offset=info.width)
            self.fields.append(field)
            self.headers[index] = replace(info, slots=(*info.slots, slot), width=info.width + width)
            self._slots[HIDDEN, name] = slot
        return self._slots[HIDDEN, name]

    def turn(self, calculation: str) -> int:
        """Return the hidden register that counts how often a calculation `round_robin` was computed."""
        name = f"$turn {calculation}"
        if name not in self._register_index:
            self._register_index[name] = len(self.registers)
            self.registers = (*self.registers, ir.ArrayInfo(name=name, size=1, width=TURN_BITS))
        return self._register_index[name]

    def slot(self, header: str, field: str) -> int:
        """Return the slot of a field."""
        return _find(self._slots, "field", (header, field))

    def find(self, header: str, field: str) -> int | None:
        """Return the slot of a header's field; None if the header has none of that name."""
        _find(self._header_index, "header", header)
        return self._slots.get((header, field))

    def has_bits(self, slot: int) -> bool:
        """Return whether a field has bits: those of `bit<0>` are one slot, whose value is always 0."""
        return slot != self._nothing

    def position(self, header: int, position: int) -> int | None:
        """Return the slot of a header's field by its place among the fields; None if there is no such field."""
        names = self._positions[header]
        return self.slot(self.headers[header].name, names[position]) if position < len(names) else None

    def next_slot(self, stack: str) -> int:
        """Return the slot of a stack's next index, which is the index of its first free member."""
        return self.slot(HIDDEN, f"next {stack}")

    def stack(self, name: str) -> tuple[int, ...]:
        """Return the headers of a stack."""
        return _find(self.stacks, "header stack", name)

    def union(self, name: str) -> tuple[int, ...]:
        """Return the headers of a header union."""
        return tuple(map(self.header, _find(self._unions, "header union", name).members))

    def union_stack(self, name: str) -> tuple[str, ...]:
        """Return the names of the unions of a union stack."""
        return _find(self._union_stacks, "header union stack", name)

    def parts(self, stack: str, part: str) -> tuple[int, ...]:
        """Return for each union of a stack the header that has the name `part` there."""
        unions = [_find(self._unions, "header union", name) for name in self.union_stack(stack)]
        if any(part not in union.parts for union in unions):
            raise ProgramError(f"not a BMv2 program: unions of {stack} have no header {part}")
        return tuple(self.header(union.members[union.parts.index(part)]) for union in unions)

    def elements(self, stack: str) -> tuple[tuple[int, ...], ...]:
        """Return the headers of each element of a stack: one, or all of a union."""
        if stack in self._union_stacks:
            return tuple(map(self.union, self.union_stack(stack)))
        return tuple((header,) for header in self.stack(stack))

    def signed(self, slot: int) -> bool:
        """Return whether a field is signed."""
        return slot in self._signed

    def field(self, slot: int) -> ir.Field:
        """Return a field as an expression."""
        return ir.Field(self.fields[slot].width, slot)

    def number(self, slot: int) -> ir.Expr:
        """Return the number that a field is; the bits of a variable field are at its top."""
        field, length = self.field(slot), self.fields[slot].length
        if length is None:
            return field
        behind = ir.Binary(32, ir.Op.SUB, ir.Const(32, field.width), self.field(length))
        return ir.Binary(field.width, ir.Op.SHR, field, behind)

    def register(self, name: str) -> int:
        """Return the index of a register array."""
        return _find(self._register_index, "register", name)

    def counter(self, name: str) -> int:
        """Return the index of a counter array."""
        return _find(self._counter_index, "counter", name)

    def meter(self, name: str) -> int:
        """Return the index of a meter array."""
        return _find(self._meter_index, "meter", name)

    def list_number(self, identifier: int) -> int:
        """Return the number of a field list; a list that the program does not define is empty, as in BMv2."""
        return self._lists.get(identifier, 0)

    def digest(self, identifier: int) -> int:
        """Return the number of a digest."""
        return _find(self._digests, "learn list", identifier)

    def error(self, name: str) -> int:
        """Return the code of one of the core library's errors."""
        return _find(self.errors, "error", name)

    def _add_header(self, name: str, fields: tuple[model.FieldType, ...], metadata: bool) -> None:
        index = len(self.headers)
        offset = 0
        first = len(self.fields)
        self._positions[index] = tuple(field.name for field in fields)
        for field in fields:
            width = field.width
            if not width and not field.variable:
                self._without_bits.add((name, field.name))
                continue
            if field.variable:
                self._most_variable[index], width = width, _variable_width(name, field)
            if not field.variable and not 0 < width <= MAX_WIDTH:
                raise ProgramError(f"field {name}.{field.name} has {width} bits, not 0 to {MAX_WIDTH}")
            slot = len(self.fields)
            self.fields.append(ir.FieldInfo(name=f"{name}.{field.name}", header=index, width=width, offset=offset))
            self._slots[name, field.name] = slot
            if field.signed:
                self._signed.add(slot)
            offset += width
        if offset % 8 and not metadata:
            raise ProgramError(f"header {name} has {offset} bits, but headers must have whole bytes")
        variable = self._add_length(index, [self._slots[name, field.name] for field in fields if field.variable])
        slots = tuple(range(first, len(self.fields)))
        self.headers.append(
            ir.HeaderInfo(
                name=name,
                metadata=metadata,
                slots=slots,
                width=offset,
                variable=variable,
                length=slots[-1] if variable is not None else None,
            )
        )
        self._header_index[name] = index

    def _add_length(self, header: int, variable: list[int]) -> int | None:
        """Add the field that holds the length of a header's variable field; return that field, None if it has none."""
        if not variable:
            return None
        [slot, *others] = variable
        field = self.fields[slot]
        if others:
            raise ProgramError(
                f"not a BMv2 program: {self.fields[others[0]].name} is a second field of variable length"
            )
        name = f"{field.name.rpartition('.')[0]}.{LENGTH}"
        self.fields[slot] = replace(field, length=len(self.fields))
        self.fields.append(ir.FieldInfo(name=name, header=header, width=32, offset=0))
        return slot

    def _relate(self, union: tuple[int, ...]) -> None:
        """Make headers the siblings of each other."""
        for header in union:
            others = tuple(other for other in union if other != header)
            self.headers[header] = replace(self.headers[header], siblings=others)

    def _field_list(self, number: int, items: tuple[model.Operand, ...]) -> tuple[int, ...]:
        """Return the metadata of a field list, and what stands there for its fields of headers; constants say nothing.

        A clone is parsed anew, and then has the fields of headers as they were when ingress ended.  In a frame that
        enters ingress again they are what the parser makes of them.
        """
        slots: list[int] = []
        headers: list[tuple[int, int]] = []
        for item in items:
            if isinstance(item, model.Number):
                continue
            if not isinstance(item, model.FieldName) or item.field == "$valid$":
                raise ProgramError(f"{item} in a field list is not supported")
            metadata, slot = self.is_metadata(item.header), self.slot(item.header, item.field)
            length = self.fields[slot].length
            if metadata:
                slots += [slot] if length is None else [slot, length]
            elif length is not None:
                raise ProgramError(f"{item}, which is of variable length, in a field list is not supported")
            elif self.has_bits(slot):
                headers.append((slot, self.scratch(f"kept {item}", self.fields[slot].width)))
        if headers:
            self.restored[number] = tuple(headers)
            slots += [*(hidden for _, hidden in headers), self.scratch(RESTORES, 16)]
        return tuple(slots)

    def _standard(self, name: str) -> int | None:
        target = self._aliases.get(name, model.FieldName(*name.split(".")))
        return self._slots.get((target.header, target.field))

    def _intrinsic(self, name: str) -> int:
        found = self._standard(_STANDARD[name][0])
        if found is None:
            return self.slot(HIDDEN, name)
        field = self.fields[found]
        if not self.headers[field.header].metadata or field.width >= WIDE_BITS or not self.has_bits(found):
            raise ProgramError(
                f"the switch has to write {field.name}, which must be metadata of less than {WIDE_BITS} bits"
            )
        return found


def _validity_reads(program: model.Bmv2Program) -> set[str]:
    """Return the headers whose field `$valid$` the program reads; what assigns to it is not among them."""
    found: set[str] = set()

    def walk(item: object) -> None:
        match item:
            case model.FieldName(header, "$valid$"):
                found.add(header)
            case model.Primitive(operation=operation, operands=(model.FieldName(_, "$valid$"), *rest)) if operation in (
                "assign",
                "set",
                "modify_field",
            ):
                walk(tuple(rest))
            case tuple() | list():
                for one in item:
                    walk(one)
            case dict():
                walk(tuple(item.values()))
            case _ if is_dataclass(item):
                walk(tuple(getattr(item, part.name) for part in fields(item)))

    walk(program)
    return found


def _variable_width(header: str, field: model.FieldType) -> int:
    """Return the bits of room for a field of variable length."""
    name = f"{header}.{field.name}"
    if not 1 <= field.width <= MAX_VARIABLE_WIDTH:
        raise ProgramError(f"{name} is a field of variable length of 1 to {MAX_VARIABLE_WIDTH} bits, not {field.width}")
    return max(_LEAST_VARIABLE, -(-field.width // _VARIABLE_STEP) * _VARIABLE_STEP)


def _arrays(arrays: tuple[model.Array, ...]) -> tuple[tuple[ir.ArrayInfo, ...], dict[str, int]]:
    kept = [array for array in arrays if not array.direct]
    for array in kept:
        if array.width > MAX_WIDTH:
            raise model.refusal(f"register {array.name} of {array.width} bits, not 1 to {MAX_WIDTH},", array.source)
    made = tuple(
        ir.ArrayInfo(name=array.name, size=array.size, width=array.width, unit=meter_unit(array)) for array in kept
    )
    return made, {array.name: index for index, array in enumerate(made)}


def meter_unit(array: model.Array) -> MeterUnit | None:
    """Return the unit that a meter array measures; None for other arrays."""
    try:
        return MeterUnit(array.unit) if array.unit else None
    except ValueError:
        raise model.refusal(f"not a BMv2 program: meter {array.name} measures {array.unit}", array.source) from None


def _find(among: dict[_K, _V], what: str, name: _K) -> _V:
    if name not in among:
        shown = ".".join(name) if isinstance(name, tuple) else str(name)
        raise ProgramError(f"not a BMv2 program: it has no {what} {shown}")
    return among[name]
