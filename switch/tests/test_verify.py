"""Broken IR is refused: one mistake at a time in a program that is fine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchsum_switch.program import ir
from switchsum_switch.program.ir import Op, Relation
from switchsum_switch.program.lower import lower
from switchsum_switch.program.passes import narrow_repeated, split_carries
from switchsum_switch.program.reader import read_program
from switchsum_switch.program.verify import MalformedProgram, verify

from .conftest import PROGRAMS

BYTE = ir.Const(8, 1)
TRUE = ir.Const(1, 1)


@pytest.fixture(scope="module")
def program() -> ir.Program:
    return lower(read_program((PROGRAMS / "stateful.json").read_bytes()))


def slot(program: ir.Program, width: int) -> int:
    return next(number for number, field in enumerate(program.fields) if field.width == width)


def with_ingress(program: ir.Program, *statements: ir.Statement, end: ir.Terminator | None = None) -> ir.Program:
    return replace(program, ingress=(ir.Block("only", statements, end or ir.End()),))


def test_what_lowering_and_passes_make_is_well_formed() -> None:
    for path in sorted(PROGRAMS.glob("*.json")):
        lowered = verify(lower(read_program(path.read_bytes())))
        verify(split_carries(narrow_repeated(lowered)))


BROKEN_VALUES = [
    ir.Const(8, 256),
    ir.Const(8, -1),
    ir.Const(16, 1),
    ir.Field(8, 10**6),
    ir.Binary(8, Op.ADD, BYTE, ir.Const(9, 1)),
    ir.Binary(8, Op.SUB, ir.Const(9, 1), BYTE),
    ir.Select(8, BYTE, BYTE, BYTE),
    ir.Select(8, TRUE, BYTE, ir.Const(7, 1)),
    ir.Resize(8, ir.Const(4, 16)),
    ir.Resize(8, ir.Compare(Relation.EQ, BYTE, ir.Const(7, 1))),
    ir.Repeat(8, ir.Const(3, 1)),
    ir.AddLanes(8, 3, BYTE, BYTE),
    ir.AddLanes(8, 4, BYTE, ir.Const(4, 1)),
    ir.Param(8, 0, 0, 0),
    ir.Resize(8, ir.Valid(10**6)),
    ir.Resize(8, ir.Hash(16, "csum16", (ir.HashInput(ir.Const(4, 16), None),))),
    ir.Peek(8, 0),
]


@pytest.mark.parametrize("value", BROKEN_VALUES, ids=str)
def test_broken_expressions(program: ir.Program, value: ir.Expr) -> None:
    broken = with_ingress(program, ir.Assign(slot(program, 8), value))
    with pytest.raises(MalformedProgram, match="ingress, block 0"):
        verify(broken)


@pytest.mark.parametrize(
    "statement",
    [
        ir.Assign(10**6, BYTE),
        ir.SetValid(10**6),
        ir.Extract(0),
        ir.Require(BYTE),
        ir.Advance(BYTE),
        ir.ReadRegister(0, 99, BYTE),
        ir.WriteRegister(99, BYTE, BYTE),
        ir.WriteRegister(0, BYTE, BYTE),  # the register has one bit
        ir.Count(99, BYTE),
        ir.Random(0, BYTE, BYTE),
        ir.Say("{}", (BYTE,), ()),
        ir.Say("{}", (ir.Field(8, 10**6),), (False,)),
        ir.Claim("", BYTE),
    ],
    ids=str,
)
def test_broken_statements(program: ir.Program, statement: ir.Statement) -> None:
    with pytest.raises(MalformedProgram):
        verify(with_ingress(program, statement))


def test_metadata_has_no_validity(program: ir.Program) -> None:
    metadata = next(number for number, header in enumerate(program.headers) if header.metadata)
    with pytest.raises(MalformedProgram, match="is metadata"):
        verify(with_ingress(program, ir.SetInvalid(metadata)))


def test_headers_of_different_types_are_not_copied() -> None:
    program = lower(read_program((PROGRAMS / "headers.json").read_bytes()))
    names = {header.name: number for number, header in enumerate(program.headers)}
    verify(with_ingress(program, ir.CopyHeader(names["one"], names["two"])))
    with pytest.raises(MalformedProgram, match="different types"):
        verify(with_ingress(program, ir.CopyHeader(names["one"], names["first"])))


@pytest.mark.parametrize(
    "end", [ir.Jump(1), ir.Jump(-1), ir.Branch(BYTE, 0, 0), ir.Branch(TRUE, 0, 7), ir.Apply(0, (), ())]
)
def test_broken_terminators(program: ir.Program, end: ir.Terminator) -> None:
    with pytest.raises(MalformedProgram):
        verify(with_ingress(program, end=end))


def test_peeking_needs_what_is_there(program: ir.Program) -> None:
    target = slot(program, 8)

    def parser(*statements: ir.Statement) -> ir.Program:
        return replace(program, parser=(ir.Block("only", statements, ir.End()),))

    require, peek = ir.Require(ir.Const(32, 16)), ir.Assign(target, ir.Peek(8, 8))
    verify(parser(require, peek))
    for statements in ((peek,), (ir.Require(ir.Const(32, 15)), peek), (require, ir.Advance(ir.Const(8, 8)), peek)):
        with pytest.raises(MalformedProgram, match="not known to be there"):
            verify(parser(*statements))
