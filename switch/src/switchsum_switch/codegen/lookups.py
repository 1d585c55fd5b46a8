"""Table lookup in native code: from a key to the number of a row.

If every key field is exact, the rows are found by a hash table with open addressing: the key's hash gives a slot, and
the lookup goes from slot to slot until it finds the key or a free slot.  `rows.py` writes that table.  It is at most a
quarter full, so that a lookup ends soon, and it always has a free slot, so that a lookup ends at all.  Each slot has a
tag of 8 bits of its key's hash, 0 if it is free: most searches for what is not there read no more than a tag.

Otherwise this is done for each tuple of the table, with the bits of the key that the tuple's entries compare; all
tuples share the slots.  `tuple_space.py` explains tuples, chains and ranks.  A tuple of one chain has its value beside
its mask: it is compared, not hashed, and a table with few entries is as fast as a scan.

An LPM table has its tuples in the order of their best ranks, and the search ends as in `tuple_space.py`.  In a table
with priorities a filter says which tuples may have an entry for the key (`filters.py`), mostly one or none of many.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ll

from ..messages.matches import MatchKind
from .emitter import BYTE, I32, I64, POINTER, Emitter, Unit, Value, constant, integer
from .filters import CHOSEN, VALUES, WORD_BITS
from .keys import HASH_FACTOR
from .layout import (
    BEST_OFFSET,
    FILTER,
    FILTER_WORDS,
    MASK_OFFSET,
    NEXT_OFFSET,
    ORDER,
    RANK_OFFSET,
    ROWS,
    SEED_OFFSET,
    SINGLE_OFFSET,
    SLOTS,
    SLOTS_MASK,
    TAGS,
    TUPLE_MASK_OFFSET,
    TUPLES,
    TUPLES_COUNT,
    RowLayout,
    table_word,
    words,
)

_I128 = integer(128)
_NO_RANK = constant(128, -1)
"""Worse than any rank (`rows.py`)."""


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
            self._write_exact(emit)
        else:
            _TupleSearch(self, emit).write()
        return function

    def word(self, emit: Emitter, which: int, kind: ll.Type = POINTER) -> Value:
        """Return one of the table's words of the context."""
        context = emit.function.args[0]
        return emit.context_word(context, table_word(self._unit.program, self._table, which), kind)

    def row(self, emit: Emitter, rows: Value, row: Value) -> Value:
        """Return the address of a row."""
        return _nth(emit, rows, row, self.layout.stride)

    def probe(
        self, emit: Emitter, state: Value, is_wanted: Callable[[Value], Value], missed: Callable[[], ll.Block]
    ) -> Value:
        """Write the search for a row by a key's hash; return the row.  Code that is written next runs if it was found.

        `is_wanted` compares the row at an address with the key; `missed` gives the block where the code goes on if no
        row was found.
        """
        build = emit.build
        rows, slots, tags = self.word(emit, ROWS), self.word(emit, SLOTS), self.word(emit, TAGS)
        mask, tag = self.word(emit, SLOTS_MASK, I64), emit.resize(_tag(build, state), 8)
        before = build.block
        turn, other, compare, step, found = (
            emit.function.append_basic_block(name) for name in ("probe", "other", "compare", "step", "probed")
        )
        build.branch(turn)
        build.position_at_end(turn)
        position = build.phi(I64)
        position.add_incoming(state, before)
        slot = build.and_(position, mask)
        in_slot = emit.load(BYTE, emit.at(tags, slot))
        build.cbranch(build.icmp_unsigned("==", in_slot, tag), compare, other)
        build.position_at_end(other)
        build.cbranch(build.icmp_unsigned("==", in_slot, constant(8, 0)), missed(), step)
        build.position_at_end(compare)
        row = build.load(build.gep(slots, [slot], source_etype=I32), typ=I32)
        build.cbranch(is_wanted(self.row(emit, rows, row)), found, step)
        build.position_at_end(step)
        position.add_incoming(build.add(position, constant(64, 1)), step)
        build.branch(turn)
        build.position_at_end(found)
        return row

    def _write_exact(self, emit: Emitter) -> None:
        build, number = emit.build, emit.function.args[1]
        missed = emit.function.append_basic_block("missed")

        def is_wanted(address: Value) -> Value:
            stored = emit.load(number.type, emit.at(address, self.layout.value_offset), 8)
            return build.icmp_unsigned("==", stored, number)

        build.ret(self.probe(emit, _hash(emit, number, constant(64, 0)), is_wanted, lambda: missed))
        build.position_at_end(missed)
        build.ret(constant(32, 0))


