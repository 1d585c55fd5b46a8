"""Small programs in the IR, and engines side by side, for tests of the native engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from switchsum_switch.codegen import compile_program
from switchsum_switch.execution.pipeline import Pipeline, make_state
from switchsum_switch.execution.traffic import InterpretedSwitch
from switchsum_switch.program import ir, v1model
from switchsum_switch.program.verify import verify
from switchsum_switch.queues.parking import Parked

INTRINSICS = {
    "ingress_port": 9,
    "egress_spec": 9,
    "egress_port": 9,
    "instance_type": 32,
    "packet_length": 32,
    "mcast_grp": 16,
    "egress_rid": 16,
    "parser_error": 32,
    "checksum_error": 1,
    "ingress_timestamp": 48,
    "egress_timestamp": 48,
    "enqueue_timestamp": 32,
    "enq_qdepth": 19,
    "deq_qdepth": 19,
    "deq_timedelta": 32,
    "qid": 8,
    "priority": 3,
    "length": 32,
    "cut": 33,
    "clone": 17,
    "clone_list": 16,
    "resubmit": 16,
    "recirculate": 16,
}
NOTHING: ir.Graph = (ir.Block("nothing", (), ir.End()),)
Frames = list[tuple[int, bytes]]
T = TypeVar("T")


def straight(statements: Iterable[ir.Statement]) -> ir.Graph:
    """Return a graph of one block."""
    return (ir.Block("all", tuple(statements), ir.End()),)


@dataclass(slots=True)
class Draft:
    """A program under construction."""

    headers: list[ir.HeaderInfo] = field(default_factory=list)
    fields: list[ir.FieldInfo] = field(default_factory=list)
    tables: list[ir.TableInfo] = field(default_factory=list)
    registers: list[ir.ArrayInfo] = field(default_factory=list)
    counters: list[ir.ArrayInfo] = field(default_factory=list)
    intrinsics: v1model.Intrinsics = field(init=False)

    def __post_init__(self) -> None:
        header = self.header("standard", list(INTRINSICS.values()), metadata=True)
        self.intrinsics = v1model.Intrinsics(**dict(zip(INTRINSICS, self.headers[header].slots, strict=True)))

    def header(self, name: str, widths: Sequence[int], *, metadata: bool = False) -> int:
        """Add a header of fields with these widths, and what fills it up to whole bytes."""
        padding = -sum(widths) % 8
        if padding and not metadata:
            widths = [*widths, padding]
        number, first, offset = len(self.headers), len(self.fields), 0
        for index, width in enumerate(widths):
            self.fields.append(ir.FieldInfo(name=f"{name}.f{index}", header=number, width=width, offset=offset))
            offset += width
        slots = tuple(range(first, len(self.fields)))
        self.headers.append(ir.HeaderInfo(name=name, metadata=metadata, slots=slots, width=offset))
        return number

    def register(self, size: int, width: int) -> int:
        """Add a register array."""
        self.registers.append(ir.ArrayInfo(name=f"register{len(self.registers)}", size=size, width=width))
        return len(self.registers) - 1

    def counter(self, size: int) -> int:
        """Add a counter array."""
        self.counters.append(ir.ArrayInfo(name=f"counter{len(self.counters)}", size=size, width=0))
        return len(self.counters) - 1

    def field(self, slot: int) -> ir.Field:
        """Return a field as an expression."""
        return ir.Field(self.fields[slot].width, slot)

    def program(
        self,
        *,
        parser: ir.Graph = NOTHING,
        verify_checksums: ir.Graph = NOTHING,
        ingress: ir.Graph = NOTHING,
        egress: ir.Graph = NOTHING,
        update: ir.Graph = NOTHING,
        deparser: Sequence[int] = (),
        field_lists: Sequence[tuple[int, ...]] = ((),),
    ) -> ir.Program:
        """Return the program, verified."""
        return verify(
            ir.Program(
                headers=tuple(self.headers),
                fields=tuple(self.fields),
                tables=tuple(self.tables),
                registers=tuple(self.registers),
                counters=tuple(self.counters),
                intrinsics=self.intrinsics,
                parser=parser,
                verify=verify_checksums,
                ingress=ingress,
                egress=egress,
                update=update,
                deparser=tuple(deparser),
                field_lists=tuple(field_lists),
                stack_counts=(),
                too_short=1,
            )
        )


class Pair:
    """The same program on the interpreter and in native code, each with its own state."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.expected_state, self.state = make_state(program), make_state(program)
        self.interpreter = InterpretedSwitch(program, self.expected_state)
        self.native = Pipeline(program, self.state, compile_program(program, self.state, cache=None))

    def process(self, port: int, frame: bytes, now_us: int = 0) -> Frames:
        """Run a frame through both; return what comes out when they agree on it."""
        expected = self.interpreter.process(port, frame, now_us)
        got = self.native.process(port, frame, now_us)
        assert got == expected, f"frame {frame.hex()} on port {port}"
        return got

    def hold(self, port: int) -> None:
        """Let packets to a port wait between ingress and egress."""
        for state in (self.state, self.expected_state):
            state.queues.hold(port, True)

    def parked(self) -> list[tuple[Parked, Parked]]:
        """Return the packets that wait since the last call, of native code and of the interpreter."""
        pairs = list(zip(self.native.parked(), self.interpreter.parked(), strict=True))
        for got, expected in pairs:
            assert replace(got, packet=None) == replace(expected, packet=None)
        return pairs

    def egress(self, packets: tuple[Parked, Parked], depths: tuple[int, int], now_us: int) -> Frames:
        """Run a packet that has waited through egress of both; return what comes out when they agree on it."""
        for packet in packets:
            packet.enq_depth, packet.deq_depth = depths
        got, expected = self.native.egress(packets[0], now_us), self.interpreter.egress(packets[1], now_us)
        assert got == expected
        return got

    def check_state(self) -> None:
        """Compare all that outlives a packet."""
        for name, register in self.expected_state.registers.items():
            np.testing.assert_array_equal(self.state.registers[name].memory, register.memory, name)
        for name, counter in self.expected_state.counters.items():
            np.testing.assert_array_equal(self.state.counters[name].counts, counter.counts, name)
        for name, table in self.expected_state.tables.items():
            np.testing.assert_array_equal(self.state.tables[name].counts, table.counts, name)
        assert self.state.random[0] == self.expected_state.random[0]


