"""Expressions of the IR as LLVM integers.

LLVM leaves three things undefined that the IR defines: a shift by the width or more, a division by 0, and a division of
more bits than the machine has.  Each has its rule here.  Wide values are computed by `wide.py` where that is possible;
this module then loads the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ll

from ..program import ir
from ..program.ir import Op, Relation
from ..program.passes.analysis import is_wide
from .division import division_function
from .emitter import POINTER, Emitter, Fields, Value, constant, integer
from .hashing import HashEmitter
from .layout import RowLayout, words
from .wide import WideFields, is_wide_value

_MAX_DIVISION_BITS = 64
"""Widest division for which machines have an instruction."""

_RELATIONS = {
    Relation.EQ: ("==", False),
    Relation.NE: ("!=", False),
    Relation.LT: ("<", False),
    Relation.LE: ("<=", False),
    Relation.LT_SIGNED: ("<", True),
    Relation.LE_SIGNED: ("<=", True),
}


class Values:
    """Computes expressions in one function.  `wide` belongs to the current block; `GraphEmitter` replaces it."""

    def __init__(self, emitter: Emitter, fields: Fields) -> None:
        self._emit = emitter
        self._fields = fields
        self.wide = WideFields(emitter, fields, self.integer)
        self._rows: dict[int, Value] = {}
        """For each table, the variable that holds the address of the row that its last lookup has found."""
        self._hashes = HashEmitter(emitter, fields, self)

    def integer(self, value: ir.Expr) -> Value:
        """Return the value of an expression as an integer of its width."""
        return _VALUES[type(value)](self, value)

    def index(self, value: ir.Expr, size: int) -> tuple[Value, Value]:
        """Return an index as 64 bits, and whether it is below `size`; in a debug build a larger one is a trap."""
        number = self.integer(value)
        if number.type.width < 64:
            number = self._emit.resize(number, 64)
        if size >> number.type.width:
            inside = constant(1, 1)
        else:
            inside = self._emit.build.icmp_unsigned("<", number, constant(number.type.width, size))
        if self._emit.unit.debug:
            self._trap_unless(inside)
        return self._emit.resize(number, 64), inside

    def set_row(self, table: int, address: Value) -> None:
        """Store the address of the row that a table's lookup has found."""
        self._emit.store(address, self._row(table), 8)

    def row(self, table: int) -> Value:
        """Load the address of the row that a table's lookup has found."""
        return self._emit.load(POINTER, self._row(table), 8)

    def _row(self, table: int) -> Value:
        if table not in self._rows:
            self._rows[table] = self._emit.stack(POINTER)
        return self._rows[table]

    def _trap_unless(self, condition: Value) -> None:
        with self._emit.build.if_then(self._emit.build.not_(condition), likely=False):
            trap = self._emit.unit.module.declare_intrinsic("llvm.trap", (), ll.FunctionType(ll.VoidType(), []))
            self._emit.build.call(trap, [])

    def _const(self, value: ir.Const) -> Value:
        return constant(value.width, value.value)

    def _field(self, value: ir.Field) -> Value:
        if is_wide(self._emit.program, value.slot):
            return self.wide.integer(value.slot)
        return self._fields.load(value.slot)

    def _param(self, value: ir.Param) -> Value:
        layout = RowLayout(self._emit.program.tables[value.table].spec)
        address = self._emit.at(self.row(value.table), layout.param_offset(value.action, value.index))
        loaded = self._emit.load(integer(64 * words(value.width)), address, 8)
        return self._emit.resize(loaded, value.width)

    def _valid(self, value: ir.Valid) -> Value:
        return self._fields.valid(value.header)

    def _peek(self, value: ir.Peek) -> Value:
        packet = self._fields.packet
        first, last = value.offset // 8, (value.offset + value.width + 7) // 8
        cursor = self._emit.load(integer(64), packet.cursor, 8)
        ahead = self._emit.at(self._emit.at(packet.frame, cursor), first)
        return self._emit.load_bits(self._emit.own_copy(ahead, last - first), value.offset % 8, value.width)

    def _binary(self, value: ir.Binary) -> Value:
        left = self.integer(value.left)
        if value.op in (Op.SHL, Op.SHR, Op.SAR):
            if value.op is Op.SHR and (sliced := self._slice(value, value.width)) is not None:
                return sliced
            return self._shift(value.op, left, self.integer(value.right))
        right = self.integer(value.right)
        if value.op in (Op.DIV, Op.MOD):
            return self._divide(value.op, left, right)
        return _operation(self._emit.build, value.op)(left, right)

    def _shift(self, op: Op, value: Value, amount: Value) -> Value:
        build, width = self._emit.build, value.type.width
        least = constant(width, 0)
        if isinstance(amount, ll.Constant):
            number = min(amount.constant, width - 1 if op is Op.SAR else width)
            return least if number == width else _operation(build, op)(value, constant(width, number))
        # LLVM leaves a shift by the width or more undefined; the IR gives 0, or copies of the top bit.
        amount = self._emit.resize(amount, max(width, amount.type.width))
        inside = build.icmp_unsigned("<", amount, constant(amount.type.width, width))
        amount = self._emit.resize(amount, width)
        if op is Op.SAR:
            return build.ashr(value, build.select(inside, amount, constant(width, width - 1)))
        return build.select(inside, _operation(build, op)(value, amount), least)

    def _divide(self, op: Op, left: Value, right: Value) -> Value:
        build, width = self._emit.build, left.type.width
        # Division by 0 stops the process on most machines; the IR gives 0.
        by_zero = build.icmp_unsigned("==", right, constant(width, 0))
        divisor = build.select(by_zero, constant(width, 1), right)
        if width <= _MAX_DIVISION_BITS:
            result = build.udiv(left, divisor) if op is Op.DIV else build.urem(left, divisor)
        else:
            both = build.call(division_function(self._emit.unit, width), [left, divisor])
            result = build.extract_value(both, 0 if op is Op.DIV else 1)
        return build.select(by_zero, constant(width, 0), result)

    def _compare(self, value: ir.Compare) -> Value:
        build = self._emit.build
        if value.relation in (Relation.EQ, Relation.NE) and (is_wide_value(value.left) or is_wide_value(value.right)):
            differ = self.wide.differ(value.left, value.right)
            return differ if value.relation is Relation.NE else build.not_(differ)
        sign, signed = _RELATIONS[value.relation]
        left, right = self.integer(value.left), self.integer(value.right)
        return build.icmp_signed(sign, left, right) if signed else build.icmp_unsigned(sign, left, right)

    def _select(self, value: ir.Select) -> Value:
        condition = self.integer(value.condition)
        return self._emit.build.select(condition, self.integer(value.then), self.integer(value.other))

    def _resize(self, value: ir.Resize) -> Value:
        if value.width < value.value.width and (sliced := self._slice(value.value, value.width)) is not None:
            return sliced
        return self._emit.resize(self.integer(value.value), value.width, value.signed)

    def _slice(self, value: ir.Expr, width: int) -> Value | None:
        """Return the low bits of a wide field, or of a field shifted by a constant, without loading its other bits."""
        shift = 0
        if isinstance(value, ir.Binary) and value.op is Op.SHR and isinstance(value.right, ir.Const):
            shift, value = value.right.value, value.left
        if not isinstance(value, ir.Field) or not is_wide(self._emit.program, value.slot):
            return None
        kept = min(width, value.width - shift)
        if kept <= 0:
            return constant(width, 0)
        return self._emit.resize(self.wide.slice(value.slot, shift, kept), width)

    def _repeat(self, value: ir.Repeat) -> Value:
        if is_wide_value(value):
            return self._from_memory(value)
        build, width = self._emit.build, value.width
        made = self._emit.resize(self.integer(value.value), width)
        # Each step doubles the number of copies.
        filled = value.value.width
        while filled < width:
            step = min(filled, width - filled)
            step -= step % value.value.width
            made = build.or_(made, build.shl(made, constant(width, step)))
            filled += step
        return made

    def _add_lanes(self, value: ir.AddLanes) -> Value:
        if is_wide_value(value):
            return self._from_memory(value)
        build, width = self._emit.build, value.width
        tops = constant(width, ((1 << width) - 1) // ((1 << value.lane) - 1) << (value.lane - 1))
        left, right = self.integer(value.left), self.integer(value.right)
        # Without their top bits two lanes have no carry into the next one; the top bits are added by exclusive or.
        low = build.add(build.and_(left, build.not_(tops)), build.and_(right, build.not_(tops)))
        return build.xor(low, build.and_(build.xor(left, right), tops))

    def _from_memory(self, value: ir.Expr) -> Value:
        """Compute a value in memory by vector instructions, and load it as an integer."""
        return self._emit.load_network(self.wide.address(value), value.width // 8)

    def _hash(self, value: ir.Hash) -> Value:
        return self._hashes.hash(value)


def _operation(build: ll.IRBuilder, op: Op) -> Callable[[Value, Value], Value]:
    made: Callable[[Value, Value], Value] = {
        Op.ADD: build.add,
        Op.SUB: build.sub,
        Op.MUL: build.mul,
        Op.AND: build.and_,
        Op.OR: build.or_,
        Op.XOR: build.xor,
        Op.SHL: build.shl,
        Op.SHR: build.lshr,
        Op.SAR: build.ashr,
    }[op]
    return made


_VALUES: dict[type, Callable[[Values, Any], Value]] = {
    ir.Const: Values._const,
    ir.Field: Values._field,
    ir.Param: Values._param,
    ir.Valid: Values._valid,
    ir.Peek: Values._peek,
    ir.Binary: Values._binary,
    ir.Compare: Values._compare,
    ir.Select: Values._select,
    ir.Resize: Values._resize,
    ir.Repeat: Values._repeat,
    ir.AddLanes: Values._add_lanes,
    ir.Hash: Values._hash,
}
