"""Many tests of wide values that set the same flag become one test.

The problem: for each of its chunks, a program says `flags = flags | (x != y ? OVERFLOW : 0)` with wide `x` and `y`.
Each comparison of 2,048 bits is a loop over 256 bytes, and needs its result at once, for a narrow field.

The idea: "x != y for one of the chunks" is the same as "the bitwise or of all x ^ y is not 0".  The pass makes a new
wide field, assigns or ors each difference into it where the test was, and tests it once, where the last test was.  The
differences are then wide assignments, which `codegen/wide.py` computes in the kernels of the chunks themselves.

Why it is right: the tests of a run set the same bits of the same field, and or is commutative.  The field is not read
or written by any other statement between the first and the last of them, and the graph cannot end there.

Example, for two chunks::

    flags = flags | (a != b ? 2 : 0);               wide = a ^ b;
    flags = flags | (c != d ? 2 : 0);       ->      wide = wide | (c ^ d);
                                                    flags = flags | (wide != 0 ? 2 : 0);
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from ...state.state import WIDE_BITS
from .. import ir
from ..ir import Op, Relation
from .analysis import reads, written
from .rewrite import map_graphs

_Kind = tuple[int, int, int]
"""Kind of a test: the slot of the narrow field, the bits that the test may set, and the width of the compared values.
Tests of the same kind can be one."""


def gather_tests(program: ir.Program) -> ir.Program:
    """Return a program in which the tests of one kind in one block are one test."""
    # The new wide fields need a header; that of any metadata will do.
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
    """Yield runs of tests of one kind, by their places: between them no other statement uses the narrow field."""
    running: dict[_Kind, list[int]] = {}
    for place, statement in enumerate(statements):
        kind = _kind(statement)
        if isinstance(statement, ir.Extract | ir.Require):  # may end the graph
            yield from running.items()
            running = {}
        touched = reads(program, statement) | written(program, statement)
        # A statement that uses the flag field ends the runs for it, but not the run that it belongs to itself.
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
    """Return an expression that is not 0 if and only if the test is true."""
    match statement:
        case ir.Assign(_, ir.Binary(_, _, _, ir.Select(_, ir.Compare(_, left, right), _, _))):
            return ir.Binary(left.width, Op.XOR, left, right)
    raise TypeError(statement)