class Expressions:
    """Random expressions over some fields."""

    def __init__(self, draft: Draft, rng: np.random.Generator, slots: Sequence[int], headers: Sequence[int]) -> None:
        self._draft, self._rng = draft, rng
        self._slots, self._headers = list(slots), list(headers)

    def make(self, width: int, depth: int) -> ir.Expr:
        """Return an expression of that width."""
        if depth == 0:
            return self._leaf(width)
        kinds = ["leaf", "binary", "binary", "bitwise", "bitwise", "shift", "select", "resize", "divide"]
        kinds += ["repeat", "lanes"] if width > 1 else ["compare", "compare", "valid"]
        match self._rng.choice(kinds):
            case "leaf":
                return self._leaf(width)
            case "binary":
                return self._binary([ir.Op.ADD, ir.Op.SUB, ir.Op.MUL], width, depth)
            case "bitwise":
                return self._binary([ir.Op.AND, ir.Op.OR, ir.Op.XOR], width, depth)
            case "divide":
                return self._binary([ir.Op.DIV, ir.Op.MOD], width, depth)
            case "shift":
                op = self._pick([ir.Op.SHL, ir.Op.SHR, ir.Op.SAR])
                return ir.Binary(width, op, self.make(width, depth - 1), self._amount(width, depth - 1))
            case "select":
                parts = self.make(width, depth - 1), self.make(width, depth - 1)
                return ir.Select(width, self.make(1, depth - 1), *parts)
            case "resize":
                inner = self.make(self._some_width(), depth - 1)
                return ir.Resize(width, inner, bool(self._rng.integers(2)))
            case "repeat":
                divisors = [part for part in (1, 2, 3, 8, 16, 32, 64, width // 2, width) if part and width % part == 0]
                return ir.Repeat(width, self.make(self._pick(divisors), depth - 1))
            case "lanes":
                lanes = [lane for lane in (1, 3, 7, 8, 16, 32, 64, 128, width) if width % lane == 0]
                return ir.AddLanes(width, self._pick(lanes), self.make(width, depth - 1), self.make(width, depth - 1))
            case "compare":
                inside = self._some_width()
                relation = self._pick(list(ir.Relation))
                return ir.Compare(relation, self.make(inside, depth - 1), self.make(inside, depth - 1))
        return ir.Valid(self._pick(self._headers))

    def _binary(self, ops: list[ir.Op], width: int, depth: int) -> ir.Expr:
        return ir.Binary(width, self._pick(ops), self.make(width, depth - 1), self.make(width, depth - 1))

    def _amount(self, width: int, depth: int) -> ir.Expr:
        if self._rng.integers(2):
            return ir.Const(32, int(self._rng.integers(0, width + 2)))
        return self.make(self._pick([3, 8, 16, 32, 128]), depth)

    def _leaf(self, width: int) -> ir.Expr:
        same = [slot for slot in self._slots if self._draft.fields[slot].width == width]
        choice = self._rng.integers(6)
        if same and choice < 4:
            return self._draft.field(self._pick(same))
        if choice == 5:
            return ir.Resize(width, self._draft.field(self._pick(self._slots)), bool(self._rng.integers(2)))
        return ir.Const(width, self.number(width))

    def number(self, width: int) -> int:
        """Return a number with an eye to the ends of the range and to repeated words."""
        full = (1 << width) - 1
        word = int(self._rng.integers(1 << 32))
        repeated = sum(word << shift for shift in range(0, width, 32)) & full
        noise = int.from_bytes(self._rng.bytes((width + 7) // 8), "big") & full
        return self._pick([0, 1, full, full >> 1, 1 << (width - 1), repeated, noise, noise, noise])

    def _some_width(self) -> int:
        return self._draft.fields[self._pick(self._slots)].width

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._rng.integers(len(choices)))]


def frames(rng: np.random.Generator, size: int, count: int) -> list[bytes]:
    """Return frames of random, of few, of no and of all bits set."""
    made = [rng.bytes(size) for _ in range(count - 3)]
    sparse = bytes(np.where(rng.random(size) < 0.05, rng.integers(1, 256, size), 0).astype(np.uint8))
    return [*made, bytes(size), b"\xff" * size, sparse]


def numbered(blocks: Sequence[tuple[Sequence[ir.Statement], ir.Terminator]]) -> ir.Graph:
    """Return a graph of these blocks."""
    names = itertools.count()
    return tuple(ir.Block(f"block{next(names)}", tuple(statements), end) for statements, end in blocks)
