"""Tests of wide values whose outcomes gather in one narrow field become one test of what gathers in a wide field.

Where a program goes through its chunks with `flags = flags | (x != y ? bit : 0)`, each test would be a loop of its own.
Gathered differences are computed in the loops that compute the chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from switchsum.switch import ir
from switchsum.switch.ir import Op, Relation
from switchsum.switch.passes.analysis import reads, written
from switchsum.switch.passes.rewrite import map_graphs
from switchsum.switch.state import WIDE_BITS

_Kind = tuple[int, int, int]
"""Of a test: the narrow field, the bits it may get, the width of what is compared."""


def gather_tests(program: ir.Program) -> ir.Program:
    """Return a program in which such tests of one block are one."""
    home = next((number for number, header in enumerate(program.headers) if header.metadata), None)
    if home is None:
        return program
    fields, first = list(program.fields), len(program.fields)

    def gather(block: ir.Block) -> ir.Block:
        made: dict[int, tuple[ir.Statement, ...]] = {}
        for (target, bits, width), places in _runs(program, block.statements):
            new = ir.Field(width, len(fields))
            fields.append(ir.FieldInfo(name=f"gathered.{new.slot}", header=home, width=width, offset=0))
            for place in places:
                difference = _difference(block.statements[place])
                if place != places[0]:
                    difference = ir.Binary(width, Op.OR, new, difference)
                made[place] = (ir.Assign(new.slot, difference),)
            old = ir.Field(program.fields[target].width, target)
            found = ir.Compare(Relation.NE, new, ir.Const(width, 0))
            gained = ir.Select(old.width, found, ir.Const(old.width, bits), ir.Const(old.width, 0))
            made[places[-1]] += (ir.Assign(target, ir.Binary(old.width, Op.OR, old, gained)),)
        if not made:
            return block
        statements = [made.get(place, (statement,)) for place, statement in enumerate(block.statements)]
        return replace(block, statements=tuple(chain.from_iterable(statements)))

    made = map_graphs(program, lambda graph: tuple(map(gather, graph)))
    headers = list(program.headers)
    headers[home] = replace(headers[home], slots=(*headers[home].slots, *range(first, len(fields))))
    return replace(made, fields=tuple(fields), headers=tuple(headers))


def _runs(program: ir.Program, statements: tuple[ir.Statement, ...]) -> Iterator[tuple[_Kind, list[int]]]:
    """Walk the places of tests that can be made at the last of them: until then, nobody else asks for the field."""
    running: dict[_Kind, list[int]] = {}
    for place, statement in enumerate(statements):
        kind = _kind(statement)
        if isinstance(statement, ir.Extract | ir.Require):  # may end the graph
            yield from running.items()
            running = {}
        touched = reads(program, statement) | written(program, statement)
        for other in [other for other in running if other != kind and other[0] in touched]:
            yield other, running.pop(other)
        if kind is not None:
            running.setdefault(kind, []).append(place)
    yield from running.items()


def _kind(statement: ir.Statement) -> _Kind | None:
    match statement:
        case ir.Assign(
            slot,
            ir.Binary(
                _,
                Op.OR,
                ir.Field(_, same),
                ir.Select(_, ir.Compare(Relation.NE, left, _), ir.Const(_, bits), ir.Const(_, 0)),
            ),
        ) if slot == same and left.width >= WIDE_BITS:
            return slot, bits, left.width
    return None


def _difference(statement: ir.Statement) -> ir.Expr:
    """Return what is not 0 where the test is true."""
    match statement:
        case ir.Assign(_, ir.Binary(_, _, _, ir.Select(_, ir.Compare(_, left, right), _, _))):
            return ir.Binary(left.width, Op.XOR, left, right)
    raise TypeError(statement)
