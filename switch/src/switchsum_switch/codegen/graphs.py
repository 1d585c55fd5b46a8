"""The graphs of a program as LLVM functions: one LLVM block for each block, and code for each statement.

What each statement does is defined in `interpreter.py`.  Narrow fields are loaded and stored at once.  Wide fields are
not: an assignment is noted, and computed when its inputs are about to change or the block ends (`wide.py`).  So a
statement that changes a narrow field, or ends the function early, must tell `wide` first.

Three facts about the program let code be left out: which fields are live after a statement, which are live after the
block, and which registers may be written after it (`passes/analysis.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ll

from ..program import ir
from ..program.passes.analysis import (
    is_wide,
    live_after_graph,
    live_before,
    live_out,
    registers_written_after,
    written_after_graph,
)
from ..state.meters import CELL_WORDS, MeterUnit
from ..state.state import WIDE_BITS, cell_bytes
from .emitter import I32, I64, POINTER, VOID, Emitter, Fields, PacketArguments, Unit, Value, constant, integer
from .layout import (
    CHOICE_BYTES,
    CHOICE_OFFSET,
    CHOICES,
    COUNTS,
    DUMP,
    HITS,
    METERS,
    RANDOM_BIT,
    TIME,
    ZEROS,
    Narrow,
    Variable,
    counter_word,
    digest_word,
    meter_word,
    register_word,
    table_word,
)
from .learning import append_record
from .lookups import Lookup, row_address
from .metering import colour_of
from .randomness import draw, next_random
from .shifted import take_shifted
from .values import Values
from .wide import WideFields

LARGE_PARSER: Final = 512
"""Most blocks of a parser that LLVM optimises.  Its time grows faster than linearly if states form loops."""
ARGUMENTS: tuple[ll.Type, ...] = (POINTER, POINTER, POINTER, POINTER, I64, POINTER)
"""Arguments of a graph: hot, storage, context, frame, length of the frame, address of the cursor."""


def graph_function(unit: Unit, name: str) -> ll.Function:
    """Make the function that runs one of the program's graphs on a packet."""
    function = unit.function(name, VOID, ARGUMENTS)
    for argument in (function.args[0], function.args[2], function.args[5]):
        # Pointers of wide fields lead to storage, frames, registers and constants, never to these three.
        argument.add_attribute("noalias")
    if name == "parser" and len(unit.program.parser) > LARGE_PARSER:
        function.attributes.add("noinline")
        function.attributes.add("optnone")
    GraphEmitter(unit, function, name).emit()
    return function


