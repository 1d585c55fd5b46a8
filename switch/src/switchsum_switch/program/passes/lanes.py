"""Additions of wide values in which no carry leaves a lane become additions of lanes.

The problem: P4 has no vectors.  A program adds 64 lanes of 32 bits as one number of 2,048 bits, after it has masked the
top bit of each lane away: `(a & low) + (b & low)`.  As a number, such a sum has a carry that runs through 32 words; as
lanes, it is a few vector instructions.

The idea: find for each expression the bits that *may* be 1, by a forward analysis over the graph.  Let `A` and `B` be
these bits for the two operands.  Cut both into lanes of, say, 32 bits.  If in every lane the sum of A's part and B's
part fits the lane, no carry leaves any lane, whatever the values are: for each value of a lane is at most the number
whose bits may all be 1.  Then the sum of the numbers is the sums of the lanes.  The widest lane for which this holds is
taken.

Example with lanes of 4 bits and the mask 0b0111_0111: 7 + 7 = 14 fits 4 bits, so the addition is one of lanes.  For
lanes of 8 bits it holds as well (0x77 + 0x77 = 0xEE), and 8 is taken: fewer, wider lanes are no worse.

After a join of two ways, a bit may be 1 if it may be on one of them.  The order of blocks is reverse postorder, so that
one pass over a graph without loops is enough.
"""

from __future__ import annotations

from ...state.state import WIDE_BITS
from .. import ir
from ..graph import targets
from ..ir import Op
from .analysis import children, values_of, written
from .rewrite import Rewrite, map_graphs, rebuild_statement

LANES = (64, 32, 16, 8)
"""Lanes that vector instructions add, the widest first."""

_Bits = dict[int, int]
"""For each field of which something is known, the bits that may be 1.  A field that is missing may have any bits."""


def split_carries(program: ir.Program) -> ir.Program:
    """Return a program with AddLanes in the place of such additions."""
    return map_graphs(program, lambda graph: _split_graph(program, graph))


def _split_graph(program: ir.Program, graph: ir.Graph) -> ir.Graph:
    statements = (statement for block in graph for statement in block.statements)
    if not any(_adds_wide(value) for statement in statements for value in values_of(statement)):
        return graph
    if any(target <= number for number, block in enumerate(graph) for target in targets(block.end)):
        return graph  # one pass is not enough: a parser that comes back to a state, or an action with a loop
    entering: dict[int, _Bits] = {0: {}}
    made = []
    for number, block in enumerate(graph):
        bits = dict(entering.get(number, {}))
        split = []
        for statement in block.statements:
            split.append(rebuild_statement(statement, _splitter(bits)))
            _step(program, statement, bits)
        if isinstance(block.end, ir.Apply) and (colour := program.tables[block.end.table].colour) is not None:
            bits.pop(colour, None)
        made.append(ir.Block(block.name, tuple(split), block.end))
        for target in targets(block.end):
            known = entering.get(target)
            entering[target] = bits.copy() if known is None else _join(known, bits)
    return tuple(made)


def _adds_wide(value: ir.Expr) -> bool:
    is_wide_sum = isinstance(value, ir.Binary) and value.op is Op.ADD and value.width >= WIDE_BITS
    return is_wide_sum or any(map(_adds_wide, children(value)))


def _splitter(bits: _Bits) -> Rewrite:
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
        # The multiplier has a 1 at the start of each copy.
        case ir.Repeat(width, inner):
            word = _may(inner, bits)
            return word * (((1 << width) - 1) // ((1 << inner.width) - 1))
        case ir.Resize(_, inner, False):
            return _may(inner, bits) & full
    return full
