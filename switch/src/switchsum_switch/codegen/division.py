"""Long division of integers of more than 64 bits, one bit of the quotient after the other.

For integers up to 128 bits LLVM would call a function of the compiler's run-time library (`__udivti3`), which need not
exist in this process.  Division is rare in P4 programs, so that the loop need not be fast.
"""

from __future__ import annotations

import llvmlite.ir as ll

from .emitter import I64, Unit, Value, constant, integer


def division_function(unit: Unit, width: int) -> ll.Function:
    """Return a function (dividend, divisor) that returns quotient and remainder; the divisor must not be 0."""
    return unit.helper(("divide", width), lambda: _write(unit, width))


def _write(unit: Unit, width: int) -> ll.Function:
    """Shift the dividend into the remainder, bit by bit; the quotient's bits follow it from the other end."""
    kind, one = integer(width), constant(width, 1)
    function = unit.function(f"divide.{width}", ll.LiteralStructType([kind, kind]), [kind, kind])
    function.attributes.add("noinline")
    entry, body, after = (function.append_basic_block(name) for name in ("entry", "body", "after"))
    dividend, divisor = function.args
    ll.IRBuilder(entry).branch(body)
    build = ll.IRBuilder(body)
    step, quotient, remainder = build.phi(I64), build.phi(kind), build.phi(kind)
    step.add_incoming(constant(64, 0), entry)
    quotient.add_incoming(dividend, entry)
    remainder.add_incoming(constant(width, 0), entry)
    longer = build.or_(build.shl(remainder, one), build.lshr(quotient, constant(width, width - 1)))
    # If shifting loses the remainder's top bit, the shifted number is larger than any divisor.
    overflowed = build.icmp_signed("<", remainder, constant(width, 0))
    fits = build.or_(overflowed, build.icmp_unsigned(">=", longer, divisor))
    rest = build.select(fits, build.sub(longer, divisor), longer)
    digits = build.or_(build.shl(quotient, one), build.zext(fits, kind))
    following = build.add(step, constant(64, 1))
    for phi, value in ((step, following), (quotient, digits), (remainder, rest)):
        phi.add_incoming(value, body)
    build.cbranch(build.icmp_unsigned("<", following, constant(64, width)), body, after)
    build.position_at_end(after)
    build.ret(_pair(build, digits, rest))
    return function


def _pair(build: ll.IRBuilder, first: Value, second: Value) -> Value:
    kind = ll.LiteralStructType([first.type, second.type])
    return build.insert_value(build.insert_value(ll.Constant(kind, ll.Undefined), first, 0), second, 1)