class GraphEmitter:
    """Emits one graph."""

    def __init__(self, unit: Unit, function: ll.Function, name: str) -> None:
        program = unit.program
        self._unit = unit
        self._program = program
        self._graph: ir.Graph = getattr(program, name)
        self._emit = Emitter(unit, function)
        self._packet = PacketArguments(*function.args)
        self._fields = Fields(self._emit, self._packet, name)
        self._values = Values(self._emit, self._fields)
        self._blocks = [function.append_basic_block(block.name) for block in self._graph]
        self._at_end = live_after_graph(program, name)
        self._live_out = live_out(program, self._graph, self._at_end)
        self._written_after = registers_written_after(self._graph, written_after_graph(program, name))
        self._number = 0
        self._live: set[int] = set()
        self._failed: ll.Block | None = None

    def emit(self) -> None:
        """Emit all blocks."""
        build = self._emit.build
        build.branch(self._blocks[0])
        for number, block in enumerate(self._graph):
            self._number = number
            build.position_at_end(self._blocks[number])
            # Delayed values end with their block: another block may be reached in several ways.
            self._values.wide = WideFields(self._emit, self._fields, self._values.integer)
            live = live_before(self._program, block, self._live_out[number], self._at_end)
            for statement, after in zip(block.statements, live[1:], strict=True):
                self._live = after
                _STATEMENTS[type(statement)](self, statement)
            self._end(block.end)
        if self._failed is not None:
            build.position_at_end(self._failed)
            names = self._program.intrinsics
            width = self._program.fields[names.parser_error].width
            self._fields.store(names.parser_error, constant(width, self._program.too_short))
            build.ret_void()

    def _end(self, end: ir.Terminator) -> None:
        build = self._emit.build
        match end:
            case ir.Branch(condition):
                value = self._values.integer(condition)
                self._finish_wide()
                build.cbranch(value, self._blocks[end.then], self._blocks[end.other])
            case ir.Apply():
                self._apply(end)
            case ir.Jump(target):
                self._finish_wide()
                build.branch(self._blocks[target])
            case ir.End():
                self._finish_wide()
                build.ret_void()

    def _finish_wide(self) -> None:
        self._values.wide.finish(self._live_out[self._number], self._written_after[self._number])

    def _apply(self, apply: ir.Apply) -> None:
        """Look a key up, count, measure, and jump to the block of the action."""
        build, context = self._emit.build, self._packet.context
        # Keys are computed before wide fields are finished: a field that only a key reads is not live afterwards.
        info = self._program.tables[apply.table]
        keys = [self._values.integer(key) for key in info.keys]
        selected = None
        if info.selector is not None and info.turn is None:
            selected = self._values.integer(info.selector)
        row = Lookup(self._unit, apply.table).find(self._emit, context, keys)
        self._finish_wide()
        address = row_address(self._emit, context, apply.table, row)
        self._values.set_row(apply.table, address)
        if info.spec.has_counters:
            counts = self._emit.context_word(context, table_word(self._program, apply.table, COUNTS))
            self._add_counts(self._emit.at(counts, build.mul(self._emit.resize(row, 64), constant(64, 16))))
        if info.spec.ages:
            hits = self._emit.context_word(context, table_word(self._program, apply.table, HITS))
            now = self._emit.load(I64, self._emit.at(context, 8 * TIME), 8)
            self._emit.store(now, self._emit.at(hits, build.mul(self._emit.resize(row, 64), constant(64, 8))), 8)
        if info.colour is not None:
            self._measure(apply.table, info.colour, row)
        if info.spec.profile is not None:
            self._choose_member(apply.table, selected)
        action = self._emit.load(I32, self._values.row(apply.table), 8)
        # If hit and miss lead to the same blocks, the action alone decides.
        if apply.on_hit == apply.on_miss or not info.keys:
            self._choose(action, apply.on_miss)
            return
        hit, miss = (self._emit.function.append_basic_block(name) for name in ("hit", "miss"))
        build.cbranch(build.icmp_unsigned("!=", row, constant(32, 0)), hit, miss)
        for block, targets in ((hit, apply.on_hit), (miss, apply.on_miss)):
            build.position_at_end(block)
            self._choose(action, targets)

    def _choose_member(self, table: int, selected: Value | None) -> None:
        """Go from an entry's row to the row of its member of the action profile, or of a member of its group."""
        build, emit = self._emit.build, self._emit
        number = emit.load(I32, emit.at(self._values.row(table), CHOICE_OFFSET), 4)
        with build.if_then(build.icmp_unsigned("!=", number, constant(32, 0))):
            choices = emit.context_word(self._packet.context, table_word(self._program, table, CHOICES))
            choice = emit.at(choices, build.mul(emit.resize(number, 64), constant(64, CHOICE_BYTES)))
            rows, count = emit.load(POINTER, choice, 8), emit.load(I64, emit.at(choice, 8), 8)
            place = constant(64, 0)
            if (turn := self._program.tables[table].turn) is not None:
                # The choices of members are those up to the profile's size, and those of groups follow.
                [profile] = [
                    one for one in self._program.profiles if one.name == self._program.tables[table].spec.profile
                ]
                is_group = build.icmp_unsigned(">", number, constant(32, profile.size))
                cell = emit.context_word(self._packet.context, register_word(turn))
                selected = emit.load_network(cell, 8)
                emit.store_network(build.add(selected, build.zext(is_group, I64)), cell)
            if selected is not None:
                at_random = build.icmp_signed("<", count, constant(64, 0))
                count = build.and_(count, constant(64, (1 << RANDOM_BIT) - 1))
                drawn = next_random(emit, self._packet.context, at_random)
                place = build.urem(build.select(at_random, drawn, emit.resize(selected, 64)), count)
            row = build.load(build.gep(rows, [place], source_etype=I32), typ=I32)
            self._values.set_row(table, row_address(emit, self._packet.context, table, row))

    def _measure(self, table: int, colour: int, row: Value) -> None:
        """If an entry matched, pass the packet through its direct meter."""
        build, spec = self._emit.build, self._program.tables[table].spec
        assert spec.meter is not None
        with build.if_then(build.icmp_unsigned("!=", row, constant(32, 0))):
            cells = self._emit.context_word(self._packet.context, table_word(self._program, table, METERS))
            cell = self._emit.at(cells, build.mul(self._emit.resize(row, 64), constant(64, 8 * CELL_WORDS)))
            self._fields.store(colour, self._colour(cell, spec.meter, self._program.fields[colour].width))

    def _colour(self, cell: Value, unit: MeterUnit, width: int) -> Value:
        now = self._emit.load(I64, self._emit.at(self._packet.context, 8 * TIME), 8)
        return self._emit.resize(colour_of(self._emit, cell, unit, self._packet.length, now), width)

    def _choose(self, action: Value, targets: tuple[int, ...]) -> None:
        """Jump to the block of an action."""
        # Rows name the table's own actions only, so that the last one needs no test.
        switch = self._emit.build.switch(action, self._blocks[targets[-1]])
        for number, target in enumerate(targets[:-1]):
            switch.add_case(constant(32, number), self._blocks[target])

    def _assign(self, statement: ir.Assign) -> None:
        if is_wide(self._program, statement.slot):
            self._values.wide.assign(statement.slot, self._values.wide.node(statement.value))
        else:
            self._store(statement.slot, self._values.integer(statement.value))

    def _set_valid(self, statement: ir.SetValid) -> None:
        wide, fields = self._values.wide, self._fields
        valid = fields.valid(statement.header)
        for slot in self._program.headers[statement.header].slots:
            if is_wide(self._program, slot):
                wide.select(slot, self._emit.build.not_(valid), wide.zero(slot))
            else:
                wide.forget(slot)
        # Without a branch: `keep` is all ones if the header was valid, else 0, and each byte is masked with it.
        keep = self._emit.resize(valid, 8, signed=True)
        for segment in self._unit.layout.segments[statement.header]:
            if isinstance(segment, Narrow):
                self._zero_unless(keep, segment)
        fields.set_valid(statement.header, constant(1, 1))

    def _zero_unless(self, keep: Value, segment: Narrow) -> None:
        emit, start = self._emit, 0
        for size in (8, 4, 2, 1):
            while segment.size - start >= size:
                address = emit.at(self._packet.hot, segment.hot + start)
                mask = emit.resize(keep, 8 * size, signed=True)
                emit.store(emit.build.and_(emit.load(integer(8 * size), address), mask), address)
                start += size

    def _set_invalid(self, statement: ir.SetInvalid) -> None:
        self._fields.set_valid(statement.header, constant(1, 0))

    def _copy_header(self, statement: ir.CopyHeader) -> None:
        build, wide = self._emit.build, self._values.wide
        source, target = self._program.headers[statement.source], self._program.headers[statement.target]
        valid = self._fields.valid(statement.source)
        # If the source is invalid, the target becomes invalid, and its fields keep their values.
        for to, of in zip(target.slots, source.slots, strict=True):
            value = ir.Field(self._program.fields[of].width, of)
            if is_wide(self._program, to):
                wide.select(to, valid, wide.node(value))
            else:
                loaded, old = self._values.integer(value), self._values.integer(ir.Field(value.width, to))
                self._store(to, build.select(valid, loaded, old))
        self._fields.set_valid(statement.target, valid)

    def _extract(self, statement: ir.Extract) -> None:
        header, build = self._program.headers[statement.header], self._emit.build
        whole = constant(64, header.width // 8)
        if statement.bits is not None and header.variable is not None:
            # By how much the header is shorter than its longest form.  The parser has checked the length.
            most = self._program.fields[header.variable].width // 8
            size = self._whole_bytes(statement.bits, 0)
            size = build.select(build.icmp_unsigned("<", size, constant(64, most)), size, constant(64, most))
            whole = build.add(constant(64, header.width // 8 - most), size)
        self._need(whole)
        cursor = self._cursor()
        start, shorter = self._emit.at(self._packet.frame, cursor), constant(64, 0)
        for slot in header.slots:
            self._values.wide.forget(slot)
        for segment in self._unit.layout.segments[statement.header]:
            source = self._emit.at(start, build.sub(constant(64, segment.start), shorter))
            if isinstance(segment, Variable):
                self._take_variable(segment, source, size)
                shorter = build.sub(constant(64, segment.size), size)
                continue
            # Narrow fields are copied, each byte of the frame once.  Wide fields are pointers into the frame.
            if isinstance(segment, Narrow):
                self._emit.copy(self._emit.at(self._packet.hot, segment.hot), source, segment.size, volatile=True)
            else:
                for number, slot in enumerate(segment.slots):
                    address = self._emit.at(source, number * segment.size)
                    self._values.wide.assign(slot, self._values.wide.memory(segment.size, address))
        self._fields.set_valid(statement.header, constant(1, 1))
        self._set_cursor(build.add(cursor, whole))

    def _take_variable(self, segment: Variable, source: Value, size: Value) -> None:
        """Copy a field of variable length into its storage, with zeros behind it."""
        # Nothing that is delayed depends on that storage: `_need` has computed all that is live.
        emit, own = self._emit, self._fields.own_bytes(segment.slot)
        emit.fill(own, segment.size)
        if segment.shift:
            take_shifted(emit, own, source, size, segment.shift)
        else:
            emit.copy(own, source, size, volatile=True)
        self._fields.set_pointer(segment.slot, own)
        self._fields.store(segment.length, emit.resize(emit.build.shl(size, constant(64, 3)), 32))

    def _require(self, statement: ir.Require) -> None:
        self._need(self._whole_bytes(statement.bits, 7))

    def _advance(self, statement: ir.Advance) -> None:
        build = self._emit.build
        wanted = build.add(self._cursor(), self._whole_bytes(statement.bits, 0))
        # Require has checked the same expression, but a sender may have changed the bits in shared memory since then.
        beyond = build.icmp_unsigned(">", wanted, self._packet.length)
        self._set_cursor(build.select(beyond, self._packet.length, wanted))

    def _whole_bytes(self, bits: ir.Expr, rounding: int) -> Value:
        """Return `bits` in bytes, rounded up with `rounding` 7 and down with 0, at most 2**63."""
        build, number = self._emit.build, self._values.integer(bits)
        wide = self._emit.resize(number, max(72, number.type.width + 1))
        wide = build.lshr(build.add(wide, constant(wide.type.width, rounding)), constant(wide.type.width, 3))
        limit = constant(wide.type.width, 1 << 63)
        return self._emit.resize(build.select(build.icmp_unsigned("<", wide, limit), wide, limit), 64)

    def _need(self, size: Value) -> None:
        """End the parser unless `size` bytes of the frame are left."""
        # The function may return here, so that every wide field that is read later must have been computed.
        emit, build = self._emit, self._emit.build
        self._values.wide.finish(self._live | self._at_end, set(range(len(self._program.registers))))
        if self._failed is None:
            self._failed = emit.function.append_basic_block("too_short")
        rest = build.sub(self._packet.length, self._cursor())
        enough = emit.function.append_basic_block("enough")
        build.cbranch(build.icmp_unsigned("<=", size, rest), enough, self._failed)
        build.position_at_end(enough)

    def _cursor(self) -> Value:
        return self._emit.load(I64, self._packet.cursor, 8)

    def _set_cursor(self, value: Value) -> None:
        self._emit.store(value, self._packet.cursor, 8)

    def _cell(self, base: int, index: ir.Expr, size: int, stride: int, beyond: int) -> Value:
        """Return the address of a cell; for an index that is too large, that of the context's cell `beyond`."""
        # A read beyond the end then finds zeros (ZEROS), and a write goes where nobody reads (DUMP): no branch is
        # needed.
        build, context = self._emit.build, self._packet.context
        number, inside = self._values.index(index, size)
        start = self._emit.context_word(context, base)
        offset = build.mul(number, constant(64, stride))
        cell = build.gep(start, [offset], source_etype=integer(8))
        return build.select(inside, cell, self._emit.context_word(context, beyond))

    def _read_register(self, statement: ir.ReadRegister) -> None:
        info = self._program.registers[statement.register]
        stride = cell_bytes(info.width)
        cell = self._cell(register_word(statement.register), statement.index, info.size, stride, ZEROS)
        # A wide cell is not copied: the field is that memory, until the register is about to be written.
        if is_wide(self._program, statement.slot):
            node = self._values.wide.memory(stride, cell, ("register", statement.register))
            self._values.wide.assign(statement.slot, node)
        else:
            value = self._emit.load_network(cell, stride)
            self._store(statement.slot, self._emit.resize(value, info.width))

    def _write_register(self, statement: ir.WriteRegister) -> None:
        info = self._program.registers[statement.register]
        stride = cell_bytes(info.width)
        # A wide cell that is no whole number of bytes is rare, and is written as one LLVM integer.
        if info.width >= WIDE_BITS and info.width % 8 == 0:
            node = self._values.wide.node(statement.value)
            cell = self._cell(register_word(statement.register), statement.index, info.size, stride, DUMP)
            self._values.wide.write(cell, node, ("register", statement.register), self._live)
        else:
            value = self._emit.resize(self._values.integer(statement.value), 8 * stride)
            cell = self._cell(register_word(statement.register), statement.index, info.size, stride, DUMP)
            self._emit.store_network(value, cell)

    def _count(self, statement: ir.Count) -> None:
        size = self._program.counters[statement.counter].size
        self._add_counts(self._cell(counter_word(self._program, statement.counter), statement.index, size, 16, DUMP))

    def _execute_meter(self, statement: ir.ExecuteMeter) -> None:
        info = self._program.meters[statement.meter]
        build, width = self._emit.build, self._program.fields[statement.slot].width
        assert info.unit is not None
        number, inside = self._values.index(statement.index, info.size)
        start = self._emit.context_word(self._packet.context, meter_word(self._program, statement.meter))
        cell = self._emit.at(start, build.mul(number, constant(64, 8 * CELL_WORDS)))
        cell = build.select(inside, cell, self._emit.context_word(self._packet.context, DUMP))
        # Beyond the end the meter of the dump cell runs, whose colour nobody sees: the field keeps its value.
        old = self._values.integer(ir.Field(width, statement.slot))
        self._store(statement.slot, build.select(inside, self._colour(cell, info.unit, width), old))

    def _add_counts(self, address: Value) -> None:
        for offset, amount in ((0, constant(64, 1)), (8, self._packet.length)):
            place = self._emit.at(address, offset)
            self._emit.store(self._emit.build.add(self._emit.load(I64, place, 8), amount), place, 8)

    def _random(self, statement: ir.Random) -> None:
        # An empty range leaves the generator and the field as they are.
        emit, build = self._emit, self._emit.build
        low, high = self._values.integer(statement.low), self._values.integer(statement.high)
        proper = build.icmp_unsigned("<=", low, high)
        drawn = draw(emit, self._packet.context, low, high, proper)
        field = ir.Field(self._program.fields[statement.slot].width, statement.slot)
        value = build.select(proper, emit.resize(drawn, field.width), self._values.integer(field))
        self._store(statement.slot, value)

    def _learn(self, statement: ir.Learn) -> None:
        """Append a record to a digest's memory, or count it as lost."""
        values = [self._values.integer(value) for value in statement.values]
        memory = self._emit.context_word(self._packet.context, digest_word(self._program, statement.digest))
        append_record(self._emit, memory, values)

    def _store(self, slot: int, value: Value) -> None:
        if is_wide(self._program, slot):
            self._values.wide.assign(slot, self._values.wide.from_integer(value))
        else:
            self._values.wide.forget(slot)
            self._fields.store(slot, value)


_STATEMENTS: dict[type, Callable[[GraphEmitter, Any], None]] = {
    ir.Assign: GraphEmitter._assign,
    ir.SetValid: GraphEmitter._set_valid,
    ir.SetInvalid: GraphEmitter._set_invalid,
    ir.CopyHeader: GraphEmitter._copy_header,
    ir.Extract: GraphEmitter._extract,
    ir.Require: GraphEmitter._require,
    ir.Advance: GraphEmitter._advance,
    ir.ReadRegister: GraphEmitter._read_register,
    ir.WriteRegister: GraphEmitter._write_register,
    ir.Count: GraphEmitter._count,
    ir.ExecuteMeter: GraphEmitter._execute_meter,
    ir.Random: GraphEmitter._random,
    ir.Learn: GraphEmitter._learn,
}