class _TupleSearch:
    """Writes a lookup in a table with a key field that is not exact."""

    def __init__(self, lookup: Lookup, emit: Emitter) -> None:
        self._lookup, self._layout, self._emit = lookup, lookup.layout, emit
        _, self._number, *self._ranges = emit.function.args
        self._rows, self._tuples = lookup.word(emit, ROWS), lookup.word(emit, TUPLES)
        self._head, self._following = self._blocks("head", "following")
        build, before = emit.build, emit.build.block
        # The best row so far with its rank: as a turn of the loop begins, and as it ends.
        build.position_at_end(self._head)
        self._found, self._rank = build.phi(I32), build.phi(_I128)
        build.position_at_end(self._following)
        self._next_found, self._next_rank = build.phi(I32), build.phi(_I128)
        build.position_at_end(before)

    def write(self) -> None:
        """Write the loop over the tuples."""
        if self._layout.filtered:
            self._write_filtered()
        else:
            self._write_ordered()

    def _write_ordered(self) -> None:
        emit, build = self._emit, self._emit.build
        order, count = self._lookup.word(emit, ORDER), self._lookup.word(emit, TUPLES_COUNT, I64)
        look, search, done = self._blocks("look", "search", "done")
        [turn] = self._begin(constant(64, 0))
        build.cbranch(build.icmp_unsigned("<", turn, count), look, done)

        build.position_at_end(look)
        one, is_better = self._tuple(build.load(build.gep(order, [turn], source_etype=I32), typ=I32))
        build.cbranch(is_better, search, done)

        build.position_at_end(done)
        build.ret(self._found)

        build.position_at_end(search)
        self._walk_chain(self._find_chain(one))

        build.position_at_end(self._following)
        turn.add_incoming(build.add(turn, constant(64, 1)), self._following)
        self._go_on(self._following, self._next_found, self._next_rank)

    def _write_filtered(self) -> None:
        emit, build = self._emit, self._emit.build
        count, columns = self._lookup.word(emit, FILTER_WORDS, I64), self._columns()
        some, none, more, done, search = self._blocks("some", "none", "more", "done", "search")
        # A word of the filter after the other, and those of its bits whose tuples have not been searched.
        word, bits = self._begin(constant(64, -1), constant(64, 0))
        build.cbranch(build.icmp_unsigned("==", bits, constant(64, 0)), none, some)

        build.position_at_end(none)
        after = build.add(word, constant(64, 1))
        build.cbranch(build.icmp_unsigned("<", after, count), more, done)

        build.position_at_end(done)
        build.ret(self._found)

        build.position_at_end(more)
        fresh = constant(64, -1)
        for column in columns:
            fresh = build.and_(fresh, build.load(build.gep(column, [after], source_etype=I64), typ=I64))
        word.add_incoming(after, more)
        bits.add_incoming(fresh, more)
        self._go_on(more, self._found, self._rank)

        build.position_at_end(some)
        lowest = build.cttz(bits, constant(1, 1))
        rest = build.and_(bits, build.sub(bits, constant(64, 1)))
        one, is_better = self._tuple(build.add(build.mul(word, constant(64, WORD_BITS)), lowest))
        build.cbranch(is_better, search, self._ends(self._found, self._rank))

        build.position_at_end(search)
        self._walk_chain(self._find_chain(one))

        build.position_at_end(self._following)
        word.add_incoming(word, self._following)
        bits.add_incoming(rest, self._following)
        self._go_on(self._following, self._next_found, self._next_rank)

    def _columns(self) -> list[Value]:
        """Return, for each byte at which the filter looks, the address of the words of the value that the key has."""
        emit, build = self._emit, self._emit.build
        memory, count = self._lookup.word(emit, FILTER), self._lookup.word(emit, FILTER_WORDS, I64)
        key = emit.stack(self._number.type)
        emit.store(self._number, key)
        made = []
        for byte in range(CHOSEN):
            value = emit.resize(emit.load(BYTE, emit.at(key, emit.load(I64, emit.at(memory, 8 * byte), 8))), 64)
            row = build.mul(build.add(value, constant(64, VALUES * byte)), count)
            made.append(build.gep(emit.at(memory, 8 * CHOSEN), [row], source_etype=I64))
        return made

    def _begin(self, *values: Value) -> list[Value]:
        """Begin the loop; return its variables, which have these values in the first turn."""
        build, before = self._emit.build, self._emit.build.block
        build.branch(self._head)
        build.position_at_end(self._head)
        variables = [build.phi(value.type) for value in values]
        for variable, value in zip(variables, values, strict=True):
            variable.add_incoming(value, before)
        self._found.add_incoming(constant(32, 0), before)
        self._rank.add_incoming(_NO_RANK, before)
        return variables

    def _go_on(self, block: ll.Block, found: Value, rank: Value) -> None:
        """Begin the next turn of the loop, at the end of a block."""
        self._found.add_incoming(found, block)
        self._rank.add_incoming(rank, block)
        self._emit.build.branch(self._head)

    def _tuple(self, number: Value) -> tuple[Value, Value]:
        """Return the address of a tuple, and whether its best entry is better than the one found."""
        one = _nth(self._emit, self._tuples, number, self._layout.tuple_stride)
        best = self._emit.load(_I128, self._emit.at(one, BEST_OFFSET), 8)
        return one, self._emit.build.icmp_unsigned("<", best, self._rank)

    def _find_chain(self, one: Value) -> Value:
        """Write the search for a tuple's chain; return its first row.  Code written next runs if there is one."""
        emit, build, bits = self._emit, self._emit.build, self._layout.key_bits
        single = emit.load(I32, emit.at(one, SINGLE_OFFSET), 4)
        if not bits:  # all fields are ranges: there is one tuple, of one chain
            return single
        kind = self._number.type
        mask = emit.load(kind, emit.at(one, TUPLE_MASK_OFFSET), 8)
        masked = build.and_(self._number, mask)
        beside, hashed, chain = self._blocks("beside", "hashed", "chain")
        build.cbranch(build.icmp_unsigned("!=", single, constant(32, 0)), beside, hashed)

        build.position_at_end(beside)
        value = emit.load(kind, emit.at(one, TUPLE_MASK_OFFSET + bits // 8), 8)
        build.cbranch(build.icmp_unsigned("==", masked, value), chain, self._ends(self._found, self._rank))

        build.position_at_end(hashed)
        state = _hash(emit, masked, emit.load(I64, emit.at(one, SEED_OFFSET), 8))

        def is_wanted(address: Value) -> Value:
            return build.and_(
                build.icmp_unsigned("==", emit.load(kind, emit.at(address, self._layout.value_offset), 8), masked),
                build.icmp_unsigned("==", emit.load(kind, emit.at(address, MASK_OFFSET), 8), mask),
            )

        row = self._lookup.probe(emit, state, is_wanted, lambda: self._ends(self._found, self._rank))
        probed = build.block
        build.branch(chain)

        build.position_at_end(chain)
        first = build.phi(I32)
        first.add_incoming(single, beside)
        first.add_incoming(row, probed)
        return first

    def _walk_chain(self, first: Value) -> None:
        """Write the search for the first row of a chain that is better than the one found, and whose ranges match."""
        emit, build = self._emit, self._emit.build
        before = build.block
        walk, ranges, step = self._blocks("walk", "ranges", "step")
        build.branch(walk)

        build.position_at_end(walk)
        row = build.phi(I32)
        row.add_incoming(first, before)
        address = self._lookup.row(emit, self._rows, row)
        rank = emit.load(_I128, emit.at(address, RANK_OFFSET), 8)
        is_better = build.icmp_unsigned("<", rank, self._rank)
        build.cbranch(is_better, ranges, self._ends(self._found, self._rank))

        build.position_at_end(ranges)
        matches = constant(1, 1)
        offset = self._layout.range_offset
        for value in self._ranges:
            size = value.type.width // 8
            low, high = (emit.load(value.type, emit.at(address, offset + part), 8) for part in (0, size))
            inside = build.and_(build.icmp_unsigned("<=", low, value), build.icmp_unsigned("<=", value, high))
            matches = build.and_(matches, inside)
            offset += 2 * size
        build.cbranch(matches, self._ends(row, rank), step)

        build.position_at_end(step)
        after = emit.load(I32, emit.at(address, NEXT_OFFSET), 4)
        row.add_incoming(after, step)
        build.cbranch(build.icmp_unsigned("!=", after, constant(32, 0)), walk, self._ends(self._found, self._rank))

    def _ends(self, found: Value, rank: Value) -> ll.Block:
        """End the turn here with that row as the best one; return the block to jump to."""
        self._next_found.add_incoming(found, self._emit.build.block)
        self._next_rank.add_incoming(rank, self._emit.build.block)
        return self._following

    def _blocks(self, *names: str) -> list[ll.Block]:
        return [self._emit.function.append_basic_block(name) for name in names]


def _hash(emit: Emitter, number: Value, state: Value) -> Value:
    """Return the hash of a number, the same as `keys.hash_key`, which `rows.py` uses to place the rows."""
    build = emit.build
    for shift in range(0, number.type.width, 64):
        word = emit.resize(build.lshr(number, constant(number.type.width, shift)), 64)
        state = build.mul(build.xor(state, word), constant(64, HASH_FACTOR))
        state = build.xor(state, build.lshr(state, constant(64, 32)))
    return state


def _tag(build: ll.IRBuilder, state: Value) -> Value:
    """Return the tag of a hash, the same as `keys.tag_of`."""
    return build.or_(build.lshr(state, constant(64, 56)), constant(64, 1))


def _nth(emit: Emitter, first: Value, number: Value, stride: int) -> Value:
    """Return the address of a row or tuple."""
    return emit.at(first, emit.build.mul(emit.resize(number, 64), constant(64, stride)))


def row_address(emitter: Emitter, context: Value, table: int, row: Value) -> Value:
    """Return the address of a row."""
    program = emitter.program
    rows = emitter.context_word(context, table_word(program, table, ROWS))
    stride = RowLayout(program.tables[table].spec).stride
    offset = emitter.build.mul(emitter.resize(row, 64), constant(64, stride))
    return emitter.build.gep(rows, [offset], source_etype=BYTE)
