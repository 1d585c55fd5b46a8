"""Which programs may be shared out to cores, and that what the proof says of an index is so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum import p4src
from switchsum.protocol.frame import LANE_BUILDS
from switchsum.switch import ir
from switchsum.switch.errors import ProgramError
from switchsum.switch.ir import Op
from switchsum.switch.lower import lower
from switchsum.switch.passes.provenance import ONE, ZERO, Sharding, accesses, prove
from switchsum.switch.pipeline import make_state
from switchsum.switch.reader import read_program
from switchsum.switch.traffic import InterpretedSwitch
from switchsum.switch.v1model import DROP_PORT

from .conftest import PROGRAMS
from .ir_programs import Draft, numbered, straight

SIZE = 64


def load(text: str | bytes) -> ir.Program:
    return lower(read_program(text), DROP_PORT, 1)


@pytest.mark.parametrize("lanes", LANE_BUILDS)
def test_our_own_program_is_sharded_by_its_slots(lanes: int) -> None:
    program = load(p4src.load(lanes).device_config)
    for shards in (2, 4, 64):
        slot = prove(program, Sharding(field="agg.slot", shards=shards))
        assert program.fields[slot].name == "agg.slot"
    assert prove(program, Sharding(field="agg.number", shards=2)), "a cell is a slot's odd or even rounds"


@pytest.mark.parametrize(
    ("field", "shards", "why"),
    [
        (
            "agg.number",
            4,
            r"dispatch\.cells\.tags: .* index .*agg\.number\[0:0\]\) \(in .*\) is a function",
        ),
        ("agg.rank", 2, "is a function of agg.rank"),
        ("udp.source", 2, "is a function of udp.source"),
        ("agg.colour", 2, "the program has no header field agg.colour"),
        ("scalars.metadata_t.member", 2, "the program has no header field"),
        ("ipv4.ecn", 8, "ipv4.ecn has 2 bits, from which 8 shards cannot come"),
        ("lanes.c0", 2, "lanes.c0 has 2048 bits"),
    ],
)
def test_what_our_own_program_is_not_sharded_by(field: str, shards: int, why: str) -> None:
    with pytest.raises(ProgramError, match=why):
        prove(load(p4src.load(128).device_config), Sharding(field=field, shards=shards))


class Indexed:
    """Programs that read or write a register; `given` is what frames have, `meta` metadata, both 32 bits each."""

    def __init__(self) -> None:
        self.draft = Draft()
        self.given = self.draft.header("given", [32, 32])
        self.twin = self.draft.header("twin", [32, 32])
        self.meta = self.draft.headers[self.draft.header("meta", [32, 32], metadata=True)].slots
        self.key, self.other = (self.draft.field(slot) for slot in self.draft.headers[self.given].slots)
        self.first, self.second = map(self.draft.field, self.meta)
        self.register = self.draft.register(SIZE, 16)
        self.small = self.draft.register(1, 16)

    def write(self, index: ir.Expr, register: int | None = None) -> ir.Statement:
        return ir.WriteRegister(self.register if register is None else register, index, ir.Const(16, 1))

    def prove(self, ingress: ir.Graph | Sequence[ir.Statement], **graphs: ir.Graph) -> int:
        """Prove a program for four shards by `given`'s first field."""
        graph = ingress if ingress and isinstance(ingress[0], ir.Block) else straight(ingress)  # type: ignore[arg-type]
        all_graphs: dict[str, Any] = {"parser": straight([ir.Extract(self.given)]), "ingress": graph} | graphs
        return prove(self.draft.program(**all_graphs), Sharding(field="given.f0", shards=4))


def binary(op: Op, left: ir.Expr, right: ir.Expr | int) -> ir.Expr:
    return ir.Binary(left.width, op, left, ir.Const(left.width, right) if isinstance(right, int) else right)


