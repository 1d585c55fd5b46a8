"""Builds graphs: blocks are numbered first and filled in any order, and `finish` tidies them up."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from . import ir

JOINED: Final = " + "
"""Stands between the names of blocks that were joined."""


class GraphBuilder:
    """Collects blocks by number; block 0 is the entry."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._blocks: dict[int, ir.Block] = {}

    def new(self, name: str) -> int:
        """Reserve the number of a block."""
        self._names.append(name)
        return len(self._names) - 1

    def fill(self, number: int, statements: list[ir.Statement], end: ir.Terminator) -> None:
        """Give a block its statements and its terminator."""
        self._blocks[number] = ir.Block(self._names[number], tuple(statements), end)

    def add(self, name: str, statements: list[ir.Statement], end: ir.Terminator) -> int:
        """Reserve a block and fill it."""
        number = self.new(name)
        self.fill(number, statements, end)
        return number

    def finish(self) -> ir.Graph:
        """Return the graph with chains of blocks joined, without unreachable blocks, in reverse postorder.

        In reverse postorder a block comes before all that follow it, unless there is a loop: parsers have
        some, and `for` in actions.  So a forward analysis over the blocks in order needs one pass where there is none
        (`passes/lanes.py`).
        """
        blocks = self._blocks
        if not blocks:
            return (ir.Block("empty", (), ir.End()),)
        order = _reverse_postorder(blocks)
        predecessors: dict[int, int] = {}
        for number in order:
            for target in targets(blocks[number].end):
                predecessors[target] = predecessors.get(target, 0) + 1
        joined: dict[int, ir.Block] = {}
        gone: set[int] = set()
        for number in order:
            if number in gone:
                continue
            # A block with one predecessor, which jumps to it, is appended to that predecessor.
            parts = [blocks[number]]
            while isinstance(jump := parts[-1].end, ir.Jump) and predecessors[jump.target] == 1 and jump.target:
                gone.add(jump.target)
                parts.append(blocks[jump.target])
            statements = tuple(statement for part in parts for statement in part.statements)
            name = JOINED.join(part.name for part in parts if part.name)
            joined[number] = ir.Block(name, statements, parts[-1].end)
        order = _reverse_postorder(joined)
        renumber = {number: index for index, number in enumerate(order)}
        return tuple(replace(joined[number], end=_retarget(joined[number].end, renumber)) for number in order)


def targets(end: ir.Terminator) -> tuple[int, ...]:
    """Return the blocks that may follow a terminator."""
    match end:
        case ir.Jump(target):
            return (target,)
        case ir.Branch(_, then, other):
            return (then, other)
        case ir.Apply(_, on_hit, on_miss):
            return on_hit + on_miss
    return ()


def _retarget(end: ir.Terminator, numbers: dict[int, int]) -> ir.Terminator:
    match end:
        case ir.Jump(target):
            return ir.Jump(numbers[target])
        case ir.Branch(condition, then, other):
            return ir.Branch(condition, numbers[then], numbers[other])
        case ir.Apply(table, on_hit, on_miss):
            return ir.Apply(
                table, tuple(numbers[target] for target in on_hit), tuple(numbers[target] for target in on_miss)
            )
    return end


def _reverse_postorder(blocks: dict[int, ir.Block]) -> list[int]:
    """Return the reachable blocks in reverse postorder."""
    # Not recursive: a graph may have thousands of blocks in a row.
    done: list[int] = []
    seen = {0}
    stack = [(0, iter(targets(blocks[0].end)))]
    while stack:
        number, following = stack[-1]
        for target in following:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(targets(blocks[target].end))))
                break
        else:
            done.append(number)
            stack.pop()
    return done[::-1]
