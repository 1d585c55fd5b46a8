"""Statements, control flow and the state behind them in native code, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from support.ir_programs import Draft, Expressions, Pair, frames, numbered, straight
from switchsum_switch.messages.matches import Exact, MatchKind
from switchsum_switch.program import ir
from switchsum_switch.program.ir import Op, Relation
from switchsum_switch.state.tables import ActionSpec, Entry, KeySpec, ParamSpec, TableSpec

WIDTHS = (1, 8, 9, 32, 48, 64, 88, 127, 128, 160, 257, 512, 1024, 2048)


@pytest.mark.parametrize("width", WIDTHS)
def test_registers_of_every_width_read_and_write_within_their_bounds(width: int) -> None:
    draft = Draft()
    given = draft.header("given", [8, 8, width])
    answer = draft.header("answer", [width, width])
    register = draft.register(5, width)
    read, write, value = (draft.field(slot) for slot in draft.headers[given].slots[:3])
    before, after = draft.headers[answer].slots[:2]
    program = draft.program(
        parser=straight([ir.Extract(given)]),
        ingress=straight(
            [
                ir.SetValid(answer),
                ir.ReadRegister(before, register, read),
                ir.WriteRegister(register, write, ir.Binary(width, Op.XOR, value, draft.field(before))),
                ir.ReadRegister(after, register, read),
            ]
        ),
        deparser=[answer, given],
    )
    pair, rng = Pair(program), np.random.default_rng(width)
    for frame in frames(rng, draft.headers[given].width // 8, 40):
        for start in (bytes(rng.integers(0, 7, 2, np.uint8)), frame[:2], b"\x04\x05", b"\x05\x04"):
            pair.process(0, start + frame[2:])
    pair.check_state()


def test_a_value_read_from_a_register_stays_when_the_register_changes() -> None:
    """Also where the change comes blocks later, in another graph, or while the copies of a packet leave."""
    width = 512
    draft = Draft()
    given = draft.header("given", [8, width])
    answer = draft.header("answer", [width, width, width])
    scratch = draft.header("scratch", [width, width], metadata=True)
    register = draft.register(4, width)
    choice, value = (draft.field(slot) for slot in draft.headers[given].slots)
    first, second, third = draft.headers[answer].slots
    kept, other = draft.headers[scratch].slots
    flag = ir.Compare(Relation.LT, choice, ir.Const(8, 128))
    index = ir.Resize(2, choice)
    program = draft.program(
        parser=straight([ir.Extract(given)]),
        ingress=numbered(
            [
                ([ir.SetValid(answer), ir.ReadRegister(kept, register, index)], ir.Branch(flag, 1, 2)),
                (
                    [
                        ir.ReadRegister(first, register, ir.Const(2, 1)),
                        ir.WriteRegister(register, index, value),
                        ir.Assign(second, draft.field(kept)),
                        ir.ReadRegister(third, register, index),
                    ],
                    ir.Jump(3),
                ),
                ([ir.ReadRegister(other, register, ir.Const(2, 2))], ir.Jump(3)),
                ([ir.Assign(draft.intrinsics.mcast_grp, ir.Const(16, 1))], ir.End()),
            ]
        ),
        egress=straight(
            [
                ir.WriteRegister(
                    register, ir.Const(2, 1), ir.Binary(width, Op.ADD, draft.field(first), draft.field(kept))
                ),
                ir.Assign(second, ir.Binary(width, Op.OR, draft.field(second), draft.field(other))),
                ir.WriteRegister(register, ir.Const(2, 2), draft.field(second)),
                ir.Assign(third, ir.Binary(width, Op.ADD, draft.field(third), draft.field(kept))),
            ]
        ),
        deparser=[answer],
    )
    pair = Pair(program)
    for state in (pair.state, pair.expected_state):
        state.multicast.set(1, [(1, 0), (1, 1), (2, 0)])
    for frame in frames(np.random.default_rng(1), 1 + width // 8, 60):
        assert len(pair.process(0, frame)) == 3
    pair.check_state()


@pytest.mark.parametrize("seed", range(10))
def test_random_statements_in_random_graphs(seed: int) -> None:
    """Wide and narrow fields, registers, headers that come and go, in ingress and in each copy's egress."""
    rng = np.random.default_rng(1000 + seed)
    draft = Draft()
    widths = [int(width) for width in rng.choice([8, 32, 128, 256, 257, 512], 6)]
    given, twin, more = (draft.header(name, widths) for name in ("given", "twin", "more"))
    metadata = draft.header("metadata", widths, metadata=True)
    headers = [given, twin, more]
    registers = [draft.register(3, width) for width in sorted(set(widths))]
    counter = draft.counter(6)
    slots = [slot for header in (*headers, metadata) for slot in draft.headers[header].slots[: len(widths)]]
    expressions = Expressions(draft, rng, slots, headers)

    def statement() -> ir.Statement:
        slot = int(rng.choice(slots))
        width = draft.fields[slot].width
        register = next(index for index in registers if draft.registers[index].width == width)
        match rng.choice(["assign", "assign", "chain", "read", "write", "valid", "invalid", "copy", "count", "random"]):
            case "chain":
                same = [other for other in slots if draft.fields[other].width == width]
                left, right = (draft.field(int(rng.choice(same))) for _ in range(2))
                return ir.Assign(slot, ir.Binary(width, [Op.AND, Op.OR, Op.XOR][rng.integers(3)], left, right))
            case "read":
                return ir.ReadRegister(slot, register, expressions.make(2, 1))
            case "write":
                return ir.WriteRegister(register, expressions.make(2, 1), expressions.make(width, 2))
            case "valid":
                return ir.SetValid(int(rng.choice(headers)))
            case "invalid":
                return ir.SetInvalid(int(rng.choice(headers)))
            case "copy":
                return ir.CopyHeader(*(int(header) for header in rng.choice(headers, 2)))
            case "count":
                return ir.Count(counter, expressions.make(3, 1))
            case "random":
                narrow = [other for other in slots if draft.fields[other].width <= 32]
                if narrow:
                    return ir.Random(int(rng.choice(narrow)), expressions.make(64, 1), expressions.make(64, 1))
        return ir.Assign(slot, expressions.make(width, 2))

    def graph(blocks: int, *, extra: list[ir.Statement]) -> ir.Graph:
        made: list[tuple[list[ir.Statement], ir.Terminator]] = []
        for number in range(blocks):
            end: ir.Terminator = ir.End()
            if number + 1 < blocks:
                then, other = (int(target) for target in rng.integers(number + 1, blocks, 2))
                end = ir.Branch(expressions.make(1, 2), then, other)
            made.append(([statement() for _ in range(rng.integers(1, 7))], end))
        made[-1] = ([*made[-1][0], *extra], ir.End())
        return numbered(made)

    group = ir.Assign(draft.intrinsics.mcast_grp, ir.Const(16, 9))
    program = draft.program(
        parser=straight([ir.Extract(given), ir.Extract(more)]),
        verify_checksums=graph(2, extra=[]),
        ingress=graph(6, extra=[group]),
        egress=graph(4, extra=[]),
        update=graph(2, extra=[]),
        deparser=headers,
    )
    pair = Pair(program)
    for state in (pair.state, pair.expected_state):
        state.multicast.set(9, [(1, 4), (2, 5), (3, 6)])
    for frame in frames(rng, 2 * draft.headers[given].width // 8, 30):
        pair.process(5, frame + b"payload", now_us=77)
    pair.check_state()


def test_counters_count_packets_and_bytes_within_their_bounds() -> None:
    draft = Draft()
    given = draft.header("given", [8, 200])
    counter = draft.counter(6)
    narrow, wide = (draft.field(slot) for slot in draft.headers[given].slots)
    counts = [ir.Count(counter, narrow), ir.Count(counter, ir.Resize(3, narrow)), ir.Count(counter, wide)]
    pair = Pair(draft.program(parser=straight([ir.Extract(given)]), ingress=straight(counts)))
    for first in range(12):
        pair.process(0, bytes([first]) + bytes(24) + bytes([first]) + bytes(first))
    pair.check_state()
    assert pair.state.counters["counter0"].read(5)[0] == 3


@pytest.mark.parametrize("width", [1, 8, 33, 64])
def test_random_draws_come_in_the_same_order(width: int) -> None:
    draft = Draft()
    answer = draft.header("answer", [width, width, 64])
    a, b, c = draft.headers[answer].slots[:3]
    full = (1 << 64) - 1
    draws = [
        ir.Random(a, ir.Const(64, 0), ir.Const(64, (1 << width) - 1)),
        ir.Random(b, ir.Const(64, 5), ir.Const(64, 4)),
        ir.Random(b, ir.Const(64, 1), ir.Const(64, 1)),
        ir.Random(c, ir.Const(64, 0), ir.Const(64, full)),
    ]
    pair = Pair(draft.program(ingress=straight([ir.SetValid(answer), *draws]), deparser=[answer]))
    made = {pair.process(0, b"")[0][1] for _ in range(50)}
    assert len(made) == 50
    pair.check_state()


def test_the_parser_walks_a_stack_and_stops_where_the_frame_ends() -> None:
    draft = Draft()
    members = [draft.header(f"member{index}", [1, 7, 24, 128]) for index in range(4)]
    count = draft.headers[draft.header("count", [32], metadata=True)].slots[0]
    blocks: list[tuple[list[ir.Statement], ir.Terminator]] = [([ir.Require(ir.Const(32, 1))], ir.Jump(1))]
    for index, member in enumerate(members):
        here = len(blocks)
        is_here = ir.Compare(Relation.EQ, draft.field(count), ir.Const(32, index))
        more = ir.Compare(Relation.EQ, draft.field(draft.headers[member].slots[0]), ir.Const(1, 1))
        step: list[ir.Statement] = [ir.Extract(member), ir.Assign(count, ir.Const(32, index + 1))]
        blocks += [([], ir.Branch(is_here, here + 1, here + 2)), (step, ir.Branch(more, 1, 9))]
    blocks.append(([], ir.End()))
    program = draft.program(
        parser=numbered(blocks),
        ingress=straight([ir.Assign(draft.fields.index(draft.fields[count]), ir.Const(32, 7))]),
        deparser=members[::-1],
    )
    pair, rng = Pair(program), np.random.default_rng(8)
    size = draft.headers[members[0]].width // 8
    for length in range(4 * size + 3):
        for more_bits in range(8):
            frame = bytearray(rng.bytes(length))
            for index in range(0, length, size):
                frame[index] = (frame[index] & 0x7F) | (more_bits >> (index // size) & 1) << 7
            pair.process(1, bytes(frame))


def test_a_repeated_word_follows_its_field() -> None:
    draft = Draft()
    first, second = draft.header("first", [32]), draft.header("second", [32])
    answer = draft.header("answer", [256] * 5)
    word, other = (draft.headers[header].slots[0] for header in (first, second))
    spread = ir.Repeat(256, draft.field(word))
    changes: list[ir.Statement] = [
        ir.Assign(word, ir.Binary(32, Op.ADD, draft.field(word), ir.Const(32, 1))),
        ir.CopyHeader(first, second),
        ir.Random(word, ir.Const(64, 0), ir.Const(64, 0xFFFFFFFF)),
        ir.SetInvalid(first),
        ir.SetValid(first),
    ]
    statements: list[ir.Statement] = [ir.SetValid(answer)]
    for slot, change in zip(draft.headers[answer].slots, changes, strict=True):
        statements += [ir.Assign(slot, spread), change]
    inverted = ir.Binary(256, Op.XOR, spread, draft.field(draft.headers[answer].slots[0]))
    statements.append(ir.Assign(draft.headers[answer].slots[0], inverted))
    parser = [ir.Extract(first), ir.Extract(first), ir.Extract(second)]
    program = draft.program(parser=straight(parser), ingress=straight(statements), deparser=[first, second, answer])
    pair = Pair(program)
    for frame in frames(np.random.default_rng(6), 12, 20):
        pair.process(0, frame)
    assert other != word


def test_two_uses_of_a_table_each_have_their_parameters() -> None:
    draft = Draft()
    given = draft.header("given", [8])
    answer = draft.header("answer", [16])
    key, out = draft.field(draft.headers[given].slots[0]), draft.headers[answer].slots[0]
    spec = TableSpec(
        name="table",
        keys=(KeySpec(name="key", width=8, kind=MatchKind.EXACT),),
        actions=(ActionSpec(name="add", params=(ParamSpec(name="amount", width=16),)),),
        size=4,
    )
    entry = Entry(match=(Exact(7),), action="add", params=(100,))
    draft.tables.append(ir.TableInfo(spec=spec, keys=(key,), default=("add", (1,)), entries=(entry,)))
    add = ir.Assign(out, ir.Binary(16, Op.ADD, draft.field(out), ir.Param(16, 0, 0, 0)))
    again = ir.Compare(Relation.LT, draft.field(out), ir.Const(16, 2))
    program = draft.program(
        parser=straight([ir.Extract(given)]),
        ingress=numbered(
            [
                ([ir.SetValid(answer)], ir.Apply(0, (3,), (1,))),
                ([ir.Assign(key.slot, ir.Const(8, 7))], ir.Apply(0, (2,), (2,))),
                ([], ir.Jump(3)),
                ([add], ir.Branch(again, 4, 4)),
                ([], ir.End()),
            ]
        ),
        deparser=[answer, given],
    )
    pair = Pair(program)
    assert [pair.process(0, bytes([value]))[0][1] for value in (7, 8)] == [bytes([0, 100, 7])] * 2


def test_peeking_and_advancing() -> None:
    draft = Draft()
    skipped = draft.header("skipped", [8])
    answer = draft.header("answer", [3, 13, 64, 200])
    slots = draft.headers[answer].slots
    size = draft.headers[skipped].slots[0]
    bits = ir.Binary(16, Op.SHL, ir.Resize(16, draft.field(size)), ir.Const(8, 3))
    peeks = [ir.Peek(3, 0), ir.Peek(13, 5), ir.Peek(64, 17), ir.Peek(200, 3)]
    program = draft.program(
        parser=straight(
            [
                ir.Extract(skipped),
                ir.Require(bits),
                ir.Advance(bits),
                ir.Require(ir.Const(16, 203)),
                *(ir.Assign(slot, peek) for slot, peek in zip(slots, peeks, strict=False)),
            ]
        ),
        ingress=numbered(
            [
                ([], ir.Branch(ir.Compare(Relation.EQ, draft.field(draft.intrinsics.parser_error), ERROR), 2, 1)),
                ([ir.SetValid(answer)], ir.Jump(2)),
                ([], ir.End()),
            ]
        ),
        deparser=[answer, skipped],
    )
    pair, rng = Pair(program), np.random.default_rng(2)
    for length in range(60):
        for skip in (0, 1, 5, 20, 58, 255):
            pair.process(1, bytes([skip]) + rng.bytes(length))


ERROR = ir.Const(32, 1)


def test_copies_do_not_see_what_egress_did_to_each_other() -> None:
    draft = Draft()
    given = draft.header("given", [16, 16, 256])
    tag = draft.header("tag", [16])
    number, other, wide = (draft.field(slot) for slot in draft.headers[given].slots)
    instance = draft.field(draft.intrinsics.egress_rid)
    changed: list[ir.Statement] = [
        ir.Assign(number.slot, ir.Binary(16, Op.ADD, number, instance)),
        ir.Assign(wide.slot, ir.Binary(256, Op.ADD, wide, ir.Resize(256, number))),
        ir.SetValid(tag),
        ir.Assign(draft.headers[tag].slots[0], ir.Resize(16, draft.field(draft.intrinsics.instance_type))),
        ir.Assign(draft.intrinsics.cut, ir.Resize(33, other)),
    ]
    drop = ir.Compare(Relation.EQ, ir.Resize(2, instance), ir.Const(2, 3))
    program = draft.program(
        parser=straight([ir.Extract(given)]),
        ingress=straight(
            [
                ir.Assign(draft.intrinsics.mcast_grp, other),
                ir.Assign(draft.intrinsics.egress_spec, ir.Resize(9, number)),
            ]
        ),
        egress=numbered(
            [
                (changed, ir.Branch(drop, 1, 2)),
                ([ir.Assign(draft.intrinsics.egress_spec, ir.Const(9, 511))], ir.Jump(2)),
                ([], ir.End()),
            ]
        ),
        deparser=[tag, given],
    )
    pair, rng = Pair(program), np.random.default_rng(4)
    for state in (pair.state, pair.expected_state):
        state.multicast.set(1, [(port, port + 1) for port in range(6)])
        state.multicast.set(50, [(7, 65535)])
        state.multicast.set(65535, [(510, 0)])
    for group in (0, 1, 2, 20, 50, 65535):
        for spec in (0, 1, 510, 511, 512, 1023):
            pair.process(2, spec.to_bytes(2) + group.to_bytes(2) + rng.bytes(32 + 20))
    assert len(pair.process(2, bytes([0, 9, 0, 1]) + bytes(32))) == 5