Statements = Callable[[Indexed], Sequence[ir.Statement]]
PROVEN: dict[str, Statements] = {
    "the field": lambda p: [p.write(p.key)],
    "shifted, with other bits below": lambda p: [
        p.write(binary(Op.OR, binary(Op.SHL, p.key, 1), binary(Op.AND, p.other, 1)))
    ],
    "multiplied, plus what is below": lambda p: [
        p.write(binary(Op.ADD, binary(Op.MUL, p.key, 8), i)) for i in range(8)
    ],
    "low bits": lambda p: [p.write(ir.Resize(8, p.key))],
    "a slice": lambda p: [p.write(ir.Resize(4, binary(Op.SHR, binary(Op.SHL, p.key, 7), 7)))],
    "kept in metadata": lambda p: [ir.Assign(p.first.slot, p.key), p.write(p.first)],
    "copied to metadata before it changes": lambda p: [
        ir.Assign(p.first.slot, p.key),
        ir.Assign(p.key.slot, p.other),
        ir.SetInvalid(p.given),
        p.write(p.first),
    ],
    "either way": lambda p: [p.write(ir.Select(32, ir.Valid(p.given), p.key, binary(Op.OR, p.key, 0x8000)))],
    "beyond the end": lambda p: [p.write(ir.Const(32, SIZE)), p.write(p.key)],
    "elsewhere in another register": lambda p: [p.write(p.key), p.write(binary(Op.SHL, p.key, 3), p.small)],
    "without registers": lambda p: [ir.Random(p.first.slot, ir.Const(64, 0), ir.Const(64, 9)), ir.SetInvalid(p.given)],
    "xor with constants above": lambda p: [p.write(binary(Op.XOR, p.key, 0xF0))],
}
REFUSED: dict[str, Statements] = {
    "another field": lambda p: [p.write(p.other)],
    "a constant": lambda p: [p.write(ir.Const(32, 0))],
    "a register of one cell": lambda p: [p.write(ir.Const(32, 0), p.small)],
    "too few bits": lambda p: [p.write(binary(Op.AND, p.key, 1))],
    "the bits above": lambda p: [p.write(binary(Op.SHR, p.key, 1))],
    "in two places": lambda p: [p.write(p.key), p.write(binary(Op.SHL, p.key, 1))],
    "read in another place": lambda p: [
        p.write(p.key),
        ir.ReadRegister(p.draft.headers[p.twin].slots[0], p.draft.register(4, 32), p.other),
    ],
    "with a carry from below": lambda p: [p.write(binary(Op.ADD, p.key, 1))],
    "with another added": lambda p: [p.write(binary(Op.ADD, p.key, p.other))],
    "less something": lambda p: [p.write(binary(Op.SUB, p.key, 1))],
    "times three": lambda p: [p.write(binary(Op.MUL, p.key, 3))],
    "turned over": lambda p: [p.write(binary(Op.XOR, p.key, 1))],
    "shifted by a field": lambda p: [p.write(binary(Op.SHL, p.key, p.other))],
    "after an assignment": lambda p: [ir.Assign(p.key.slot, p.other), p.write(p.key)],
    "after it was made invalid": lambda p: [ir.SetInvalid(p.given), p.write(p.key)],
    "after it was made valid": lambda p: [ir.SetValid(p.given), p.write(p.key)],
    "after another header was copied to it": lambda p: [ir.CopyHeader(p.given, p.twin), p.write(p.key)],
    "after it was drawn": lambda p: [ir.Random(p.key.slot, ir.Const(64, 0), ir.Const(64, 9)), p.write(p.key)],
    "one way or another": lambda p: [p.write(ir.Select(32, ir.Valid(p.given), p.key, p.other))],
    "a hash": lambda p: [p.write(ir.Hash(16, "crc16", (ir.HashInput(p.key, None),)))],
    "cloned": lambda p: [ir.Assign(p.draft.intrinsics.clone, ir.Const(17, 1))],
    "resubmitted": lambda p: [ir.Assign(p.draft.intrinsics.resubmit, ir.Const(16, 1))],
    "recirculated": lambda p: [ir.Assign(p.draft.intrinsics.recirculate, ir.Const(16, 1))],
}


@pytest.mark.parametrize("name", PROVEN)
def test_indices_that_are_functions_of_the_field(name: str) -> None:
    program = Indexed()
    assert program.prove(PROVEN[name](program)) == program.key.slot


@pytest.mark.parametrize("name", REFUSED)
def test_indices_that_are_none(name: str) -> None:
    program = Indexed()
    with pytest.raises(ProgramError, match="shards: "):
        program.prove(REFUSED[name](program))


def test_ways_that_meet_know_what_both_know() -> None:
    def graph(p: Indexed, then: ir.Expr, other: ir.Expr) -> ir.Graph:
        return numbered(
            [
                ([], ir.Branch(ir.Valid(p.twin), 1, 2)),
                ([ir.Assign(p.first.slot, then)], ir.Jump(3)),
                ([ir.Assign(p.first.slot, other)], ir.Jump(3)),
                ([p.write(p.first)], ir.End()),
            ]
        )

    program = Indexed()
    program.prove(graph(program, program.key, binary(Op.AND, program.key, 0xFF)))
    with pytest.raises(ProgramError, match=r"index meta\.f0 \(in block3\) is a function"):
        program.prove(graph(program, program.key, program.other))


def test_what_one_graph_does_the_next_one_knows() -> None:
    program = Indexed()
    keep, change = ir.Assign(program.first.slot, program.key), ir.Assign(program.key.slot, program.other)
    program.prove([keep, change], egress=straight([program.write(program.first)]))
    program.prove([], update=straight([program.write(program.key)]))
    for graph in ("verify_checksums", "egress"):
        with pytest.raises(ProgramError, match=r"given\.f0"):
            program.prove([], **{graph: straight([change])}, update=straight([program.write(program.key)]))


