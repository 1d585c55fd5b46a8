"""Primitives of actions, each as statements; `bodies.py` makes blocks of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from .. import ir, model
from ..ir import Op, Relation
from ..model import refusal
from ..passes.analysis import fields_of
from .calculations import hash_of
from .expressions import (
    FALSE,
    TRUE,
    Scope,
    choose,
    exact,
    field_of,
    last_fields,
    low_bits,
    members,
    nonzero,
    resize,
    unsigned,
)
from .symbols import DIGEST, HIDDEN, INDEX, Symbols


def lower_primitive(scope: Scope, primitive: model.Primitive) -> list[ir.Statement]:
    """Return the statements of a primitive that does not jump; raises ProgramError if it is not supported."""
    make = PRIMITIVES.get(primitive.operation)
    if make is None:
        raise scope.refuse(f"primitive {primitive.operation}")
    try:
        return make(scope, *primitive.operands)
    except TypeError:  # the JSON has another number of operands than `make` takes
        raise scope.refuse(f"{primitive.operation}({', '.join(map(str, primitive.operands))})") from None


def _assign(scope: Scope, target: model.Operand, value: model.Operand) -> list[ir.Statement]:
    match target:
        case model.FieldName(header, "$valid$"):
            # In BMv2 this changes what reads of the field find; whether the header is valid stays as it was.
            if scope.symbols.reads_validity(header):
                raise scope.refuse(f"assigning to {target}, which the program reads,")
            return []
        case model.FieldName(header, field):
            slot = scope.symbols.slot(header, field)
            if not scope.symbols.has_bits(slot):
                return []
            return [ir.Assign(slot, low_bits(scope, value, scope.symbols.fields[slot].width))]
        case model.Operation("access_field", header, int(offset)) if header is not None:
            index, headers = members(scope, header)
            targets = [field_of(scope.symbols, member, offset) for member in headers]
            if not scope.symbols.has_bits(targets[0].slot):
                return []
            if index is None:
                return [ir.Assign(targets[0].slot, low_bits(scope, value, targets[0].width))]
            return _assign_one(scope, targets, index, value)
        case model.StackField():
            last, targets = last_fields(scope.symbols, target)
            if not scope.symbols.has_bits(targets[0].slot):
                return []
            return _assign_one(scope, targets, last, value)
    raise scope.refuse(f"{target} as the target of an assignment")


def _assign_one(scope: Scope, targets: Sequence[ir.Field], index: ir.Expr, value: model.Operand) -> list[ir.Statement]:
    """Assign to one of several fields by an index that is known only at run time: each field gets a select."""
    made: list[ir.Statement] = []
    # The index is computed for each field.  If it reads one of them, it is computed before any is assigned.
    if set(fields_of(index)) & {target.slot for target in targets}:
        kept = scope.symbols.field(scope.symbols.slot(HIDDEN, INDEX))
        made.append(ir.Assign(kept.slot, _bounded(index, len(targets))))
        index = kept
    for position, old in enumerate(targets):
        chosen = choose(index, [FALSE] * position + [TRUE])
        made.append(ir.Assign(old.slot, ir.Select(old.width, chosen, low_bits(scope, value, old.width), old)))
    return made


def _bounded(index: ir.Expr, size: int) -> ir.Expr:
    """Return an index in 32 bits; one beyond the end becomes `size`."""
    if size >> index.width:
        return resize(index, 32)
    inside = ir.Compare(Relation.LT, index, ir.Const(index.width, size))
    return ir.Select(32, inside, resize(index, 32), ir.Const(32, size))


def _assign_variable(scope: Scope, target: model.Operand, source: model.Operand) -> list[ir.Statement]:
    """Assign a field of variable length to another one."""
    symbols = scope.symbols
    slots = _target(scope, target), _target(scope, source)
    (to, of), (length, other) = (
        (symbols.fields[slot] for slot in slots),
        (symbols.fields[slot].length for slot in slots),
    )
    if length is None or other is None or to.width != of.width:
        raise scope.refuse(f"assigning {of.name} to {to.name}")
    return [ir.Assign(slots[0], symbols.field(slots[1])), ir.Assign(length, symbols.field(other))]


def _compute(operator: str) -> Callable[..., list[ir.Statement]]:
    """Return the primitive of BMv2 that writes `left operator right` to its target; p4c itself writes `assign`."""

    def lower(
        scope: Scope, target: model.Operand, left: model.Operand, right: model.Operand | None = None
    ) -> list[ir.Statement]:
        # Of two operands the first one is the target, too: add_to_field(f, 1).
        value = model.Operation(operator, target, left) if right is None else model.Operation(operator, left, right)
        return _assign(scope, target, value)

    return lower


def _assign_header(scope: Scope, target: model.Operand, source: model.Operand) -> list[ir.Statement]:
    symbols, to, of = scope.symbols, _name(scope, target, "header"), _name(scope, source, "header")
    if not symbols.is_metadata(to):
        return [ir.CopyHeader(symbols.header(to), symbols.header(of))]
    # p4c copies standard metadata as a whole where log_msg names it.
    slots = symbols.slots_of(to), symbols.slots_of(of)
    if not symbols.is_metadata(of) or len(slots[0]) != len(slots[1]):
        raise scope.refuse(f"copying {of} to {to}")
    return [
        ir.Assign(one, resize(symbols.number(other), symbols.fields[one].width))
        for one, other in zip(*slots, strict=True)
    ]


def _assign_union(scope: Scope, target: model.Operand, source: model.Operand) -> list[ir.Statement]:
    to, of = _name(scope, target, "header union"), _name(scope, source, "header union")
    return _copy(scope.symbols.union(to), scope.symbols.union(of))


def _assign_stack(scope: Scope, target: model.Operand, source: model.Operand) -> list[ir.Statement]:
    symbols = scope.symbols
    to_stack, of_stack = _name(scope, target, "header stack"), _name(scope, source, "header stack")
    targets, sources = symbols.elements(to_stack), symbols.elements(of_stack)
    if len(targets) != len(sources):
        raise refusal(f"not a BMv2 program: {to_stack} and {of_stack} are of different sizes", scope.source)
    copies = [copy for to, of in zip(targets, sources, strict=True) for copy in _copy(to, of)]
    return [*copies, ir.Assign(symbols.next_slot(to_stack), symbols.field(symbols.next_slot(of_stack)))]


def _copy(targets: tuple[int, ...], sources: tuple[int, ...], *, forgets: bool = False) -> list[ir.Statement]:
    """Copy an element of a stack: its header, or the headers of its union, of which one is valid after the last."""
    if len(targets) != len(sources):
        raise refusal("not a BMv2 program: header unions of different types are copied", None)
    return [ir.CopyHeader(to, of, forgets=forgets) for to, of in zip(targets, sources, strict=True)]


def _invalidate(headers: tuple[int, ...]) -> list[ir.Statement]:
    return [ir.SetInvalid(header, forgets=True) for header in headers]


def _set_validity(symbols: Symbols, header: int, valid: bool) -> list[ir.Statement]:
    """Make a header valid or invalid, and add its bytes to the packet's length or subtract them."""
    length = symbols.field(symbols.intrinsics.length)
    info = symbols.headers[header]
    size: ir.Expr = ir.Const(32, info.width // 8)
    if info.variable is not None and info.length is not None:
        fixed = ir.Const(32, (info.width - symbols.fields[info.variable].width) // 8)
        own = ir.Binary(32, Op.SHR, symbols.field(info.length), ir.Const(32, 3))
        size = ir.Binary(32, Op.ADD, fixed, own)
    old = resize(length, 32)
    changed = ir.Binary(32, Op.ADD if valid else Op.SUB, old, size)
    then, other = (old, changed) if valid else (changed, old)
    update = ir.Assign(length.slot, resize(ir.Select(32, ir.Valid(header), then, other), length.width))
    return [update, ir.SetValid(header) if valid else ir.SetInvalid(header)]


def _add_or_remove(scope: Scope, header: model.Operand, valid: bool) -> list[ir.Statement]:
    return _set_validity(scope.symbols, scope.symbols.header(_name(scope, header, "header")), valid)


def _shift_stack(scope: Scope, stack: model.Operand, count: model.Operand, towards_end: bool) -> list[ir.Statement]:
    """Shift all members of a stack by a constant; members into which none is shifted become invalid.

    `push_front` shifts towards the end, `pop_front` towards the start (P4_16 specification, "Operations on header
    stacks"); the stack's next index moves with them, within its bounds.
    """
    if not (isinstance(stack, model.Named) and isinstance(count, model.Number)):
        raise scope.refuse(f"shifting {stack} by {count}")
    elements = scope.symbols.elements(stack.name)
    size, by = len(elements), min(count.value, len(elements))
    # Members are copied in the order in which none is overwritten before it has been copied.
    after = scope.symbols.field(scope.symbols.next_slot(stack.name))
    limit = ir.Const(32, size - by if towards_end else by)
    within = ir.Compare(Relation.LE, *((after, limit) if towards_end else (limit, after)))
    moved = ir.Binary(32, Op.ADD if towards_end else Op.SUB, after, ir.Const(32, by))
    statements: list[ir.Statement] = []
    if towards_end:
        for index in range(size - 1, by - 1, -1):
            statements += _copy(elements[index], elements[index - by], forgets=True)
        statements += [made for element in elements[:by] for made in _invalidate(element)]
    else:
        for index in range(size - by):
            statements += _copy(elements[index], elements[index + by], forgets=True)
        statements += [made for element in elements[size - by :] for made in _invalidate(element)]
    end = ir.Const(32, size if towards_end else 0)
    return [*statements, ir.Assign(after.slot, ir.Select(32, within, moved, end))]


def _name(scope: Scope, operand: model.Operand, what: str) -> str:
    """Return the name of a header, stack, array or calculation; raises ProgramError if the operand is none."""
    if not isinstance(operand, model.Named):
        raise scope.refuse(f"{operand} as a {what}")
    return operand.name


def _target(scope: Scope, operand: model.Operand) -> int:
    if not isinstance(operand, model.FieldName):
        raise scope.refuse(f"{operand} as a target")
    slot = scope.symbols.slot(operand.header, operand.field)
    if not scope.symbols.has_bits(slot):
        raise scope.refuse(f"{operand.header}.{operand.field}, which has no bits, as a target")
    return slot


def _register_read(
    scope: Scope, target: model.Operand, register: model.Operand, index: model.Operand
) -> list[ir.Statement]:
    name = _name(scope, register, "register")
    number = scope.symbols.register(name)
    slot = _target(scope, target)
    width, cell = scope.symbols.fields[slot].width, scope.symbols.registers[number].width
    if width == cell:
        return [ir.ReadRegister(slot, number, unsigned(scope, index))]
    # The field gets the low bits of the cell, or zeros in front of it.
    whole = scope.symbols.scratch(f"cell of {cell} bits", cell)
    read = ir.ReadRegister(whole, number, unsigned(scope, index))
    return [read, ir.Assign(slot, resize(scope.symbols.field(whole), width))]


def _register_write(
    scope: Scope, register: model.Operand, index: model.Operand, value: model.Operand
) -> list[ir.Statement]:
    number = scope.symbols.register(_name(scope, register, "register"))
    width = scope.symbols.registers[number].width
    return [ir.WriteRegister(number, unsigned(scope, index), low_bits(scope, value, width))]


def _count(scope: Scope, counter: model.Operand, index: model.Operand) -> list[ir.Statement]:
    return [ir.Count(scope.symbols.counter(_name(scope, counter, "counter")), unsigned(scope, index))]


def _execute_meter(
    scope: Scope, meter: model.Operand, index: model.Operand, target: model.Operand
) -> list[ir.Statement]:
    number = scope.symbols.meter(_name(scope, meter, "meter"))
    return [ir.ExecuteMeter(_target(scope, target), number, unsigned(scope, index))]


def _random(scope: Scope, target: model.Operand, low: model.Operand, high: model.Operand) -> list[ir.Statement]:
    return [ir.Random(_target(scope, target), low_bits(scope, low, 64), low_bits(scope, high, 64))]


def _hash(
    scope: Scope, target: model.Operand, base: model.Operand, calculation: model.Operand, size: model.Operand
) -> list[ir.Statement]:
    # BMv2 computes base + hash % size in 64 bits; a size of 0 counts as 1.
    slot = _target(scope, target)
    width = max(64, scope.symbols.fields[slot].width)
    first, found = hash_of(scope, _name(scope, calculation, "calculation"))
    number = resize(found, width)
    count = low_bits(scope, size, width)
    at_least_one = ir.Select(width, ir.Compare(Relation.EQ, count, ir.Const(width, 0)), ir.Const(width, 1), count)
    value = ir.Binary(width, Op.ADD, ir.Binary(width, Op.MOD, number, at_least_one), low_bits(scope, base, width))
    return [*first, ir.Assign(slot, resize(value, scope.symbols.fields[slot].width))]


def _drop(scope: Scope) -> list[ir.Statement]:
    names = scope.symbols.intrinsics
    return _marked(scope.symbols, names.egress_spec, names.mcast_grp)


def _mark_to_drop(scope: Scope, metadata: model.Operand | None = None) -> list[ir.Statement]:
    """Mark the metadata that is named, which is a copy where an action or a control takes it as a parameter.

    p4c wrote no operand before 2019.
    """
    if metadata is None:
        return _drop(scope)
    name = _name(scope, metadata, "header")
    spec, group = (scope.symbols.find(name, field) for field in ("egress_spec", "mcast_grp"))
    # BMv2 writes to its log that there is no such field, and does nothing.
    return [] if spec is None else _marked(scope.symbols, spec, group)


def _marked(symbols: Symbols, spec: int, group: int | None) -> list[ir.Statement]:
    """Write the port of packets that are dropped, and that there is no multicast group."""
    values = {spec: symbols.drop_port} | ({} if group is None else {group: 0})
    return [
        ir.Assign(slot, ir.Const(symbols.fields[slot].width, value & ((1 << symbols.fields[slot].width) - 1)))
        for slot, value in values.items()
        if symbols.has_bits(slot)
    ]


def _truncate(scope: Scope, length: model.Operand) -> list[ir.Statement]:
    # Of several calls the smallest length counts; 0 in the field means that there was none.
    old = scope.symbols.field(scope.symbols.intrinsics.cut)
    width = old.width
    new = ir.Binary(width, Op.ADD, resize(low_bits(scope, length, 32), width), ir.Const(width, 1))
    whole = ir.Compare(Relation.EQ, old, ir.Const(width, 0))
    shorter = ir.Binary(1, Op.OR, whole, ir.Compare(Relation.LT, new, old))
    return [ir.Assign(old.slot, ir.Select(width, shorter, new, old))]


def _clone(scope: Scope, session: model.Operand, fields: model.Operand) -> list[ir.Statement]:
    names = scope.symbols.intrinsics
    number = resize(low_bits(scope, session, 15), 17)
    return [
        ir.Assign(names.clone, ir.Binary(17, Op.ADD, number, ir.Const(17, 1))),
        ir.Assign(names.clone_list, _list(scope, fields)),
    ]


def _resubmit(scope: Scope, fields: model.Operand) -> list[ir.Statement]:
    return [ir.Assign(scope.symbols.intrinsics.resubmit, _list(scope, fields))]


def _recirculate(scope: Scope, fields: model.Operand) -> list[ir.Statement]:
    return [ir.Assign(scope.symbols.intrinsics.recirculate, _list(scope, fields))]


def _generate_digest(scope: Scope, receiver: model.Operand, digest: model.Operand) -> list[ir.Statement]:
    # BMv2 ignores the receiver, and takes the values when ingress ends (`digests.py`).
    if not isinstance(digest, model.Number):
        raise scope.refuse(f"{digest} as a digest")
    number = scope.symbols.digest(digest.value)
    return [ir.Assign(scope.symbols.slot(HIDDEN, DIGEST), ir.Const(16, number + 1))]


def _log(scope: Scope, text: model.Operand, given: model.Operand) -> list[ir.Statement]:
    if not isinstance(given, model.Vector):
        raise scope.refuse(f"{given} as the values of log_msg")
    values = [exact(scope, value) for value in given.items]
    return [ir.Say(_name(scope, text, "text"), tuple(value for value, _ in values), tuple(sign for _, sign in values))]


def _claim(what: str) -> Callable[..., list[ir.Statement]]:
    """Return the primitive that says that a condition does not hold; BMv2 writes the same to its log, and ends."""

    def lower(scope: Scope, condition: model.Operand) -> list[ir.Statement]:
        place = scope.source
        text = f"{what}: {place.fragment} failed, file {place.file}, line {place.line}" if place else what
        return [ir.Claim(text, nonzero(scope, condition))]

    return lower


def _list(scope: Scope, fields: model.Operand) -> ir.Const:
    if not isinstance(fields, model.Number):
        raise scope.refuse(f"{fields} as a field list")
    return ir.Const(16, scope.symbols.list_number(fields.value))


PRIMITIVES: Final[dict[str, Callable[..., list[ir.Statement]]]] = {
    "assign": _assign,
    "set": _assign,
    "assign_VL": _assign_variable,
    "modify_field": _assign,
    "add_to_field": _compute("+"),
    "subtract_from_field": _compute("-"),
    "add": _compute("+"),
    "subtract": _compute("-"),
    "bit_xor": _compute("^"),
    "bit_or": _compute("|"),
    "bit_and": _compute("&"),
    "shift_left": _compute("<<"),
    "shift_right": _compute(">>"),
    "assign_header": _assign_header,
    "copy_header": _assign_header,
    "assign_union": _assign_union,
    "assign_header_stack": _assign_stack,
    "assign_union_stack": _assign_stack,
    "add_header": lambda scope, header: _add_or_remove(scope, header, True),
    "remove_header": lambda scope, header: _add_or_remove(scope, header, False),
    "push": lambda scope, stack, count: _shift_stack(scope, stack, count, True),
    "pop": lambda scope, stack, count: _shift_stack(scope, stack, count, False),
    "register_read": _register_read,
    "register_write": _register_write,
    "count": _count,
    "execute_meter": _execute_meter,
    "modify_field_rng_uniform": _random,
    "modify_field_with_hash_based_offset": _hash,
    "clone_ingress_pkt_to_egress": _clone,
    "clone_egress_pkt_to_egress": _clone,
    "resubmit": _resubmit,
    "recirculate": _recirculate,
    "mark_to_drop": _mark_to_drop,
    "drop": _drop,
    "truncate": _truncate,
    "generate_digest": _generate_digest,
    "log_msg": _log,
    "assert": _claim("Assert error"),
    "assume": _claim("Assume error"),
    "no_op": lambda _scope: [],
}
"""For each primitive the function that makes its statements; its operands follow the scope."""
