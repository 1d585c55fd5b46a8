"""A proof that packets can be divided among cores by a header field: packets of two shards never use the same cell.

The problem: registers make P4 programs stateful.  If two cores run the same program at the same time, two packets may
read and write one register cell, and the result is one that no order of the packets gives.  Locks would cost more than
the second core gains.

The idea: the *shard* of a packet is the low bits of a header field as the parser leaves it.  Let `k` be the number of
these bits.  The pass shows for each register that there is a place `j` such that in every access, bits `j` to `j + k -
1` of the index *are* those low bits of the field.

Why it is right: two packets that use the same cell have equal indices, hence equal bits `j` to `j + k - 1`, hence the
same shard, hence the same core.  Nothing else passes from one packet to another: the control plane writes tables and
groups between batches only, counters may be added up in any order, and random numbers mean nothing.  A program with
anything more (meters, clones, packets that enter ingress again) is refused.  So is a program whose parser does more
than parse, since the parser runs twice: once to find the shard.

How it is shown: values are followed bit by bit through the graphs, along all ways at once.  A bit is 0, 1, bit number
`i` of the field, or unknown.  Where two ways meet, a bit that differs is unknown.  An operation for which there is no
rule gives unknown bits, and after a statement for which there is none all fields are unknown.  So a mistake of omission
refuses a program; it never passes a wrong one.

Example, from p4src/slot.p4, sharded by `agg.slot`: the index `cell = (slot << 1) | (number & 1)` has the slot's bits
from `j` = 1 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from .. import ir
from ..errors import ProgramError
from ..ir import Op
from ..lower.graph import targets
from .analysis import assigned, is_wide, written

ZERO: Final = -1
ONE: Final = -2
UNKNOWN: Final = -3
"""Values of a bit.  A number from 0 on is that bit of the field, the lowest first."""
MOST_BITS: Final = 128
"""Widest value that is followed; wider ones are no indices, and all their bits are unknown."""

Bits = tuple[int, ...]
"""The bits of a value, the lowest first."""
Known = dict[int, Bits]
"""The bits of the fields of which something is known, by slot."""

_PARSING: Final = (
    *(ir.Assign, ir.SetValid, ir.SetInvalid, ir.CopyHeader),
    *(ir.Extract, ir.Require, ir.Advance),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How packets are divided among cores."""

    field: str
    """Name of the field, `header.field`; its low bits are the shard."""
    shards: int
    """Number of shards, a power of two, at least 2."""


def prove(program: ir.Program, sharding: Sharding) -> int:
    """Return the slot of the field; raises ProgramError if the program cannot be sharded by it."""
    slot = next((slot for slot, field in enumerate(program.fields) if field.name == sharding.field), None)
    if slot is None or program.headers[program.fields[slot].header].metadata:
        raise ProgramError(f"shards: the program has no header field {sharding.field}")
    width = program.fields[slot].width
    if is_wide(program, slot) or sharding.shards > 1 << width:
        raise ProgramError(
            f"shards: {sharding.field} has {width} bits, from which {sharding.shards} shards cannot come"
        )
    _require_plain(program)
    places: dict[int, set[int]] = {}
    for block, register, index, bits in accesses(program, slot):
        info = program.registers[register]
        if not set(bits) - {ZERO, ONE} and _number(bits) >= info.size:
            continue  # a constant index beyond the end reads 0 and writes nothing
        wanted = tuple(range(sharding.shards.bit_length() - 1))
        here = {place for place in range(len(bits)) if bits[place : place + len(wanted)] == wanted}
        before = places.setdefault(register, here)
        if not here & before:
            raise ProgramError(
                f"shards: register {info.name}: nothing says that its index {_text(program, index)} (in {block}) is a "
                f"function of {sharding.field}" + (" as it is elsewhere" if here else "")
            )
        places[register] = here & before
    return slot


