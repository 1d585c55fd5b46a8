"""What wide fields have been given lasts as long as something reads it: in a later life, after an error, in a clone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from support.ir_programs import Draft, Pair, numbered, straight
from support.random_lives import compare_engines
from switchsum_switch.codegen import cache
from switchsum_switch.messages.matches import MatchKind
from switchsum_switch.program import ir
from switchsum_switch.program.ir import Op, Relation
from switchsum_switch.program.passes import split_carries
from switchsum_switch.state.meters import MeterUnit
from switchsum_switch.state.tables import ActionSpec, KeySpec, TableSpec

SESSION = 1
LIST = 1
VALUE = bytes([42]) * 32


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_with_packets_that_live_more_than_once(seed: int) -> None:
    compare_engines(np.random.default_rng(seed))


def test_a_long_field_of_one_bit_that_varies() -> None:
    """A program of the fuzzer's: LLVM aborts if the bytes of such an integer are swapped in one instruction."""
    compare_engines(np.random.default_rng([2, 42, 22]))


class Life:
    """A program with one wide header field, one wide metadata field that field list 1 keeps, and a first life."""

    def __init__(self) -> None:
        self.draft = draft = Draft()
        self.header = draft.header("given", [256])
        self.shown = draft.field(draft.headers[self.header].slots[0])
        metadata = draft.header("metadata", [256, 8], metadata=True)
        self.kept, self.flags = (draft.field(slot) for slot in draft.headers[metadata].slots)
        self.names = draft.intrinsics

    def first(self, then: Sequence[ir.Statement], other: Sequence[ir.Statement]) -> ir.Graph:
        """Return a graph that does one thing with new packets and another with clones and those that enter again."""
        new = ir.Compare(Relation.EQ, self.draft.field(self.names.instance_type), ir.Const(32, 0))
        return numbered([([], ir.Branch(new, 1, 2)), (then, ir.End()), (other, ir.End())])

    def set(self, slot: int, number: int) -> ir.Assign:
        """Return the assignment of a constant."""
        return ir.Assign(slot, ir.Const(self.draft.fields[slot].width, number))

    def clone(self) -> list[ir.Statement]:
        """Return what clones a packet, with field list 1."""
        return [self.set(self.names.clone, SESSION + 1), self.set(self.names.clone_list, LIST)]

    def pair(
        self, *, parser: ir.Graph = (), ingress: ir.Graph = (), egress: ir.Graph = (), update: ir.Graph = ()
    ) -> Pair:
        """Return both engines with the program, and a session of one clone on port 7."""
        nothing = straight([])
        program = self.draft.program(
            parser=parser or straight([ir.Extract(self.header)]),
            ingress=ingress or nothing,
            egress=egress or nothing,
            update=update or nothing,
            deparser=[self.header],
            field_lists=((), (self.kept.slot,)),
        )
        pair = Pair(program)
        for state in (pair.state, pair.expected_state):
            state.clones.set(SESSION, [(7, 1)])
        return pair

    @property
    def keep(self) -> list[ir.Statement]:
        """Compute what is kept; that it is a field of the packet would not do, for it needs no memory of its own."""
        return [ir.Assign(self.kept.slot, ir.Binary(256, Op.XOR, self.shown, ir.Const(256, 1)))]

    @property
    def show(self) -> list[ir.Statement]:
        """Put what was kept into the packet."""
        return [ir.Assign(self.shown.slot, self.kept)]


KEPT = VALUE[:-1] + bytes([VALUE[-1] ^ 1])


def test_what_a_resubmitted_packet_keeps_is_read_in_ingress_alone() -> None:
    life = Life()
    again = [*life.keep, life.set(life.names.resubmit, LIST)]
    assert life.pair(ingress=life.first(again, life.show)).process(3, VALUE) == [(0, KEPT)]


def test_what_a_recirculated_packet_keeps_is_read_in_egress_alone() -> None:
    life = Life()
    again = [*life.keep, life.set(life.names.recirculate, LIST)]
    come = ir.Compare(Relation.EQ, life.kept, ir.Const(256, 0))
    egress = numbered([([], ir.Branch(come, 1, 2)), (again, ir.End()), (life.show, ir.End())])
    assert life.pair(egress=egress).process(3, VALUE) == [(0, KEPT)]


@pytest.mark.parametrize("graph", ["parser", "ingress"])
def test_what_a_recirculated_packet_keeps_is_read_in_graphs_before(graph: str) -> None:
    life = Life()
    again = [*life.keep, life.set(life.names.recirculate, LIST)]
    known = ir.Compare(Relation.NE, life.kept, ir.Const(256, 0))
    parsed = [ir.Extract(life.header)] if graph == "parser" else []
    reads = numbered([(parsed, ir.Branch(known, 1, 2)), (life.show, ir.End()), ([], ir.End())])
    egress = numbered(
        [
            ([], ir.Branch(ir.Compare(Relation.EQ, life.shown, ir.Const(256, int.from_bytes(VALUE))), 1, 2)),
            (again, ir.End()),
            ([], ir.End()),
        ]
    )
    pair = life.pair(parser=reads, egress=egress) if graph == "parser" else life.pair(ingress=reads, egress=egress)
    assert pair.process(3, VALUE) == [(0, KEPT)]


