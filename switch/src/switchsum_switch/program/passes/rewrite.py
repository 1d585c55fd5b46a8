"""Rebuilds programs with other expressions in them; the IR's nodes are frozen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .. import ir

Rewrite = Callable[[ir.Expr], ir.Expr]


def rebuild(value: ir.Expr, change: Rewrite) -> ir.Expr:
    """Return an expression in which `change` has been applied to every part, innermost parts first."""
    match value:
        case ir.Binary(width, op, left, right):
            return change(ir.Binary(width, op, rebuild(left, change), rebuild(right, change)))
        case ir.Compare(relation, left, right):
            return change(ir.Compare(relation, rebuild(left, change), rebuild(right, change)))
        case ir.AddLanes(width, lane, left, right):
            return change(ir.AddLanes(width, lane, rebuild(left, change), rebuild(right, change)))
        case ir.Select(width, condition, then, other):
            parts = rebuild(condition, change), rebuild(then, change), rebuild(other, change)
            return change(ir.Select(width, *parts))
        case ir.Resize(width, inner, signed):
            return change(ir.Resize(width, rebuild(inner, change), signed))
        case ir.Repeat(width, inner):
            return change(ir.Repeat(width, rebuild(inner, change)))
        case ir.Hash(width, algorithm, inputs, payload):
            made = tuple(
                ir.HashInput(rebuild(part.value, change), part.header, part.bits and rebuild(part.bits, change))
                for part in inputs
            )
            return change(ir.Hash(width, algorithm, made, payload))
    return change(value)


def rebuild_statement(statement: ir.Statement, change: Rewrite) -> ir.Statement:
    """Return a statement in which `change` has been applied to every expression."""
    match statement:
        case ir.Assign(slot, value):
            return ir.Assign(slot, rebuild(value, change))
        case ir.Extract(header, bits) if bits is not None:
            return ir.Extract(header, rebuild(bits, change))
        case ir.Require(bits):
            return ir.Require(rebuild(bits, change))
        case ir.Advance(bits):
            return ir.Advance(rebuild(bits, change))
        case ir.ReadRegister(slot, register, index):
            return ir.ReadRegister(slot, register, rebuild(index, change))
        case ir.WriteRegister(register, index, value):
            return ir.WriteRegister(register, rebuild(index, change), rebuild(value, change))
        case ir.Count(counter, index):
            return ir.Count(counter, rebuild(index, change))
        case ir.ExecuteMeter(slot, meter, index):
            return ir.ExecuteMeter(slot, meter, rebuild(index, change))
        case ir.Random(slot, low, high):
            return ir.Random(slot, rebuild(low, change), rebuild(high, change))
        case ir.Learn(digest, values):
            return ir.Learn(digest, tuple(rebuild(value, change) for value in values))
    return statement


def rebuild_program(program: ir.Program, change: Rewrite) -> ir.Program:
    """Return a program in which `change` has been applied to every expression."""

    def block(old: ir.Block) -> ir.Block:
        end = old.end
        if isinstance(end, ir.Branch):
            end = ir.Branch(rebuild(end.condition, change), end.then, end.other)
        statements = tuple(rebuild_statement(statement, change) for statement in old.statements)
        return ir.Block(old.name, statements, end)

    tables = tuple(_rebuild_table(table, change) for table in program.tables)
    return map_graphs(replace(program, tables=tables), lambda graph: tuple(map(block, graph)))


def _rebuild_table(table: ir.TableInfo, change: Rewrite) -> ir.TableInfo:
    keys = tuple(rebuild(key, change) for key in table.keys)
    selector = None if table.selector is None else rebuild(table.selector, change)
    assert selector is None or isinstance(selector, ir.Hash)
    return replace(table, keys=keys, selector=selector)


def map_graphs(program: ir.Program, change: Callable[[ir.Graph], ir.Graph]) -> ir.Program:
    """Return a program in which `change` has been applied to every graph."""
    return replace(
        program,
        parser=change(program.parser),
        verify=change(program.verify),
        ingress=change(program.ingress),
        egress=change(program.egress),
        update=change(program.update),
    )
