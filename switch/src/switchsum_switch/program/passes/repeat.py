"""Wide metadata that holds repeated words only, such as lane masks, becomes narrow metadata.

A program keeps `low`, the mask of all but the top bit of each lane, in a field of 2,048 bits, and sets it to a constant
for each lane format.  Each constant is a short word, repeated.  The pass makes the field as wide as the longest of
these words and repeats it where it is read: a word is kept in a register of the machine, and a vector instruction
spreads it.
"""

from __future__ import annotations

from dataclasses import replace

from .. import ir
from .analysis import GRAPHS, is_wide, written
from .rewrite import map_graphs, rebuild_program

PERIODS = (8, 16, 32, 64)
"""Widths of a word that vector instructions can repeat."""


def period_of(value: int, width: int) -> int | None:
    """Return the shortest of `PERIODS` with which a constant repeats; None if there is none."""
    # 11...1 of the full width, divided by 11...1 of one period, has a 1 at the start of each period: it repeats a word.
    for period in PERIODS:
        if width % period == 0:
            word = value & ((1 << period) - 1)
            if value == word * (((1 << width) - 1) // ((1 << period) - 1)):
                return period
    return None


def narrow_repeated(program: ir.Program) -> ir.Program:
    """Return a program in which such fields are narrow, and are repeated where they are read."""
    periods = _periods(program)
    if not periods:
        return program
    fields = list(program.fields)
    for slot, period in periods.items():
        fields[slot] = replace(fields[slot], width=period)

    def change(value: ir.Expr) -> ir.Expr:
        if isinstance(value, ir.Field) and value.slot in periods:
            return ir.Repeat(value.width, ir.Field(periods[value.slot], value.slot))
        return value

    changed = rebuild_program(replace(program, fields=tuple(fields)), change)
    return map_graphs(changed, lambda graph: tuple(_narrow_block(block, periods) for block in graph))


def _narrow_block(block: ir.Block, periods: dict[int, int]) -> ir.Block:
    def narrow(statement: ir.Statement) -> ir.Statement:
        match statement:
            case ir.Assign(slot, ir.Const(_, value)) if slot in periods:
                return ir.Assign(slot, ir.Const(periods[slot], value & ((1 << periods[slot]) - 1)))
        return statement

    return replace(block, statements=tuple(map(narrow, block.statements)))


def _periods(program: ir.Program) -> dict[int, int]:
    """Return for each such field the longest period of the constants that are written to it."""
    found: dict[int, int] = {}
    for slot, field in enumerate(program.fields):
        if program.headers[field.header].metadata and field.length is None and is_wide(program, slot):
            found[slot] = PERIODS[0]
    for name in GRAPHS:
        for block in getattr(program, name):
            for statement in block.statements:
                _note(program, statement, found)
    return found


def _note(program: ir.Program, statement: ir.Statement, found: dict[int, int]) -> None:
    match statement:
        case ir.Assign(slot, ir.Const(width, value)) if slot in found:
            period = period_of(value, width)
            if period is None:
                del found[slot]
            else:
                found[slot] = max(found[slot], period)
        case _:
            for slot in written(program, statement):
                found.pop(slot, None)
