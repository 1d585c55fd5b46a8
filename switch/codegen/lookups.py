"""Table lookup in native code: from a key to the number of a row.

If every key field is exact, the rows are found by a hash table with open addressing: the key's hash gives a slot, and
the lookup goes from slot to slot until it finds the key or a free slot.  `rows.py` writes that table.  It is at most
half full, so that a lookup ends soon, and it always has a free slot, so that a lookup ends at all.

Otherwise the rows are tried one after the other, in the order of their rank.  That is slow for large LPM and ternary
tables; ours have few entries.
"""

from __future__ import annotations

import llvmlite.ir as ll

from ..tables import MatchKind
from .emitter import BYTE, I32, I64, POINTER, Emitter, Unit, Value, constant, integer
from .layout import (
    INDEX,
    INDEX_SIZE,
    ROWS,
    RowLayout,
    table_word,
    words,
)

HASH_FACTOR = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio (Knuth, volume 3, section 6.4); odd, so that no information is lost."""
_WORD = (1 << 64) - 1


def hash_key(key: int, bits: int) -> int:
    """Return the hash of a key of `bits` bits, a multiple of 64; native code computes the same."""
    state = 0
    for shift in range(0, bits, 64):
        state = ((state ^ (key >> shift & _WORD)) * HASH_FACTOR) & _WORD
        state ^= state >> 32
    return state


class Lookup:
    """Makes the function (context, number of the key's fields, one number for each range) that returns a row."""

    def __init__(self, unit: Unit, table: int) -> None:
        self._unit = unit
        self._table = table
        self.spec = unit.program.tables[table].spec
        self.layout = RowLayout(self.spec)

    def find(self, emitter: Emitter, context: Value, values: list[Value]) -> Value:
        """Return the number of the row that matches the key, 32 bits; 0 if none does."""
        build, bits = emitter.build, self.layout.key_bits
        if not self.spec.keys:
            return constant(32, 0)
        number = constant(max(bits, 64), 0)
        ranges = []
        for key, value in zip(self.spec.keys, values, strict=True):
            if key.kind is MatchKind.RANGE:
                ranges.append(emitter.resize(value, 64 * words(key.width)))
            else:
                number = build.shl(number, constant(number.type.width, key.width)) if key.width < bits else number
                number = build.or_(number, emitter.resize(value, number.type.width))
        function = self._unit.helper(("lookup", self._table), self._write)
        return build.call(function, [context, number, *ranges])

    def _write(self) -> ll.Function:
        ranges = [integer(64 * words(spec.width)) for spec in self.spec.keys if spec.kind is MatchKind.RANGE]
        arguments = [POINTER, integer(max(64, self.layout.key_bits)), *ranges]
        function = self._unit.function(f"lookup.{self._table}", I32, arguments)
        emit = Emitter(self._unit, function)
        if self.layout.exact:
            self._write_hashed(emit)
        else:
            self._write_scan(emit)
        return function

    def _word(self, emit: Emitter, which: int, kind: ll.Type = POINTER) -> Value:
        context = emit.function.args[0]
        return emit.context_word(context, table_word(self._unit.program, self._table, which), kind)

    def _row(self, emit: Emitter, rows: Value, row: Value) -> Value:
        offset = emit.build.mul(emit.resize(row, 64), constant(64, self.layout.stride))
        return emit.at(rows, offset)

    def _write_hashed(self, emit: Emitter) -> None:
        build = emit.build
        number = emit.function.args[1]
        rows, slots, mask = self._word(emit, ROWS), self._word(emit, INDEX), self._word(emit, INDEX_SIZE, I64)
        # The same hash as `hash_key`, which `rows.py` uses to place the rows.
        state = constant(64, 0)
        for shift in range(0, number.type.width, 64):
            word = emit.resize(build.lshr(number, constant(number.type.width, shift)), 64)
            state = build.mul(build.xor(state, word), constant(64, HASH_FACTOR))
            state = build.xor(state, build.lshr(state, constant(64, 32)))
        before = build.block
        probe, compare, found = (emit.function.append_basic_block(name) for name in ("probe", "compare", "found"))
        build.branch(probe)
        build.position_at_end(probe)
        position = build.phi(I64)
        position.add_incoming(state, before)
        # A free slot holds row 0, which is also the answer if the key is in no slot.
        slot = build.and_(position, mask)
        row = build.load(build.gep(slots, [slot], source_etype=I32), typ=I32)
        build.cbranch(build.icmp_unsigned("==", row, constant(32, 0)), found, compare)
        build.position_at_end(compare)
        stored = emit.load(number.type, emit.at(self._row(emit, rows, row), self.layout.value_offset), 8)
        position.add_incoming(build.add(position, constant(64, 1)), compare)
        build.cbranch(build.icmp_unsigned("==", stored, number), found, probe)
        build.position_at_end(found)
        build.ret(row)

    def _write_scan(self, emit: Emitter) -> None:
        build = emit.build
        _, number, *ranges = emit.function.args
        rows, order, count = self._word(emit, ROWS), self._word(emit, INDEX), self._word(emit, INDEX_SIZE, I64)
        before = build.block
        head, compare, found, missed = (
            emit.function.append_basic_block(name) for name in ("head", "compare", "found", "missed")
        )
        build.branch(head)
        build.position_at_end(head)
        position = build.phi(I64)
        position.add_incoming(constant(64, 0), before)
        build.cbranch(build.icmp_unsigned("<", position, count), compare, missed)
        build.position_at_end(compare)
        row = build.load(build.gep(order, [position], source_etype=I32), typ=I32)
        address = self._row(emit, rows, row)
        # One masked comparison for all fields but ranges, then two comparisons for each range.
        matches = constant(1, 1)
        if self.layout.key_bits:
            mask = emit.load(number.type, emit.at(address, 8), 8)
            value = emit.load(number.type, emit.at(address, self.layout.value_offset), 8)
            matches = build.icmp_unsigned("==", build.and_(number, mask), value)
        offset = self.layout.range_offset
        for value in ranges:
            size = value.type.width // 8
            low, high = (emit.load(value.type, emit.at(address, offset + part), 8) for part in (0, size))
            inside = build.and_(build.icmp_unsigned("<=", low, value), build.icmp_unsigned("<=", value, high))
            matches = build.and_(matches, inside)
            offset += 2 * size
        position.add_incoming(build.add(position, constant(64, 1)), compare)
        build.cbranch(matches, found, head)
        build.position_at_end(found)
        build.ret(row)
        build.position_at_end(missed)
        build.ret(constant(32, 0))


def row_address(emitter: Emitter, context: Value, table: int, row: Value) -> Value:
    """Return the address of a row."""
    program = emitter.program
    rows = emitter.context_word(context, table_word(program, table, ROWS))
    stride = RowLayout(program.tables[table].spec).stride
    offset = emitter.build.mul(emitter.resize(row, 64), constant(64, stride))
    return emitter.build.gep(rows, [offset], source_etype=BYTE)
