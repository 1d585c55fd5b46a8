"""The rules that well-formed IR keeps.

`verify` runs after lowering and again after the passes, so that a mistake in either is found before code is made of it,
and with the name of the graph and the block.  Engines rely on these rules and do not check them again: widths agree,
indices are in range, and a Peek reads bits that a Require before it has checked.
"""

from __future__ import annotations

from . import ir
from .graph import targets
from .ir import Op


class MalformedProgram(AssertionError):
    """The IR breaks a rule: a mistake in a pass, never in a P4 program."""


def verify(program: ir.Program) -> ir.Program:
    """Return the program unchanged; raises MalformedProgram if it breaks a rule."""
    checker = _Checker(program)
    for name in ("parser", "verify", "ingress", "egress", "update"):
        graph: ir.Graph = getattr(program, name)
        for number, block in enumerate(graph):
            try:
                checker.block(block, len(graph), parsing=name == "parser")
            except MalformedProgram as error:
                raise MalformedProgram(f"{name}, block {number} ({block.name}): {error}") from None
    for slots in (*program.field_lists, program.stack_counts):
        for slot in slots:
            _require(0 <= slot < len(program.fields), f"no field {slot}")
            _require(program.headers[program.fields[slot].header].metadata, f"field {slot} is no metadata")
    _require(not program.field_lists[0], "field list 0 is empty")
    _require(all(0 <= header < len(program.headers) for header in program.deparser), "the deparser names no header")
    return program


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise MalformedProgram(text)


