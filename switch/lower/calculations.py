"""Calculations, which are hashes and checksums over a list of fields, become expressions."""

from __future__ import annotations

from .. import ir, model
from ..hashes import WIDTHS
from .expressions import MAX_EXACT_BITS, Scope

_CUSTOM = {"crc16_custom": "crc16", "crc32_custom": "crc32"}
"""CRCs of which BMv2 takes other parameters by Thrift; those with which it begins are these."""


def hash_of(scope: Scope, name: str) -> ir.Hash:
    """Return the expression of a calculation; raises ProgramError if its algorithm or an input is not supported."""
    calculation = scope.symbols.calculations.get(name)
    if calculation is None:
        raise scope.refuse(f"calculation {name}, which the program does not define,")
    return hash_over(scope, calculation)


def hash_over(scope: Scope, calculation: model.Calculation) -> ir.Hash:
    """Return the expression of a calculation or selector; raises ProgramError as `hash_of` does."""
    symbols = scope.symbols
    algorithm = _CUSTOM.get(calculation.algorithm, calculation.algorithm)
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
