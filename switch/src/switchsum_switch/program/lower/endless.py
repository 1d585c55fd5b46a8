"""Loops that may never end get a counter: they are left after `MOST_ROUNDS` rounds.

A parser may come back to a state, and an action may have a `for` statement.  A loop that extracts a header, or skips
bytes, in every round ends with the packet.  Any other loop is counted where it begins.  A packet that goes round too
often is an error of the parser, ParserTimeout; in ingress and egress it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from .. import ir
from ..graph import GraphBuilder, targets
from ..ir import Op, Relation

MOST_ROUNDS: Final = 1 << 16
"""How often a packet may enter the loops that are counted.  BMv2 has no limit: such a packet keeps it for ever."""
_BITS: Final = 32


def bound_loops(program: ir.Program, timeout: int) -> ir.Program:
    """Return a program all of whose loops end; `timeout` is the number of the error ParserTimeout."""
    names, fields = program.intrinsics, program.fields
    home = fields[names.length].header
    rounds = ir.Field(_BITS, len(fields))
    port = fields[names.egress_spec].width
    dropped = [
        ir.Assign(names.egress_spec, ir.Const(port, program.drop_port & ((1 << port) - 1))),
        ir.Assign(names.mcast_grp, ir.Const(fields[names.mcast_grp].width, 0)),
    ]
    error = fields[names.parser_error].width
    failed = [ir.Assign(names.parser_error, ir.Const(error, timeout & ((1 << error) - 1)))]
    graphs: dict[str, Any] = {}
    for name, stop in (("parser", failed), ("ingress", dropped), ("egress", dropped)):
        graph: ir.Graph = getattr(program, name)
        if heads := _heads(program, graph):
            graphs[name] = _counted(graph, heads, rounds, stop)
    if not graphs:
        return program
    info = ir.FieldInfo(name=f"{program.headers[home].name}.rounds", header=home, width=_BITS, offset=0)
    headers = list(program.headers)
    headers[home] = replace(headers[home], slots=(*headers[home].slots, rounds.slot))
    return replace(program, fields=(*fields, info), headers=tuple(headers), **graphs)


def _heads(program: ir.Program, graph: ir.Graph) -> set[int]:
    """Return the blocks at which loops begin that need not come to the packet's end."""
    following = [() if _consumes(program, block) else targets(block.end) for block in graph]
    back = [(number, target) for number, ends in enumerate(following) for target in ends if target <= number]
    return {target for number, target in back if number in _reached(following, target)}


def _consumes(program: ir.Program, block: ir.Block) -> bool:
    """Return whether the packet has fewer bytes left behind a block than in front of it."""
    for statement in block.statements:
        match statement:
            case ir.Extract(header):
                info = program.headers[header]
                variable = 0 if info.variable is None else program.fields[info.variable].width
                if info.width > variable:
                    return True
            case ir.Advance(ir.Const(_, bits)) if bits:
                return True
    return False


def _reached(following: Sequence[Iterable[int]], start: int) -> set[int]:
    """Return the blocks that can be reached from a block, itself among them."""
    reached, waiting = {start}, [start]
    while waiting:
        new = set(following[waiting.pop()]) - reached
        reached |= new
        waiting += new
    return reached


def _counted(graph: ir.Graph, heads: set[int], rounds: ir.Field, stop: Sequence[ir.Statement]) -> ir.Graph:
    """Put a counter in front of some blocks; `stop` ends the graph when it has counted too far."""
    builder = GraphBuilder()
    for number, block in enumerate(graph):
        builder.new("" if number in heads else block.name)
    stopped = builder.add("error", list(stop), ir.End())
    step = ir.Assign(rounds.slot, ir.Binary(_BITS, Op.ADD, rounds, ir.Const(_BITS, 1)))
    goes_on = ir.Compare(Relation.LE, rounds, ir.Const(_BITS, MOST_ROUNDS))
    for number, block in enumerate(graph):
        if number in heads:
            body = builder.add(block.name, list(block.statements), block.end)
            builder.fill(number, [step], ir.Branch(goes_on, body, stopped))
        else:
            builder.fill(number, list(block.statements), block.end)
    return builder.finish()
