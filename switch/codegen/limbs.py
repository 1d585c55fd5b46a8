"""Additions and subtractions of wide values in which carries run: loops over 64-bit words, the last one first."""

from __future__ import annotations

import llvmlite.ir as ll

from switchsum.switch.codegen.emitter import BYTE, I64, POINTER, VOID, Unit, Value, constant

LIMB_BYTES = 8
LOOP_BYTES = 64
"""Shorter values are added as one integer."""


def carry_function(unit: Unit, subtract: bool, size: int) -> ll.Function:
    """Return a function (target, left, right) for numbers of `size` bytes, a multiple of 8, in network byte order.

    The target may be one of the operands.
    """
    key = ("carry", subtract, size)
    if key not in unit.helpers:
        name = f"{'subtract' if subtract else 'add'}.{size}"
        unit.helpers[key] = _write(unit.function(name, VOID, [POINTER] * 3), subtract, size)
    made: ll.Function = unit.helpers[key]
    return made


def _write(function: ll.Function, subtract: bool, size: int) -> ll.Function:
    entry, body, after = (function.append_basic_block(name) for name in ("entry", "body", "after"))
    ll.IRBuilder(entry).branch(body)
    build = ll.IRBuilder(body)
    offset, carry = build.phi(I64), build.phi(I64)
    offset.add_incoming(constant(64, size - LIMB_BYTES), entry)
    carry.add_incoming(constant(64, 0), entry)
    target, *operands = (build.gep(argument, [offset], source_etype=BYTE) for argument in function.args)
    left, right = (build.bswap(build.load(address, typ=I64, align=1)) for address in operands)
    first, first_carry = _step(build, subtract, left, right)
    result, second_carry = _step(build, subtract, first, carry)
    build.store(build.bswap(result), target, align=1)
    following = build.sub(offset, constant(64, LIMB_BYTES))
    offset.add_incoming(following, body)
    carry.add_incoming(build.zext(build.or_(first_carry, second_carry), I64), body)
    build.cbranch(build.icmp_signed(">=", following, constant(64, 0)), body, after)
    ll.IRBuilder(after).ret_void()
    return function


def _step(build: ll.IRBuilder, subtract: bool, left: Value, right: Value) -> tuple[Value, Value]:
    """Return the sum or difference of two words, and whether it went beyond them."""
    if subtract:
        return build.sub(left, right), build.icmp_unsigned("<", left, right)
    result = build.add(left, right)
    return result, build.icmp_unsigned("<", result, left)
