"""Additions of wide values in which no carry leaves a lane become additions lane by lane.

A forward analysis finds for each wide field the bits that may be 1.  Where the largest values that two lanes may have
add up to less than the lane holds, for every lane, the whole addition is that of its lanes.
"""

from __future__ import annotations

from switchsum.switch import ir
from switchsum.switch.ir import Op
from switchsum.switch.lower.graph import targets
from switchsum.switch.passes.analysis import written
from switchsum.switch.passes.rewrite import Rewrite, map_graphs, rebuild_statement
from switchsum.switch.state import WIDE_BITS

LANES = (64, 32, 16, 8)
"""Lanes that vector instructions add, the widest first."""

_Bits = dict[int, int]
"""For each metadata field that is known: the bits that may be 1."""


def split_carries(program: ir.Program) -> ir.Program:
    """Return a program with AddLanes in place of such additions."""
    return map_graphs(program, lambda graph: _split_graph(program, graph))


def _split_graph(program: ir.Program, graph: ir.Graph) -> ir.Graph:
    if not any(_adds_wide(statement) for block in graph for statement in block.statements):
        return graph
    if any(target <= number for number, block in enumerate(graph) for target in targets(block.end)):
        return graph  # a loop of the parser; nothing is gained there
    entering: dict[int, _Bits] = {0: {}}
    made = []
    for number, block in enumerate(graph):
        bits = dict(entering.get(number, {}))
        statements = []
        for statement in block.statements:
            change = _splitter(program, bits)
            statements.append(rebuild_statement(statement, change))
            _step(program, statement, bits)
        if isinstance(block.end, ir.Apply) and (colour := program.tables[block.end.table].colour) is not None:
            bits.pop(colour, None)
        made.append(ir.Block(block.name, tuple(statements), block.end))
        for target in targets(block.end):
            known = entering.get(target)
            entering[target] = bits.copy() if known is None else _join(known, bits)
    return tuple(made)


def _adds_wide(statement: ir.Statement) -> bool:
    found = False

    def look(value: ir.Expr) -> ir.Expr:
        nonlocal found
        found = found or (isinstance(value, ir.Binary) and value.op is Op.ADD and value.width >= WIDE_BITS)
        return value

    rebuild_statement(statement, look)
    return found


def _splitter(program: ir.Program, bits: _Bits) -> Rewrite:
    def change(value: ir.Expr) -> ir.Expr:
        if isinstance(value, ir.Binary) and value.op is Op.ADD and value.width >= WIDE_BITS:
            left, right = _may(value.left, bits), _may(value.right, bits)
            for lane in LANES:
                if value.width % lane == 0 and _no_carry(left, right, lane, value.width):
                    return ir.AddLanes(value.width, lane, value.left, value.right)
        return value

    return change


def _no_carry(left: int, right: int, lane: int, width: int) -> bool:
    mask = (1 << lane) - 1
    return all((left >> shift & mask) + (right >> shift & mask) <= mask for shift in range(0, width, lane))


def _step(program: ir.Program, statement: ir.Statement, bits: _Bits) -> None:
    match statement:
        case ir.Assign(slot, value):
            bits[slot] = _may(value, bits)
        case _:
            for slot in written(program, statement):
                bits.pop(slot, None)


def _join(one: _Bits, other: _Bits) -> _Bits:
    return {slot: one[slot] | other[slot] for slot in one.keys() & other.keys()}


def _may(value: ir.Expr, bits: _Bits) -> int:
    """Return the bits of an expression that may be 1."""
    full = (1 << value.width) - 1
    match value:
        case ir.Const(_, number):
            return number
        case ir.Field(_, slot):
            return bits.get(slot, full)
        case ir.Binary(_, Op.AND, left, right):
            return _may(left, bits) & _may(right, bits)
        case ir.Binary(_, Op.OR | Op.XOR, left, right):
            return _may(left, bits) | _may(right, bits)
        case ir.Select(_, _, then, other):
            return _may(then, bits) | _may(other, bits)
        case ir.Repeat(width, inner):
            word = _may(inner, bits)
            return word * (((1 << width) - 1) // ((1 << inner.width) - 1))
        case ir.Resize(_, inner, False):
            return _may(inner, bits) & full
    return full