def _require_plain(program: ir.Program) -> None:
    """Refuse programs in which more than registers and counters passes between packets, or the parser does more."""
    names, used = program.intrinsics, assigned(program)
    for slot, what in (
        (names.clone, "clones packets"),
        (names.resubmit, "resubmits packets"),
        (names.recirculate, "recirculates packets"),
    ):
        if slot in used:
            raise ProgramError(f"shards: the program {what}, which then leave their shard")
    statements = {
        type(statement) for name in _AFTER for block in getattr(program, name) for statement in block.statements
    }
    if ir.ExecuteMeter in statements or any(table.spec.meter is not None for table in program.tables):
        raise ProgramError("shards: the program has meters, which packets of all shards share")
    for block in program.parser:
        counts = isinstance(block.end, ir.Apply) and program.tables[block.end.table].spec.has_counters
        if counts or not all(isinstance(statement, _PARSING) for statement in block.statements):
            raise ProgramError(f"shards: the parser does more than parse (in {block.name})")


_AFTER: Final = ("verify", "ingress", "egress", "update")
"""The graphs after the parser, in the order in which a packet goes through them."""


def accesses(program: ir.Program, slot: int) -> Iterator[tuple[str, int, ir.Expr, Bits]]:
    """Yield all accesses to registers: name of the block, register, index, and what is known of the index."""
    known: Known = {slot: tuple(range(program.fields[slot].width))}
    around = {getattr(program.intrinsics, name) for name in program.intrinsics.__slots__}
    for name in _AFTER:
        # Between graphs the switch itself writes its own fields.
        known = {field: bits for field, bits in known.items() if field not in around}
        graph: ir.Graph = getattr(program, name)
        entering, known = _entering(program, graph, known)
        for block, before in zip(graph, entering, strict=True):
            if before is None:
                continue
            now = dict(before)
            for statement in block.statements:
                match statement:
                    case ir.ReadRegister(_, register, index) | ir.WriteRegister(register, index):
                        yield block.name, register, index, _bits(index, now)
                _step(program, statement, now)


def _entering(program: ir.Program, graph: ir.Graph, first: Known) -> tuple[list[Known | None], Known]:
    """Return what is known before each block (None: it is never reached), and what is known after the graph."""
    # A worklist: a block is visited again when less is known on a way into it.  Knowledge only shrinks, so this ends.
    entering: list[Known | None] = [None] * len(graph)
    entering[0] = first
    last: Known | None = None
    waiting = [0]
    while waiting:
        number = waiting.pop()
        block, now = graph[number], dict(entering[number] or {})
        for statement in block.statements:
            _step(program, statement, now)
        match block.end:
            case ir.Apply(table) if (colour := program.tables[table].colour) is not None:
                now.pop(colour, None)
            case ir.End():
                last = _merge(last, now)
        for target in targets(block.end):
            merged = _merge(entering[target], now)
            if merged != entering[target]:
                entering[target] = merged
                waiting.append(target)
    return entering, last or {}


def _merge(one: Known | None, other: Known) -> Known:
    """Return what is known after a join of two ways."""
    if one is None:
        return dict(other)
    return {slot: _meet(one[slot], other[slot]) for slot in one.keys() & other.keys()}


def _meet(one: Bits, other: Bits) -> Bits:
    return tuple(a if a == b else UNKNOWN for a, b in zip(one, other, strict=True))


def _step(program: ir.Program, statement: ir.Statement, known: Known) -> None:
    """Change what is known as a statement does."""
    match statement:
        case ir.Assign(slot, value):
            known[slot] = _bits(value, known)
        # Fields of an invalid header may be read; nothing is said of them here, although they keep their values.
        case ir.SetInvalid(header):
            for slot in program.headers[header].slots:
                known.pop(slot, None)
        case ir.WriteRegister() | ir.Count():
            pass
        case ir.ReadRegister() | ir.Random() | ir.SetValid() | ir.CopyHeader():
            for slot in written(program, statement):
                known.pop(slot, None)
        case _:
            known.clear()


