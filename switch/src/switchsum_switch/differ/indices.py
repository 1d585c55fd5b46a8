"""Which fields of headers a program computes indices of arrays and stacks from.

A random number almost never lies within an array.  BMv2 ends itself at an index beyond the end, so that such a packet
cannot be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from switchsum_switch.program import model

_INDEX_OF: Final = {"register_read": (1, 2), "register_write": (0, 1), "count": (0, 1), "execute_meter": (0, 1)}
"""Which operands of a primitive are the array and the index."""
_DEREFERENCES: Final = ("dereference_header_stack", "dereference_stack", "dereference_union_stack")


def index_fields(program: model.Bmv2Program) -> dict[tuple[str, str], int]:
    """Return the fields, and below which number they have to be for an index within the smallest array."""
    sizes = {array.name: array.size for array in (*program.registers, *program.counters, *program.meters)}
    sizes |= {stack.name: len(stack.members) for stack in (*program.stacks, *program.union_stacks)}
    computed: defaultdict[model.FieldName, list[model.Operand]] = defaultdict(list)
    found: list[tuple[model.FieldName, int]] = []
    for primitive in _primitives(program):
        if primitive.operation in _INDEX_OF:
            array, index = (primitive.operands[place] for place in _INDEX_OF[primitive.operation])
            if isinstance(array, model.Named):
                found += _bounded(index, sizes.get(array.name, 0))
        match primitive.operation, primitive.operands:
            case "assign" | "set", (model.FieldName() as target, value):
                computed[target].append(value)
    for operand in _operands(program):
        for operation in _within(operand):
            match operation:
                case model.Operation(operator, model.Named(_, name), right) if operator in _DEREFERENCES:
                    found += _bounded(right, sizes.get(name, 0))
    # What a variable is computed from chooses the cell as well.
    bounds: dict[model.FieldName, int] = {}
    while found:
        field, bound = found.pop()
        if bound < bounds.get(field, bound + 1):
            bounds[field] = bound
            found += [one for value in computed[field] for one in _bounded(value, bound)]
    return {(field.header, field.field): bound for field, bound in bounds.items()}


def _bounded(value: model.Operand | int | None, bound: int) -> Iterator[tuple[model.FieldName, int]]:
    """Yield the fields that a value below a bound is computed from, and the bound of each."""
    if not bound:
        return
    match value:
        case model.FieldName():
            yield value, bound
        case model.Operation("&", left, model.Number(mask)):
            if mask >= bound:
                yield from _bounded(left, bound)
        case model.Operation("<<", left, model.Number(bits)):
            yield from _bounded(left, max(1, bound >> bits))
        case model.Operation(">>", left, model.Number(bits)):
            yield from _bounded(left, bound << bits)
        case model.Operation(operator, left, right) if operator not in _DEREFERENCES:
            yield from _bounded(left, bound)
            yield from _bounded(right, bound)


def _within(operand: model.Operand) -> Iterator[model.Operation]:
    """Yield an operand's operations, also those within others."""
    match operand:
        case model.Operation(_, left, right, condition):
            yield operand
            for part in (left, right, condition):
                if isinstance(part, model.Operand):
                    yield from _within(part)
        case model.Vector(items):
            for item in items:
                yield from _within(item)


def _primitives(program: model.Bmv2Program) -> Iterator[model.Primitive]:
    for action in program.actions:
        yield from action.primitives
    for state in program.parser.states:
        yield from state.operations
    yield from program.deparsing


def _operands(program: model.Bmv2Program) -> Iterator[model.Operand]:
    for primitive in _primitives(program):
        yield from primitive.operands
    for control in (program.ingress, program.egress):
        for conditional in control.conditionals:
            yield conditional.condition
