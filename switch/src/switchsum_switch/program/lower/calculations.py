"""Calculations, which are hashes and checksums over a list of fields, become expressions."""

from __future__ import annotations

from .. import ir, model
from ..hashes import ROUND_ROBIN, WIDTHS
from .expressions import MAX_EXACT_BITS, Scope
from .symbols import TURN_BITS

_SAME = {"crc16_custom": "crc16", "crc32_custom": "crc32", "cksum16": "csum16"}
"""Other names of algorithms.  Of custom CRCs BMv2 takes other parameters by Thrift; it begins with these."""


def hash_of(scope: Scope, name: str) -> tuple[list[ir.Statement], ir.Expr]:
    """Return a calculation as an expression, and the statements that come before it.

    Raises ProgramError if its algorithm or an input is not supported.
    """
    symbols = scope.symbols
    calculation = symbols.calculations.get(name)
    if calculation is None:
        raise scope.refuse(f"calculation {name}, which the program does not define,")
    if calculation.algorithm != ROUND_ROBIN:
        return [], hash_over(scope, calculation)
    register, turn = symbols.turn(name), symbols.field(symbols.scratch("turn", TURN_BITS))
    first, one = ir.Const(1, 0), ir.Const(TURN_BITS, 1)
    step = ir.WriteRegister(register, first, ir.Binary(TURN_BITS, ir.Op.ADD, turn, one))
    return [ir.ReadRegister(turn.slot, register, first), step], turn


def hash_over(scope: Scope, calculation: model.Calculation) -> ir.Hash:
    """Return the expression of a calculation or selector; raises ProgramError as `hash_of` does."""
    symbols = scope.symbols
    algorithm = _SAME.get(calculation.algorithm, calculation.algorithm)
    if algorithm not in WIDTHS:
        raise scope.refuse(f"hash algorithm {algorithm}")
    inputs: list[ir.HashInput] = []
    payload = False
    for operand in calculation.inputs:
        match operand:
            case model.FieldName(header, field) if field != "$valid$":
                slot = symbols.slot(header, field)
                inputs += [_input(scope, slot)] if symbols.has_bits(slot) else []
            case model.Number(value, int(width)) if 1 <= width <= MAX_EXACT_BITS:
                inputs.append(ir.HashInput(ir.Const(width, value & ((1 << width) - 1)), None))
            case model.Named("header", header):
                inputs += [_input(scope, slot) for slot in symbols.slots_of(header)]
            case model.Named("payload"):
                payload = True
            case _:
                raise scope.refuse(f"{operand} in calculation {calculation.name}")
    return ir.Hash(WIDTHS[algorithm], algorithm, tuple(inputs), payload)


def _input(scope: Scope, slot: int) -> ir.HashInput:
    header, length = scope.symbols.fields[slot].header, scope.symbols.fields[slot].length
    metadata = scope.symbols.headers[header].metadata
    bits = None if length is None else scope.symbols.field(length)
    return ir.HashInput(scope.symbols.field(slot), None if metadata else header, bits)