def test_what_a_clone_of_egress_keeps_is_read_in_egress_alone() -> None:
    life = Life()
    egress = life.first([*life.keep, *life.clone()], life.show)
    assert life.pair(egress=egress).process(3, VALUE) == [(0, VALUE), (7, KEPT)]


def test_what_a_clone_of_ingress_keeps_is_read_in_egress() -> None:
    life = Life()
    pair = life.pair(ingress=life.first([*life.keep, *life.clone()], []), egress=life.first([], life.show))
    assert pair.process(3, VALUE) == [(7, KEPT), (0, VALUE)]


def test_a_clone_has_what_was_in_a_register_before_it_wrote_the_register() -> None:
    """A header field that was read from a register is not copied until the register is about to change."""
    life = Life()
    register = life.draft.register(1, 256)
    zero = ir.Const(1, 0)
    fill = [ir.WriteRegister(register, zero, life.shown)]
    read = [ir.ReadRegister(life.shown.slot, register, zero), *life.clone()]
    pair = life.pair(ingress=straight(fill), egress=life.first(read, [ir.WriteRegister(register, zero, life.kept)]))
    assert pair.process(3, VALUE) == [(0, VALUE), (7, VALUE)]
    pair.check_state()


def test_a_clone_has_what_was_there_before_checksums_were_updated() -> None:
    life = Life()
    changed = ir.Binary(256, Op.ADD, life.shown, ir.Const(256, 1))
    egress = life.first([ir.Assign(life.shown.slot, changed), *life.clone()], [])
    update = [ir.Assign(life.shown.slot, ir.Binary(256, Op.XOR, life.shown, ir.Const(256, 0xFF << 128)))]
    [(_, sent), (_, clone)] = life.pair(egress=egress, update=straight(update)).process(3, VALUE)
    assert sent == clone


@pytest.mark.parametrize("size", [31, 32, 63, 64])
def test_tests_that_gather_are_known_where_a_later_header_is_too_short(size: int) -> None:
    life = Life()
    second = life.draft.header("second", [256])
    answer = life.draft.header("answer", [8])
    out = life.draft.headers[answer].slots[0]

    def gather(header: int, bit: int) -> ir.Assign:
        field = life.draft.field(life.draft.headers[header].slots[0])
        differs = ir.Compare(Relation.NE, field, ir.Const(256, 0))
        gained = ir.Select(8, differs, ir.Const(8, bit), ir.Const(8, 0))
        return ir.Assign(life.flags.slot, ir.Binary(8, Op.OR, life.flags, gained))

    parser: list[ir.Statement] = [ir.Extract(life.header), gather(life.header, 4)]
    parser += [ir.Extract(second), gather(second, 4)]
    pair = Pair(
        life.draft.program(
            parser=straight(parser),
            ingress=straight([ir.SetValid(answer), ir.Assign(out, life.flags)]),
            deparser=[answer],
        )
    )
    [(_, frame)] = pair.process(3, bytes([1]) * size)
    assert frame[0] == (4 if size >= 32 else 0)


def test_the_colour_of_a_direct_meter_is_no_known_bit() -> None:
    life = Life()
    key = KeySpec(name="key", width=256, kind=MatchKind.EXACT)
    action = ActionSpec(name="none", params=())
    spec = TableSpec(name="table", keys=(key,), actions=(action,), size=4, meter=MeterUnit.PACKETS)
    info = ir.TableInfo(spec=spec, keys=(life.shown,), default=("none", ()), entries=(), colour=life.flags.slot)
    life.draft.tables.append(info)
    lanes = ir.Const(256, (1 << 64) - 1)
    added = ir.Binary(256, Op.ADD, lanes, ir.Resize(256, life.flags))
    program = life.draft.program(
        parser=straight([ir.Extract(life.header)]),
        ingress=numbered(
            [
                ([life.set(life.flags.slot, 0)], ir.Apply(0, (1,), (1,))),
                ([ir.Assign(life.shown.slot, added)], ir.End()),
            ]
        ),
        deparser=[life.header],
    )
    assert split_carries(program) == program
    unmetered = replace(program, tables=(replace(info, colour=None),))
    assert split_carries(unmetered) != unmetered


def test_code_is_kept_under_a_digest_of_every_module_that_has_a_say() -> None:
    """A pass that was mended must not leave the code that it made before."""
    found = {f"{path.parent.name}/{path.name}" for path in cache.sources()}
    assert {
        "program/ir.py",
        "codegen/wide.py",
        "passes/analysis.py",
        "program/graph.py",
    } <= found
