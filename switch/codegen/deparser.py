"""The deparser: valid headers in order, then what the parser did not take."""

from __future__ import annotations

import llvmlite.ir as ll

from switchsum.switch.codegen.emitter import I64, POINTER, Emitter, Unit, Value, constant
from switchsum.switch.codegen.kernels import Shape, kernel
from switchsum.switch.codegen.layout import Narrow, Wide

LOOPED_FIELDS = 8
"""From so many equal wide fields side by side on, one loop copies them."""


def deparser_function(unit: Unit) -> ll.Function:
    """Make the function (hot, frame, its length, bytes parsed, target) that writes a frame and returns its length."""
    function = unit.function("deparse", I64, [POINTER, POINTER, I64, I64, POINTER])
    emit = Emitter(unit, function)
    hot, frame, length, cursor, target = function.args
    place = emit.stack(I64)
    emit.build.store(constant(64, 0), place)
    for header in unit.program.deparser:
        valid = emit.load(ll.IntType(8), emit.at(hot, unit.layout.valid[header]))
        with emit.build.if_then(emit.build.icmp_unsigned("!=", valid, constant(8, 0))):
            start = emit.build.load(place, typ=I64)
            for segment in unit.layout.segments[header]:
                address = emit.at(emit.at(target, start), segment.start)
                if isinstance(segment, Narrow):
                    emit.copy(address, emit.at(hot, segment.hot), segment.size)
                else:
                    _copy_wide(emit, hot, address, segment)
            size = unit.program.headers[header].width // 8
            emit.build.store(emit.build.add(start, constant(64, size)), place)
    start = emit.build.load(place, typ=I64)
    rest = emit.build.sub(length, cursor)
    emit.copy(emit.at(target, start), emit.at(frame, cursor), rest)
    emit.build.ret(emit.build.add(start, rest))
    return function


def _copy_wide(emit: Emitter, hot: Value, target: Value, segment: Wide) -> None:
    """Copy wide fields from wherever their bytes are."""
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