def _number(bits: Bits) -> int:
    return sum(1 << place for place, bit in enumerate(bits) if bit == ONE)


def _constant(value: int, width: int) -> Bits:
    return tuple(ONE if value >> place & 1 else ZERO for place in range(width))


def _bits(value: ir.Expr, known: Mapping[int, Bits]) -> Bits:
    """Return what is known of the bits of an expression."""
    width = value.width
    nothing = (UNKNOWN,) * width
    if width > MOST_BITS:
        return nothing
    match value:
        case ir.Const(_, number):
            return _constant(number, width)
        case ir.Field(_, slot):
            return known.get(slot, nothing)
        case ir.Resize(_, inner, signed) if inner.width <= MOST_BITS:
            bits = _bits(inner, known)
            return (*bits, *((bits[-1] if signed else ZERO,) * width))[:width]
        case ir.Repeat(_, inner):
            return _bits(inner, known) * (width // inner.width)
        case ir.Select(_, _, then, other):
            return _meet(_bits(then, known), _bits(other, known))
        case ir.Binary(_, op, left, right):
            return _binary(op, _bits(left, known), right, known)
    return nothing


def _binary(op: Op, left: Bits, right: ir.Expr, known: Mapping[int, Bits]) -> Bits:
    """Return what is known of an operation on two values of equal width, or of a shift by a constant."""
    width, zeros = len(left), (ZERO,) * len(left)
    other = _bits(right, known)
    amount = None if set(other) - {ZERO, ONE} else _number(other)
    match op:
        case Op.AND:
            return tuple(map(_and, left, other))
        case Op.OR:
            return tuple(map(_or, left, other))
        case Op.XOR:
            return tuple(map(_xor, left, other))
        case Op.ADD:
            return _sum(left, other)
        case Op.SHL if amount is not None:
            return (*zeros[:amount], *left)[:width]
        case Op.SHR if amount is not None:
            return (*left[amount:], *zeros)[:width]
        # A multiplication by a power of two is a shift.
        case Op.MUL if amount is not None and amount.bit_count() == 1:
            return (*zeros[: amount.bit_length() - 1], *left)[:width]
    return (UNKNOWN,) * width


def _and(a: int, b: int) -> int:
    if ZERO in (a, b):
        return ZERO
    return b if a == ONE else a if b in (ONE, a) else UNKNOWN


def _or(a: int, b: int) -> int:
    if ONE in (a, b):
        return ONE
    return b if a == ZERO else a if b in (ZERO, a) else UNKNOWN


def _xor(a: int, b: int) -> int:
    if ZERO in (a, b):
        return b if a == ZERO else a
    return ZERO if a == b != UNKNOWN else UNKNOWN


def _sum(left: Bits, right: Bits) -> Bits:
    """Return the bits of a sum, as far as the carry is known."""
    # A bit is known if at most one of the two bits and the carry is not a constant 0, or if all three are constants.
    made, carry = [], ZERO
    for three in zip(left, right, strict=True):
        added = (*three, carry)
        rest = [bit for bit in added if bit != ZERO]
        if set(rest) <= {ONE}:
            made.append(ONE if len(rest) % 2 else ZERO)
            carry = ONE if len(rest) > 1 else ZERO
        else:
            made.append(rest[0] if len(rest) == 1 else UNKNOWN)
            carry = ZERO if len(rest) == 1 else UNKNOWN
    return tuple(made)


def _text(program: ir.Program, value: ir.Expr) -> str:
    """Return an expression as text by which a user can find it in the P4 source."""
    match value:
        case ir.Const(_, number):
            return str(number)
        case ir.Field(_, slot):
            return program.fields[slot].name
        case ir.Binary(_, op, left, right):
            return f"({_text(program, left)} {op.value} {_text(program, right)})"
        case ir.Resize(width, inner):
            return _text(program, inner) + (f"[{width - 1}:0]" if width < inner.width else "")
    return "..."
