"""Every expression of the IR in native code, against the interpreter, on random values of many widths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from support.ir_programs import Draft, Expressions, Pair, frames, straight
from switchsum_switch.program import ir
from switchsum_switch.program.ir import Op, Relation

NARROW = (1, 3, 8, 9, 16, 23, 32, 33, 48, 63, 64, 65, 88, 96, 127)
WIDE = (128, 129, 160, 192, 255, 256, 257, 384, 512, 1000, 1023, 1024, 2040, 2048)
"""Some of whole bytes and some not; and where a field of odd width has gone before, none starts on a byte."""


def echo(values: Sequence[ir.Expr], draft: Draft, header: int) -> Pair:
    """Return a program that answers a frame with the values of expressions over the frame's fields."""
    answer = draft.header("answer", [value.width for value in values])
    slots = draft.headers[answer].slots
    program = draft.program(
        parser=straight([ir.Extract(header)]),
        ingress=straight(
            [
                ir.Assign(draft.intrinsics.egress_spec, ir.Const(9, 3)),
                ir.SetValid(answer),
                *(ir.Assign(slot, value) for slot, value in zip(slots, values, strict=False)),
                ir.SetInvalid(header),
            ]
        ),
        deparser=[answer, header],
    )
    return Pair(program)


def check(pair: Pair, draft: Draft, header: int, seed: int, count: int = 12) -> None:
    size = draft.headers[header].width // 8
    for frame in frames(np.random.default_rng(seed), size, count):
        [(port, answer)] = pair.process(1, frame + b"tail")
        assert port == 3
        assert answer.endswith(b"tail")


def of_widths(widths: list[int]) -> tuple[Draft, int, list[ir.Field]]:
    draft = Draft()
    header = draft.header("given", widths)
    return draft, header, [draft.field(slot) for slot in draft.headers[header].slots[: len(widths)]]


@pytest.mark.parametrize("width", NARROW + WIDE)
def test_every_binary_operator(width: int) -> None:
    draft, header, (a, b, amount) = of_widths([width, width, 12])
    shifts = (Op.SHL, Op.SHR, Op.SAR)
    values = [ir.Binary(width, op, a, b) for op in Op if op not in shifts]
    values += [ir.Binary(width, op, a, amount) for op in shifts]
    values += [ir.Binary(width, op, a, ir.Const(16, by)) for op in shifts for by in (0, 1, 8, width - 1, width)]
    check(echo(values, draft, header), draft, header, width)


@pytest.mark.parametrize("width", NARROW + WIDE)
def test_every_relation(width: int) -> None:
    draft, header, (a, b) = of_widths([width, width])
    one = ir.Binary(width, Op.AND, a, ir.Const(width, 1))
    values: list[ir.Expr] = [ir.Compare(relation, a, b) for relation in Relation]
    values += [ir.Compare(relation, a, a) for relation in Relation]
    values += [ir.Compare(relation, one, ir.Const(width, 0)) for relation in Relation]
    check(echo(values, draft, header), draft, header, width)