class _Checker:
    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._parsing = False

    def block(self, block: ir.Block, count: int, *, parsing: bool) -> None:
        """Check a block of a graph that has `count` blocks."""
        self._parsing = parsing
        # Bits ahead of the cursor that a Require has checked.  Nothing is known at the start of a block.
        peekable = 0
        for statement in block.statements:
            peekable = self._statement(statement, peekable)
        for target in targets(block.end):
            _require(0 <= target < count, f"no block {target}")
        match block.end:
            case ir.Branch(condition):
                self._expression(condition, 1, peekable)
            case ir.Apply(table, on_hit, on_miss):
                _require(0 <= table < len(self._program.tables), f"no table {table}")
                info = self._program.tables[table]
                _require(len(on_hit) == len(on_miss) == len(info.spec.actions), "a block for each action")
                _require(info.colour is None or self._field(info.colour) <= 64, "a narrow field for the colour")
                _require((info.colour is None) == (info.spec.meter is None), "a field for the colour of each meter")
                if info.selector is not None:
                    self._expression(info.selector, info.selector.width, peekable)
                for key, spec in zip(info.keys, info.spec.keys, strict=True):
                    self._expression(key, spec.width, peekable)

    def _statement(self, statement: ir.Statement, peekable: int) -> int:
        """Check a statement; return how many bits ahead of the cursor a Peek may read after it."""
        program = self._program
        match statement:
            case ir.Assign(slot, value):
                self._expression(value, self._field(slot), peekable)
            case ir.SetValid(header) | ir.SetInvalid(header):
                self._header(header)
            case ir.CopyHeader(target, source):
                widths = [[program.fields[slot].width for slot in self._header(of).slots] for of in (target, source)]
                _require(widths[0] == widths[1], "headers of different types")
            # Extract and Advance move the cursor, and what a Require has checked is measured from the cursor.
            case ir.Extract(header, bits):
                _require(self._parsing, "Extract outside the parser")
                _require((self._header(header).length is None) == (bits is None), "a length for a variable field")
                if bits is not None:
                    self._expression(bits, 32, peekable)
                return 0
            case ir.Require(bits):
                _require(self._parsing, "Require outside the parser")
                self._expression(bits, bits.width, peekable)
                return max(peekable, bits.value) if isinstance(bits, ir.Const) else peekable
            case ir.Advance(bits):
                _require(self._parsing, "Advance outside the parser")
                self._expression(bits, bits.width, peekable)
                return 0
            case _:
                self._on_state(statement, peekable)
        return peekable

    def _on_state(self, statement: ir.Statement, peekable: int) -> None:
        """Check a statement that uses what outlives a packet."""
        program = self._program
        match statement:
            case ir.ReadRegister(slot, register, index):
                _require(0 <= register < len(program.registers), f"no register {register}")
                _require(self._field(slot) == program.registers[register].width, "field and register differ in width")
                self._expression(index, index.width, peekable)
            case ir.WriteRegister(register, index, value):
                _require(0 <= register < len(program.registers), f"no register {register}")
                self._expression(index, index.width, peekable)
                self._expression(value, program.registers[register].width, peekable)
            case ir.Count(counter, index):
                _require(0 <= counter < len(program.counters), f"no counter {counter}")
                self._expression(index, index.width, peekable)
            case ir.ExecuteMeter(slot, meter, index):
                self._field(slot)
                _require(0 <= meter < len(program.meters), f"no meter {meter}")
                self._expression(index, index.width, peekable)
            case ir.Random(slot, low, high):
                self._field(slot)
                self._expression(low, 64, peekable)
                self._expression(high, 64, peekable)
            case ir.Learn(digest, values):
                _require(0 <= digest < len(program.digests), f"no digest {digest}")
                for value, width in zip(values, program.digests[digest].widths, strict=True):
                    self._expression(value, width, peekable)
            case ir.Say(_, values, signed):
                _require(len(values) == len(signed), "a sign for each value")
                for value in values:
                    self._expression(value, value.width, peekable)
            case ir.Claim(_, condition):
                self._expression(condition, 1, peekable)

    def _field(self, slot: int) -> int:
        _require(0 <= slot < len(self._program.fields), f"no field {slot}")
        return self._program.fields[slot].width

    def _header(self, header: int) -> ir.HeaderInfo:
        _require(0 <= header < len(self._program.headers), f"no header {header}")
        info = self._program.headers[header]
        _require(not info.metadata, f"{info.name} is metadata")
        return info

    def _expression(self, value: ir.Expr, width: int, peekable: int) -> None:
        _require(value.width == width, f"{width} bits wanted, {value.width} given by {type(value).__name__}")
        _require(width >= 1, "no bits")
        match value:
            case ir.Const(_, number):
                _require(0 <= number < 1 << width, f"{number:#x} does not fit {width} bits")
            case ir.Field(_, slot):
                _require(self._field(slot) == width, f"field {slot} has {self._field(slot)} bits")
            case ir.Param(_, table, action, index):
                _require(0 <= table < len(self._program.tables), f"no table {table}")
                spec = self._program.tables[table].spec.actions[action].params[index]
                _require(spec.width == width, f"parameter {spec.name} has {spec.width} bits")
            case ir.Valid(header):
                self._header(header)
            case ir.Peek(_, offset):
                _require(self._parsing, "Peek outside the parser")
                _require(offset + width <= peekable, f"bits {offset} to {offset + width} are not known to be there")
            case _:
                self._compound(value, peekable)

    def _compound(self, value: ir.Expr, peekable: int) -> None:
        width = value.width
        match value:
            case ir.Binary(_, op, left, right):
                self._expression(left, width, peekable)
                amount = op in (Op.SHL, Op.SHR, Op.SAR)
                self._expression(right, right.width if amount else width, peekable)
            case ir.Compare(_, left, right):
                self._expression(left, left.width, peekable)
                self._expression(right, left.width, peekable)
            case ir.Select(_, condition, then, other):
                self._expression(condition, 1, peekable)
                self._expression(then, width, peekable)
                self._expression(other, width, peekable)
            case ir.Resize(_, inner):
                self._expression(inner, inner.width, peekable)
            case ir.Repeat(_, inner):
                _require(width % inner.width == 0, f"{inner.width} bits do not repeat to {width}")
                self._expression(inner, inner.width, peekable)
            case ir.AddLanes(_, lane, left, right):
                _require(width % lane == 0, f"lanes of {lane} bits do not fill {width}")
                self._expression(left, width, peekable)
                self._expression(right, width, peekable)
            case ir.Hash(_, _, inputs):
                for part in inputs:
                    self._expression(part.value, part.value.width, peekable)
                    if part.bits is not None:
                        self._expression(part.bits, part.bits.width, peekable)