@pytest.mark.parametrize("extra", ["count", "read", "random"])
def test_parsers_that_do_more_than_parse_are_refused(extra: str) -> None:
    p = Indexed()
    more: dict[str, ir.Statement] = {
        "count": ir.Count(p.draft.counter(4), p.key),
        "read": ir.ReadRegister(p.first.slot, p.draft.register(4, 32), p.key),
        "random": ir.Random(p.first.slot, ir.Const(64, 0), ir.Const(64, 9)),
    }
    with pytest.raises(ProgramError, match="the parser does more than parse"):
        p.prove([], parser=straight([ir.Extract(p.given), more[extra]]))


@pytest.mark.parametrize(("name", "why"), [("metering", "meters"), ("lives", "clones|resubmits|recirculates")])
def test_what_packets_share_beside_registers_is_refused(name: str, why: str) -> None:
    program = load((PROGRAMS / f"{name}.json").read_bytes())
    fields = [field.name for field in program.fields if not program.headers[field.header].metadata]
    with pytest.raises(ProgramError, match=f"shards: .*({why})"):
        prove(program, Sharding(field=fields[0], shards=2))


def values(p: Indexed) -> st.SearchStrategy[ir.Expr]:
    """Expressions of 32 bits, of the kinds that indices are made of and of others."""
    leaves = st.sampled_from([p.key, p.key, p.other, p.first, p.second]) | st.builds(
        ir.Const, st.just(32), st.integers(0, 40) | st.sampled_from([0xFF, 0xFFFF_FFFF, 0x8000_0000, 0x5555])
    )

    def grown(inner: st.SearchStrategy[ir.Expr]) -> st.SearchStrategy[ir.Expr]:
        small = st.builds(ir.Const, st.just(32), st.integers(0, 33))
        widths = st.sampled_from([1, 4, 16, 31, 33, 48])
        return st.one_of(
            st.builds(ir.Binary, st.just(32), st.sampled_from(list(Op)), inner, inner),
            st.builds(ir.Binary, st.just(32), st.sampled_from([Op.SHL, Op.SHR, Op.SAR, Op.MUL, Op.ADD]), inner, small),
            st.builds(ir.Binary, st.just(32), st.sampled_from([Op.AND, Op.OR, Op.XOR, Op.ADD]), inner, inner),
            st.builds(
                lambda width, value, one, two: ir.Resize(32, ir.Resize(width, value, one), two),
                *(widths, inner, st.booleans(), st.booleans()),
            ),
            st.builds(lambda value: ir.Repeat(32, ir.Resize(8, value)), inner),
            st.builds(ir.Select, st.just(32), st.sampled_from([ir.Valid(p.twin), ir.Valid(p.given)]), inner, inner),
        )

    return st.recursive(leaves, grown, max_leaves=8)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_what_is_known_of_an_index_is_so(data: st.DataObject) -> None:
    p = Indexed()
    answer = p.draft.header("answer", [32])
    [place] = p.draft.headers[answer].slots
    expressions = values(p)
    targets = st.sampled_from([p.first.slot, p.second.slot, p.first.slot, p.key.slot, p.draft.headers[p.twin].slots[0]])
    changes: st.SearchStrategy[ir.Statement] = st.one_of(
        st.builds(ir.Assign, targets, expressions),
        st.builds(ir.Assign, targets, expressions),
        st.sampled_from([ir.SetInvalid(p.given), ir.SetValid(p.given), ir.SetValid(p.twin), ir.SetInvalid(p.twin)]),
        st.sampled_from([ir.CopyHeader(p.given, p.twin), ir.CopyHeader(p.twin, p.given)]),
        st.builds(ir.ReadRegister, targets, st.just(p.draft.register(SIZE, 32)), expressions),
    )
    some = st.lists(changes, max_size=3)
    index = data.draw(expressions)
    ingress = numbered(
        [
            (data.draw(some), ir.Branch(ir.Valid(p.twin), 1, 2)),
            (data.draw(some), ir.Jump(2)),
            (
                [
                    *data.draw(some),
                    ir.SetValid(answer),
                    ir.Assign(place, index),
                    p.write(index),
                    ir.SetInvalid(p.given),
                ],
                ir.End(),
            ),
        ]
    )
    program = p.draft.program(
        parser=straight([ir.Extract(p.given)]), ingress=ingress, deparser=[answer], egress=straight([])
    )
    [*_, (_, _, _, bits)] = accesses(program, p.key.slot)
    for _ in range(3):
        frame = data.draw(st.binary(min_size=8, max_size=8))
        [(_, out)] = InterpretedSwitch(program, make_state(program)).process(0, frame, 0)
        actual, key = int.from_bytes(out[:4]), int.from_bytes(frame[:4])
        for number, bit in enumerate(bits):
            expected = {ZERO: 0, ONE: 1}.get(bit, key >> bit & 1 if bit >= 0 else actual >> number & 1)
            assert actual >> number & 1 == expected