@pytest.mark.parametrize("width", NARROW + WIDE)
def test_select_resize_and_repeat(width: int) -> None:
    draft, header, (a, b, flag) = of_widths([width, width, 1])
    values: list[ir.Expr] = [ir.Select(width, flag, a, b), ir.Select(width, ir.Compare(Relation.LT, a, b), b, a)]
    for other in (1, 8, 32, 64, 100, 128, 136, 1001, 2048):
        values += [ir.Resize(other, a), ir.Resize(other, a, signed=True)]
    values += [ir.Resize(min(width, 16), ir.Binary(width, Op.SHR, a, ir.Const(16, width // 2)))]
    values += [ir.Repeat(width * times, a) for times in (1, 2, 3) if width * times <= 2048]
    check(echo(values, draft, header), draft, header, width)


@pytest.mark.parametrize("lane", [1, 2, 5, 8, 16, 17, 32, 64, 128])
def test_lanes_wrap_each_for_itself(lane: int) -> None:
    widths = [lane * count for count in (1, 2, 7, 16, 31)]
    draft, header, fields = of_widths([width for width in widths for _ in range(2)])
    values: list[ir.Expr] = []
    for width, a, b in zip(widths, fields[::2], fields[1::2], strict=True):
        low = ir.Const(width, ((1 << width) - 1) // ((1 << lane) - 1) * ((1 << lane) - 1 >> 1))
        values += [ir.AddLanes(width, lane, a, b), ir.AddLanes(width, lane, a, a)]
        values += [ir.AddLanes(width, lane, ir.Binary(width, Op.AND, a, low), ir.Binary(width, Op.AND, b, low))]
    check(echo(values, draft, header), draft, header, lane)


@pytest.mark.parametrize("algorithm", ["csum16", "crc16", "crc32", "crcCCITT", "xor16", "identity"])
@pytest.mark.parametrize("widths", [[16, 32], [8, 24, 48], [3, 9, 130], [8, 2048, 16, 1024, 7], [1]])
def test_hashes_of_what_is_valid_with_and_without_payload(algorithm: str, widths: list[int]) -> None:
    draft = Draft()
    first, second = draft.header("first", widths), draft.header("second", widths[::-1])
    flag = draft.header("flag", [8])
    bits = {"crc32": 32, "identity": 64}.get(algorithm, 16)
    fields = [draft.field(slot) for header in (first, second) for slot in draft.headers[header].slots]
    inputs = [ir.HashInput(value, draft.fields[value.slot].header) for value in fields]
    inputs += [ir.HashInput(ir.Const(8, 0x5A), None), ir.HashInput(fields[0], None), ir.HashInput(fields[-1], second)]
    answer = draft.header("answer", [bits] * 3)
    slots = draft.headers[answer].slots
    wanted = draft.field(draft.headers[flag].slots[0])

    def drop(header: int, bit: int) -> list[tuple[list[ir.Statement], ir.Terminator]]:
        chosen = ir.Resize(1, ir.Binary(8, Op.SHR, wanted, ir.Const(8, bit)))
        return [([], ir.Branch(chosen, 2 * bit + 1, 2 * bit + 2)), ([ir.SetInvalid(header)], ir.Jump(2 * bit + 2))]

    hashes: list[ir.Statement] = [
        ir.Assign(slots[0], ir.Hash(bits, algorithm, tuple(inputs))),
        ir.Assign(slots[1], ir.Hash(bits, algorithm, tuple(inputs), payload=True)),
        ir.Assign(slots[2], ir.Hash(bits, algorithm, tuple(inputs[:1]))),
    ]
    blocks = [*drop(first, 0), *drop(second, 1), ([ir.SetValid(answer), *hashes], ir.End())]
    program = draft.program(
        parser=straight([ir.Extract(header) for header in (flag, first, second)]),
        ingress=tuple(ir.Block("hash", tuple(statements), end) for statements, end in blocks),
        deparser=[answer],
    )
    pair, rng = Pair(program), np.random.default_rng(3)
    size = sum(draft.headers[header].width // 8 for header in (first, second))
    for choice in range(4):
        for tail in (b"", b"\xff", b"payload", rng.bytes(200), rng.bytes(201)):
            for body in frames(rng, size, 4):
                pair.process(0, bytes([choice]) + body + tail)


@pytest.mark.parametrize("seed", range(12))
def test_random_expressions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    draft = Draft()
    widths = [int(width) for width in rng.permutation(NARROW + WIDE)[:12]]
    header, other = draft.header("given", widths), draft.header("absent", [32])
    expressions = Expressions(draft, rng, draft.headers[header].slots, [header, other])
    values = [expressions.make(int(width), 3) for width in rng.choice(widths, 16)]
    check(echo(values, draft, header), draft, header, seed)
