"""Random programs whose packets live more than once, for the native engine beside the interpreter.

A pass that asks what is read later is right only if it knows every reader.  So each field of the metadata is read in
few graphs, often in one alone, and what keeps its value until then is drawn: later graphs, field lists of each kind of
packet that enters again, clones, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from support.ir_programs import Draft, Expressions, Pair, numbered
from switchsum_switch.messages.matches import Exact, MatchKind
from switchsum_switch.program import ir
from switchsum_switch.program.ir import Op, Relation
from switchsum_switch.program.passes.analysis import GRAPHS
from switchsum_switch.program.v1model import EGRESS_CLONE, NORMAL
from switchsum_switch.state.state import ProgramState
from switchsum_switch.state.tables import ActionSpec, Entry, KeySpec, ParamSpec, TableSpec

T = TypeVar("T")

WIDTHS: Final = (8, 32, 128, 256, 512)
GROUP: Final = 9
ONE_CLONE: Final = 1
TWO_CLONES: Final = 2
"""Clone sessions; there is no session 3."""
FRAMES: Final = 6
PASSES: Final = 8
"""With more, packets that multiply in each pass may find no room."""
MOST_WAITING: Final = 200
"""Packets that go through egress after they waited; more may be left, of programs that multiply packets."""


class RandomLives:
    """A program, its entries and groups, and frames for it, all drawn from one generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Draw a program."""
        self._rng = rng
        self._draft = draft = Draft()
        widths = [8, *(int(width) for width in rng.choice(WIDTHS, 3))]
        self._headers = [draft.header(name, widths) for name in ("given", "twin", "more")]
        metadata = draft.headers[draft.header("metadata", [*WIDTHS, *widths[1:]], metadata=True)].slots
        self._readable = {name: [slot for slot in metadata if rng.integers(4) == 0] for name in GRAPHS}
        self._metadata = metadata
        self._slots = [slot for header in self._headers for slot in draft.headers[header].slots]
        self._registers = {width: draft.register(2, width) for width in WIDTHS}
        self._lists = (
            (),
            *(tuple(slot for slot in metadata if rng.integers(2)) for _ in range(3)),
        )
        self._add_table()
        program = draft.program(
            parser=self._parser(),
            verify_checksums=self._graph("verify", 1),
            ingress=self._graph("ingress", 4),
            egress=self._graph("egress", 4),
            update=self._graph("update", 1),
            deparser=self._headers,
            field_lists=self._lists,
        )
        self.program = replace(program, passes=PASSES)

    def set_up(self, state: ProgramState) -> None:
        """Make the groups, sessions and entries that programs use."""
        state.multicast.set(GROUP, [(1, 4), (2, 5)])
        state.clones.set(ONE_CLONE, [(3, 21)])
        state.clones.set(TWO_CLONES, [(4, 22), (5, 23)], length_limit=100)
        for key in range(8):
            params = tuple(key << shift | key for shift in (120, 200))
            state.tables["table"].insert(Entry(match=(Exact(key),), priority=0, action="a0", params=params))

    def frames(self) -> list[bytes]:
        """Draw frames, one of them too short for all headers."""
        size = 3 * self._draft.headers[self._headers[0]].width // 8
        made = [self._rng.bytes(size + 5) for _ in range(FRAMES - 1)]
        return [bytes([int(self._rng.integers(8))]) + frame[1:] for frame in made] + [self._rng.bytes(size // 2)]

    def _add_table(self) -> None:
        draft = self._draft
        wide = tuple(ParamSpec(name=f"p{width}", width=width) for width in (128, 256))
        actions = (ActionSpec(name="a0", params=wide), ActionSpec(name="a1", params=()))
        key = KeySpec(name="key", width=8, kind=MatchKind.EXACT)
        spec = TableSpec(name="table", keys=(key,), actions=actions, size=8, has_counters=True)
        field = draft.field(draft.headers[self._headers[0]].slots[0])
        draft.tables.append(ir.TableInfo(spec=spec, keys=(field,), default=("a1", ()), entries=()))

    def _parser(self) -> ir.Graph:
        """Extract one header after the other, with statements in between, in one block or in several."""
        pick, expressions = self._pick, self._expressions("parser")
        blocks: list[tuple[list[ir.Statement], ir.Terminator]] = [([], ir.End())]
        for header in self._headers:
            statements = blocks[-1][0]
            statements += [ir.Extract(header), *(self._plain(expressions) for _ in range(self._rng.integers(3)))]
            statements += self._gathered(header)
            if pick((True, False)):
                blocks[-1] = (statements, ir.Jump(len(blocks)))
                blocks.append(([], ir.End()))
        return numbered(blocks)

    def _gathered(self, header: int) -> list[ir.Statement]:
        """Return tests of wide values whose outcomes gather in one narrow field."""
        draft, flags = self._draft, self._metadata[0]
        fields = [draft.field(slot) for slot in draft.headers[header].slots if draft.fields[slot].width >= 128]
        made: list[ir.Statement] = []
        for field in fields:
            differs = ir.Compare(Relation.NE, field, ir.Const(field.width, 0))
            bit = ir.Select(8, differs, ir.Const(8, 4), ir.Const(8, 0))
            made.append(ir.Assign(flags, ir.Binary(8, Op.OR, draft.field(flags), bit)))
        return made

    def _expressions(self, graph: str) -> Expressions:
        return Expressions(self._draft, self._rng, [*self._slots, *self._readable[graph]], self._headers)

    def _graph(self, name: str, blocks: int) -> ir.Graph:
        """Return a graph whose branches lead forwards."""
        rng, expressions = self._rng, self._expressions(name)
        made: list[tuple[list[ir.Statement], ir.Terminator]] = []
        for number in range(blocks):
            statements: list[ir.Statement] = [self._statement(expressions) for _ in range(rng.integers(1, 6))]
            # What is shown first is of an earlier life, unless an earlier graph has written it in this one.
            statements = [*(self._show(name) if not number or self._pick((True, False)) else []), *statements]
            statements += self._show(name) if self._pick((True, False)) else []
            end: ir.Terminator = ir.End()
            if number + 1 < blocks:
                then, other = (int(target) for target in rng.integers(number + 1, blocks, 2))
                end = ir.Branch(expressions.make(1, 1), then, other)
                if name == "ingress" and number == 0:
                    # The action with parameters uses them in a block of its own.
                    end = ir.Apply(0, (blocks, then), (blocks, other))
            made.append((statements, end))
        made[-1] = ([*made[-1][0], *self._fate(name, expressions)], ir.End())
        if name == "ingress":
            used = [ir.Assign(self._of_width(width), ir.Param(width, 0, 0, i)) for i, width in enumerate((128, 256))]
            made.append(([*used], ir.Jump(blocks - 1)))
        return numbered(made)

    def _show(self, name: str) -> list[ir.Statement]:
        """Copy metadata that may be read here into a header, where it is seen."""
        made: list[ir.Statement] = []
        for slot in self._readable[name]:
            width = self._draft.fields[slot].width
            targets = [target for target in self._slots if self._draft.fields[target].width == width]
            if targets:
                target = self._pick(targets)
                mixed = ir.Binary(width, Op.XOR, self._draft.field(target), self._draft.field(slot))
                made.append(ir.Assign(target, mixed))
        return made

    def _statement(self, expressions: Expressions) -> ir.Statement:
        """Draw a statement of any kind that may stand in every graph."""
        rng = self._rng
        match rng.integers(8):
            case 0:
                width = self._pick(WIDTHS)
                return ir.ReadRegister(self._of_width(width), self._registers[width], expressions.make(1, 1))
            case 1:
                width = self._pick(WIDTHS)
                return ir.WriteRegister(self._registers[width], expressions.make(1, 1), expressions.make(width, 1))
            case 2:
                return ir.SetValid(self._pick(self._headers))
            case 3:
                return ir.CopyHeader(self._pick(self._headers), self._pick(self._headers))
        return self._plain(expressions)

    def _plain(self, expressions: Expressions) -> ir.Statement:
        slot = self._pick(self._metadata if self._pick((True, False)) else self._slots)
        return ir.Assign(slot, expressions.make(self._draft.fields[slot].width, 2))

    def _of_width(self, width: int) -> int:
        return self._pick([slot for slot in self._metadata if self._draft.fields[slot].width == width])

    def _fate(self, name: str, expressions: Expressions) -> list[ir.Statement]:
        """Say what becomes of the packet when its graph ends."""
        names, made = self._draft.intrinsics, list[ir.Statement]()
        kind = self._draft.field(names.instance_type)

        def sometimes(slot: int, number: int, of: Callable[[ir.Expr], ir.Expr]) -> None:
            width = self._draft.fields[slot].width
            made.append(ir.Assign(slot, ir.Select(width, of(kind), ir.Const(width, number), ir.Const(width, 0))))

        def first(of: ir.Expr) -> ir.Expr:
            return ir.Compare(Relation.EQ, of, ir.Const(32, NORMAL))

        def not_cloned(of: ir.Expr) -> ir.Expr:
            return ir.Compare(Relation.NE, of, ir.Const(32, EGRESS_CLONE))

        def by_chance(of: ir.Expr) -> ir.Expr:
            return ir.Binary(1, Op.AND, not_cloned(of), expressions.make(1, 1))

        def number() -> int:
            """Pick a field list, and write what it keeps."""
            chosen = self._pick(range(1, len(self._lists)))
            for slot in self._lists[chosen]:
                if self._pick((True, False)):
                    made.append(ir.Assign(slot, expressions.make(self._draft.fields[slot].width, 1)))
            return chosen

        if name in ("ingress", "egress") and self._pick((True, False)):
            made.append(ir.Assign(names.clone_list, ir.Const(16, self._pick((0, number(), number())))))
            session = self._pick((ONE_CLONE, ONE_CLONE, TWO_CLONES, 3))
            sometimes(names.clone, session + 1, self._pick((first, not_cloned, by_chance)))
        if name == "ingress":
            if self._pick((True, False)):
                sometimes(names.resubmit, number(), self._pick((first, first, by_chance)))
            sometimes(names.mcast_grp, GROUP, self._pick((first, by_chance)))
        if name == "egress" and self._pick((True, False)):
            sometimes(names.recirculate, number(), self._pick((first, first, by_chance)))
        return made

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._rng.integers(len(choices)))]


def compare_engines(rng: np.random.Generator) -> int:
    """Draw a program, run its frames through both engines; return how many frames came out when they agree.

    They run twice: at once, and with packets that wait between ingress and egress while other frames run.
    """
    drawn = RandomLives(rng)
    pair, made = Pair(drawn.program), 0
    for state in (pair.state, pair.expected_state):
        drawn.set_up(state)
    frames = drawn.frames()
    for frame in frames:
        made += len(pair.process(5, frame, now_us=77))
    pair.check_state()
    for port in range(6):
        if rng.integers(4):
            pair.hold(port)
    for number, frame in enumerate(frames):
        made += len(pair.process(5, frame, now_us=100 + number))
    waiting = pair.parked()
    for turn in range(MOST_WAITING):
        if not waiting:
            break
        packets = waiting.pop(int(rng.integers(len(waiting))))
        made += len(pair.egress(packets, depths=(turn, turn + 1), now_us=200 + turn))
        waiting += pair.parked()
    pair.check_state()
    return made
