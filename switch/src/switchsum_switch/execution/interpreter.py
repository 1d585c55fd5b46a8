"""The definition of the IR: an interpreter with one function for each node and Python integers for values.

It is written to be read and to be right, not to be fast.  The native code of `codegen` must do the same with every
packet; `tests/p4` and the fuzzer run programs on both and compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..program import ir
from ..program.hashes import HASHES
from ..program.ir import Op, Relation
from ..state.meters import COLOURS
from ..state.state import ProgramState
from .trace import Tracer


class _EndOfGraph(Exception):
    """Ends the parser: the packet is too short."""


class Packet:
    """One packet in the switch: its fields, which headers are valid, and its frame."""

    def __init__(self, program: ir.Program, data: bytes, undefined: int = 0, before: Packet | None = None) -> None:
        """Begin with headers whose fields have the bits of `undefined`, or what they had in the packet `before`."""
        self._program = program
        self.fields = [0] * len(program.fields)
        if undefined or before:
            for header in program.headers:
                for slot in () if header.metadata else header.slots:
                    if before or slot not in (header.variable, header.length):
                        self.set(slot, before.fields[slot] if before else undefined)
        self.valid = [header.metadata for header in program.headers]
        self.data = data
        self.cursor = 0
        """Bytes that the parser has extracted or skipped; the rest of `data` is the payload."""
        self.found: dict[int, tuple[int, ...]] = {}
        """For each table, the parameters of the action that its last lookup chose."""

    def set(self, slot: int, value: int) -> None:
        """Write the low bits of a number to a field."""
        self.fields[slot] = value & _mask(self._program.fields[slot].width)

    def copy(self) -> Packet:
        """Return an independent copy."""
        other = Packet(self._program, self.data)
        other.fields, other.valid = list(self.fields), list(self.valid)
        other.cursor, other.found = self.cursor, dict(self.found)
        return other


class Interpreter:
    """Runs a program on one packet after the other."""

    def __init__(self, program: ir.Program, state: ProgramState) -> None:
        self._program = program
        self._tables = [state.tables[table.spec.name] for table in program.tables]
        self._actions = [
            {action.name: index for index, action in enumerate(table.spec.actions)} for table in program.tables
        ]
        self._registers = [state.registers[register.name] for register in program.registers]
        self._counters = [state.counters[counter.name] for counter in program.counters]
        self._meters = [state.meters[meter.name] for meter in program.meters]
        self._digests = [state.digests[digest.name] for digest in program.digests]
        self._state = state
        self.on_lookup: Callable[[str, bool, str], object] | None = None
        """Told each lookup: table, whether it hit, action."""
        self.tracer: Tracer | None = None
        """Told all that is done to a packet."""
        self.now_us = 0
        """Time in microseconds that meters and timestamps see."""

    def run(self, packet: Packet, graph: ir.Graph) -> None:
        """Run one of the program's graphs on a packet."""
        number: int | None = 0
        tracer = self.tracer
        if tracer is not None:
            tracer.begin(packet.fields)
        try:
            while number is not None:
                block = graph[number]
                if tracer is not None:
                    tracer.block(block)
                for statement in block.statements:
                    _STATEMENTS[type(statement)](self, packet, statement)
                    if tracer is not None:
                        tracer.statement(packet.fields, statement)
                number = self._next(packet, block.end)
        except _EndOfGraph:
            if tracer is not None:
                tracer.failed(packet.fields)

    def deparse(self, packet: Packet) -> bytes:
        """Return the frame of a packet: its valid headers and its payload."""
        frame = b"".join(self._bytes(packet, header) for header in self._program.deparser if packet.valid[header])
        return frame + packet.data[packet.cursor :]

    def _bytes(self, packet: Packet, header: int) -> bytes:
        value = bits = 0
        for slot in self._program.headers[header].wire:
            width, number = self._program.fields[slot].width, packet.fields[slot]
            if (length := self._program.fields[slot].length) is not None:
                number >>= width - packet.fields[length]
                width = packet.fields[length]
            value, bits = value << width | number, bits + width
        return value.to_bytes(bits // 8, "big")

    def _next(self, packet: Packet, end: ir.Terminator) -> int | None:
        match end:
            case ir.Jump(target):
                return target
            case ir.Branch(condition, then, other):
                return then if self._value(packet, condition) else other
            case ir.Apply():
                return self._apply(packet, end)
        return None

    def _apply(self, packet: Packet, apply: ir.Apply) -> int:
        table = self._tables[apply.table]
        key = tuple(self._value(packet, value) for value in self._program.tables[apply.table].keys)
        row = table.lookup(key)
        info = self._program.tables[apply.table]
        selector, selected = info.selector, 0
        if info.turn is not None:
            selected = self._take_turn(info.turn) if table.chooses(row) else 0
        elif selector is not None:
            selected = self._value(packet, selector)
        if selector is not None and table.chooses_at_random(row):
            selected = self._state.next_random()
        action, packet.found[apply.table] = table.action_of(row, selected)
        if self.tracer is not None:
            self.tracer.lookup(table, key, row, action, packet.found[apply.table])
        if self.on_lookup is not None:
            self.on_lookup(table.spec.name, bool(row), action)
        if table.spec.has_counters:
            table.counts[row] += np.array([1, len(packet.data)], np.uint64)
        if table.spec.ages:
            table.hits_us[row] = self.now_us
        colour = self._program.tables[apply.table].colour
        if row and colour is not None and table.meter is not None:
            found = table.meter.execute(row, len(packet.data), self.now_us)
            packet.set(colour, found)
            if self.tracer is not None:
                name = table.spec.name
                self.tracer.note("meter", f"meter of table {name}: {COLOURS[found]}", table=name, colour=found)
        return (apply.on_hit if row else apply.on_miss)[self._actions[apply.table][action]]

    def _take_turn(self, register: int) -> int:
        """Return the number of a choice, and count it."""
        turns = self._registers[register]
        number = turns.read(0)
        turns.write(0, number + 1 & _mask(turns.width))
        return number

    def _value(self, packet: Packet, value: ir.Expr) -> int:
        return _EXPRESSIONS[type(value)](self, packet, value)

    def _assign(self, packet: Packet, statement: ir.Assign) -> None:
        packet.fields[statement.slot] = self._value(packet, statement.value)

    def _set_valid(self, packet: Packet, statement: ir.SetValid) -> None:
        if not packet.valid[statement.header]:
            self._become_valid(packet, statement.header)
            for slot in self._program.headers[statement.header].wire:
                packet.fields[slot] = 0

    def _become_valid(self, packet: Packet, header: int) -> None:
        packet.valid[header] = True
        for sibling in self._program.headers[header].siblings:
            packet.valid[sibling] = False

    def _set_invalid(self, packet: Packet, statement: ir.SetInvalid) -> None:
        packet.valid[statement.header] = False
        if statement.forgets:
            self._forget(packet, statement.header)

    def _forget(self, packet: Packet, header: int) -> None:
        """Give the fields of a header what nobody can count on, if the state says what that is."""
        info, undefined = self._program.headers[header], self._state.undefined
        if undefined > 0:
            for slot in info.slots:
                if slot not in (info.variable, info.length):
                    packet.set(slot, undefined)

    def _copy_header(self, packet: Packet, statement: ir.CopyHeader) -> None:
        source, target = self._program.headers[statement.source], self._program.headers[statement.target]
        if not packet.valid[statement.source]:
            packet.valid[statement.target] = False
            if statement.forgets:
                self._forget(packet, statement.target)
        else:
            self._become_valid(packet, statement.target)
            for to, of in zip(target.slots, source.slots, strict=True):
                packet.fields[to] = packet.fields[of]

    def _extract(self, packet: Packet, statement: ir.Extract) -> None:
        info, bits = self._program.headers[statement.header], 0
        variable = 0 if info.variable is None else self._program.fields[info.variable].width
        if statement.bits is not None:
            bits = self._value(packet, statement.bits)
        self._need(packet, info.width - variable + bits)
        size = (info.width - variable + bits) // 8
        value = int.from_bytes(packet.data[packet.cursor : packet.cursor + size], "big")
        packet.cursor += size
        self._become_valid(packet, statement.header)
        # The last field is the lowest part of the number.
        for slot in reversed(info.wire):
            width = bits if slot == info.variable else self._program.fields[slot].width
            packet.fields[slot] = value & _mask(width)
            value >>= width
        if info.variable is not None and info.length is not None:
            packet.fields[info.variable] <<= variable - bits
            packet.fields[info.length] = bits

    def _require(self, packet: Packet, statement: ir.Require) -> None:
        self._need(packet, self._value(packet, statement.bits))

    def _need(self, packet: Packet, bits: int) -> None:
        if bits > 8 * (len(packet.data) - packet.cursor):
            packet.set(self._program.intrinsics.parser_error, self._program.too_short)
            raise _EndOfGraph

    def _advance(self, packet: Packet, statement: ir.Advance) -> None:
        packet.cursor += self._value(packet, statement.bits) // 8

    def _read_register(self, packet: Packet, statement: ir.ReadRegister) -> None:
        register = self._registers[statement.register]
        index = self._index(packet, statement.index, register.size)
        value = packet.fields[statement.slot] = register.read(index) if index < register.size else 0
        if self.tracer is not None:
            outcome = f" = {value:#x}"
            self.tracer.access("register", "read", register.name, index, register.size, outcome, value=value)

    def _write_register(self, packet: Packet, statement: ir.WriteRegister) -> None:
        register = self._registers[statement.register]
        index, value, before = self._index(packet, statement.index, register.size), 0, 0
        if index < register.size:
            value, before = self._value(packet, statement.value), register.read(index)
            register.write(index, value)
        if self.tracer is not None:
            outcome, changed = f" = {value:#x} (was {before:#x})", {"value": value, "before": before}
            self.tracer.access("register", "write", register.name, index, register.size, outcome, **changed)

    def _count(self, packet: Packet, statement: ir.Count) -> None:
        counter = self._counters[statement.counter]
        index = self._index(packet, statement.index, counter.size)
        if index < counter.size:
            counter.counts[index] += np.array([1, len(packet.data)], np.uint64)
        if self.tracer is not None:
            self.tracer.access("counter", "count", counter.name, index, counter.size)

    def _execute_meter(self, packet: Packet, statement: ir.ExecuteMeter) -> None:
        meter = self._meters[statement.meter]
        index, colour = self._index(packet, statement.index, meter.size), 0
        if index < meter.size:
            colour = meter.execute(index, len(packet.data), self.now_us)
            packet.set(statement.slot, colour)
        if self.tracer is not None:
            outcome = f": {COLOURS[colour]}"
            self.tracer.access("meter", "meter", meter.name, index, meter.size, outcome, colour=colour)

    def _index(self, packet: Packet, value: ir.Expr, size: int) -> int:
        """Return an index into an array; one beyond the array's end is counted."""
        index = self._value(packet, value)
        self._state.beyond += index >= size
        return index

    def _random(self, packet: Packet, statement: ir.Random) -> None:
        low, high = self._value(packet, statement.low), self._value(packet, statement.high)
        if low <= high:
            # A random number of 64 bits, scaled to the range; as a division by 2**64 it is the same in native code.
            packet.set(statement.slot, low + (self._state.next_random() * (high - low + 1) >> 64))

    def _learn(self, packet: Packet, statement: ir.Learn) -> None:
        self._digests[statement.digest].add([self._value(packet, value) for value in statement.values])

    def _say(self, packet: Packet, statement: ir.Say) -> None:
        if self.tracer is not None:
            numbers = [self._value(packet, value) for value in statement.values]
            signs = zip(numbers, statement.values, statement.signed, strict=True)
            shown = [_signed(number, value.width) if signed else number for number, value, signed in signs]
            self.tracer.say(statement.text, shown)

    def _claim(self, packet: Packet, statement: ir.Claim) -> None:
        if self.tracer is not None and not self._value(packet, statement.condition):
            self.tracer.note("assert", statement.text)

    def _const(self, packet: Packet, value: ir.Const) -> int:
        return value.value

    def _field(self, packet: Packet, value: ir.Field) -> int:
        return packet.fields[value.slot]

    def _param(self, packet: Packet, value: ir.Param) -> int:
        return packet.found[value.table][value.index]

    def _valid(self, packet: Packet, value: ir.Valid) -> int:
        return int(packet.valid[value.header])

    def _peek(self, packet: Packet, value: ir.Peek) -> int:
        last = value.offset + value.width
        size = (last + 7) // 8
        ahead = int.from_bytes(packet.data[packet.cursor : packet.cursor + size], "big")
        return (ahead >> (8 * size - last)) & _mask(value.width)

    def _binary(self, packet: Packet, value: ir.Binary) -> int:
        left, right = self._value(packet, value.left), self._value(packet, value.right)
        return _OPERATIONS[value.op](left, right, value.width) & _mask(value.width)

    def _compare(self, packet: Packet, value: ir.Compare) -> int:
        left, right = self._value(packet, value.left), self._value(packet, value.right)
        if value.relation in (Relation.LT_SIGNED, Relation.LE_SIGNED):
            left, right = _signed(left, value.left.width), _signed(right, value.left.width)
        return int(_RELATIONS[value.relation](left, right))

    def _select(self, packet: Packet, value: ir.Select) -> int:
        return self._value(packet, value.then if self._value(packet, value.condition) else value.other)

    def _resize(self, packet: Packet, value: ir.Resize) -> int:
        inner = self._value(packet, value.value)
        return (_signed(inner, value.value.width) if value.signed else inner) & _mask(value.width)

    def _repeat(self, packet: Packet, value: ir.Repeat) -> int:
        inner, repeated = self._value(packet, value.value), 0
        for _ in range(value.width // value.value.width):
            repeated = repeated << value.value.width | inner
        return repeated

    def _add_lanes(self, packet: Packet, value: ir.AddLanes) -> int:
        left, right = self._value(packet, value.left), self._value(packet, value.right)
        mask = _mask(value.lane)
        return sum(((left >> shift) + (right >> shift) & mask) << shift for shift in range(0, value.width, value.lane))

    def _hash(self, packet: Packet, value: ir.Hash) -> int:
        bits = total = 0
        for part in value.inputs:
            if part.header is None or packet.valid[part.header]:
                width = part.value.width if part.bits is None else self._value(packet, part.bits)
                bits += width
                total = total << width | self._value(packet, part.value) >> (part.value.width - width)
        # The bit string is filled up with zeros at its end.
        size = (bits + 7) // 8
        data = (total << (8 * size - bits)).to_bytes(size, "big")
        return HASHES[value.algorithm](data + packet.data[packet.cursor :] if value.payload else data)


def _mask(width: int) -> int:
    return (1 << width) - 1


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


_OPERATIONS: dict[Op, Callable[[int, int, int], int]] = {
    Op.ADD: lambda a, b, _: a + b,
    Op.SUB: lambda a, b, _: a - b,
    Op.MUL: lambda a, b, _: a * b,
    Op.DIV: lambda a, b, _: a // b if b else 0,
    Op.MOD: lambda a, b, _: a % b if b else 0,
    Op.AND: lambda a, b, _: a & b,
    Op.OR: lambda a, b, _: a | b,
    Op.XOR: lambda a, b, _: a ^ b,
    Op.SHL: lambda a, b, width: a << b if b < width else 0,
    Op.SHR: lambda a, b, _: a >> b,
    Op.SAR: lambda a, b, width: _signed(a, width) >> b,
}
_RELATIONS: dict[Relation, Callable[[int, int], bool]] = {
    Relation.EQ: lambda a, b: a == b,
    Relation.NE: lambda a, b: a != b,
    Relation.LT: lambda a, b: a < b,
    Relation.LE: lambda a, b: a <= b,
    Relation.LT_SIGNED: lambda a, b: a < b,
    Relation.LE_SIGNED: lambda a, b: a <= b,
}
_STATEMENTS: dict[type, Callable[[Interpreter, Packet, Any], None]] = {
    ir.Assign: Interpreter._assign,
    ir.SetValid: Interpreter._set_valid,
    ir.SetInvalid: Interpreter._set_invalid,
    ir.CopyHeader: Interpreter._copy_header,
    ir.Extract: Interpreter._extract,
    ir.Require: Interpreter._require,
    ir.Advance: Interpreter._advance,
    ir.ReadRegister: Interpreter._read_register,
    ir.WriteRegister: Interpreter._write_register,
    ir.Count: Interpreter._count,
    ir.ExecuteMeter: Interpreter._execute_meter,
    ir.Random: Interpreter._random,
    ir.Learn: Interpreter._learn,
    ir.Say: Interpreter._say,
    ir.Claim: Interpreter._claim,
}
_EXPRESSIONS: dict[type, Callable[[Interpreter, Packet, Any], int]] = {
    ir.Const: Interpreter._const,
    ir.Field: Interpreter._field,
    ir.Param: Interpreter._param,
    ir.Valid: Interpreter._valid,
    ir.Peek: Interpreter._peek,
    ir.Binary: Interpreter._binary,
    ir.Compare: Interpreter._compare,
    ir.Select: Interpreter._select,
    ir.Resize: Interpreter._resize,
    ir.Repeat: Interpreter._repeat,
    ir.AddLanes: Interpreter._add_lanes,
    ir.Hash: Interpreter._hash,
}
