"""The deparser: it writes the valid headers in order, then the payload.

It is two functions.  The *head* ends with the last header that egress or the checksum update may change; headers behind
it and the payload are the *body*.  Replicas of a packet have the same body, so that it is written once for a multicast,
and each replica writes its head only; unless egress leaves a header of the body out of some of them
(`optional_headers`).
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.ir as ll

from ..program import ir
from ..program.passes.analysis import written
from .emitter import I32, I64, POINTER, Emitter, Unit, Value, constant
from .layout import Narrow, Variable, Wide
from .shifted import behind_shifted, put_shifted
from .vectors import Shape, kernel

MOST_OPTIONAL = 64
"""Headers of the body that egress may leave out: a word has a bit for each."""
LOOPED_FIELDS = 8
"""Fewest wide fields of equal width, side by side, that one loop copies; fewer are copied one after the other."""


def head_function(unit: Unit) -> ll.Function:
    """Make the function (hot, target) that writes a frame's head and returns its length."""
    function = unit.function("deparse_head", I64, [POINTER, POINTER])
    emit = Emitter(unit, function)
    hot, target = function.args
    emit.build.ret(_headers(emit, hot, target, unit.program.deparser[: body_start(unit.program)]))
    return function


def body_function(unit: Unit) -> ll.Function:
    """Make the function (hot, frame, its length, bytes parsed, target) that writes a body and returns its length."""
    function = unit.function("deparse_body", I64, [POINTER, POINTER, I64, I64, POINTER])
    emit = Emitter(unit, function)
    hot, frame, length, cursor, target = function.args
    start = _headers(emit, hot, target, unit.program.deparser[body_start(unit.program) :])
    rest = emit.build.sub(length, cursor)
    emit.copy(emit.at(target, start), emit.at(frame, cursor), rest)
    emit.build.ret(emit.build.add(start, rest))
    return function


def optional_headers(program: ir.Program) -> list[int]:
    """Return the headers of the body that egress may make invalid; egress changes nothing else in these headers."""
    return [header for header in program.deparser[body_start(program) :] if header in _dropped(program)]


def _dropped(program: ir.Program) -> set[int]:
    """Return the headers that egress may make invalid, but does not change otherwise."""
    statements = [statement for block in program.egress for statement in block.statements]
    dropped = {statement.header for statement in statements if isinstance(statement, ir.SetInvalid)}
    for statement in statements:
        match statement:
            case ir.SetValid(header) | ir.CopyHeader(header):
                dropped.update(program.headers[header].siblings)
    return dropped


def body_start(program: ir.Program) -> int:
    """Return the index in the deparser's headers from which on egress and update change no header."""
    statements = [
        statement for graph in (program.egress, program.update) for block in graph for statement in block.statements
    ]
    # Ingress has run before a packet is replicated: what it changes is the same in all replicas.
    touched = {program.fields[slot].header for statement in statements for slot in written(program, statement)}
    touched |= {statement.header for statement in statements if isinstance(statement, ir.SetValid)}
    if len(_dropped(program)) > MOST_OPTIONAL:
        touched |= _dropped(program)
    return max((place + 1 for place, header in enumerate(program.deparser) if header in touched), default=0)


def _headers(emit: Emitter, hot: Value, target: Value, headers: Sequence[int]) -> Value:
    """Write the headers that are valid; return their length."""
    unit = emit.unit
    place = emit.stack(I64)
    emit.build.store(constant(64, 0), place)
    for header in headers:
        valid = emit.load(ll.IntType(8), emit.at(hot, unit.layout.valid[header]))
        with emit.build.if_then(emit.build.icmp_unsigned("!=", valid, constant(8, 0))):
            start, shift = emit.build.load(place, typ=I64), 0
            for segment in unit.layout.segments[header]:
                address = emit.at(target, emit.build.add(start, constant(64, segment.start)))
                if isinstance(segment, Narrow):
                    with behind_shifted(emit, address, shift):
                        emit.copy(address, emit.at(hot, segment.hot), segment.size)
                    shift = 0
                elif isinstance(segment, Wide):
                    _copy_wide(emit, hot, address, segment)
                else:
                    # The next field begins earlier, by as many bytes as this one is below its longest.
                    size, shift = variable_bytes(emit, hot, segment), segment.shift
                    source = emit.load(POINTER, emit.at(hot, unit.layout.pointers[segment.slot]), 8)
                    if shift:
                        put_shifted(emit, address, source, size, shift)
                    else:
                        emit.copy(address, source, size)
                    start = emit.build.add(start, emit.build.sub(size, constant(64, segment.size)))
            whole = unit.program.headers[header].width // 8
            emit.build.store(emit.build.add(start, constant(64, whole)), place)
    return emit.build.load(place, typ=I64)


def variable_bytes(emit: Emitter, hot: Value, segment: Variable) -> Value:
    """Return how many bytes a field of variable length has."""
    bits = emit.load(I32, emit.at(hot, emit.layout.metadata[segment.length]), 4)
    return emit.resize(emit.build.lshr(bits, constant(32, 3)), 64)


def _copy_wide(emit: Emitter, hot: Value, target: Value, segment: Wide) -> None:
    """Copy wide fields from where their pointers lead."""
    # A kernel with one input and one output is a copy by vectors of a known size.
    copy = kernel(emit.unit, Shape(segment.size, (("memory",),), (0,)))
    pointers = emit.at(hot, emit.layout.pointers[segment.slots[0]])
    if len(segment.slots) < LOOPED_FIELDS:
        for number in range(len(segment.slots)):
            source = emit.load(POINTER, emit.at(pointers, 8 * number), 8)
            emit.build.call(copy, [emit.at(target, number * segment.size), source])
        return
    build = emit.build
    before = build.block
    body, after = (emit.function.append_basic_block(name) for name in ("field", "fields"))
    build.branch(body)
    build.position_at_end(body)
    number = build.phi(I64)
    number.add_incoming(constant(64, 0), before)
    source = emit.load(POINTER, emit.at(pointers, build.mul(number, constant(64, 8))), 8)
    build.call(copy, [emit.at(target, build.mul(number, constant(64, segment.size))), source])
    following = build.add(number, constant(64, 1))
    number.add_incoming(following, body)
    build.cbranch(build.icmp_unsigned("<", following, constant(64, len(segment.slots))), body, after)
    build.position_at_end(after)
