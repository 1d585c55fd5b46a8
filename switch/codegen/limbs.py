"""Loops over the 64-bit words of wide values: additions and subtractions in which carries run, shifts to the right."""

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


def shift_function(unit: Unit, size: int) -> ll.Function:
    """Return a function (target, source, bits) that shifts a number of `size` bytes, a multiple of 8, to the right.

    Both are in network byte order and do not overlap; `bits` is an i64 without sign and may exceed the width.
    """
    key = ("shift", size)
    if key not in unit.helpers:
        unit.helpers[key] = _write_shift(unit.function(f"shift.{size}", VOID, [POINTER, POINTER, I64]), size)
    made: ll.Function = unit.helpers[key]
    return made


def _write_shift(function: ll.Function, size: int) -> ll.Function:
    target, source, amount = function.args
    entry, body, after = (function.append_basic_block(name) for name in ("entry", "body", "after"))
    build = ll.IRBuilder(entry)
    words, bits = build.lshr(amount, constant(64, 6)), build.and_(amount, constant(64, 63))
    # Beyond the number, so that an offset less this much stays negative.
    words = build.select(build.icmp_unsigned("<", words, constant(64, size)), words, constant(64, size))
    distance = build.mul(words, constant(64, LIMB_BYTES))
    rest = build.sub(constant(64, 63), bits)
    build.branch(body)
    build = ll.IRBuilder(body)
    offset = build.phi(I64)
    offset.add_incoming(constant(64, 0), entry)

    def word(at: Value) -> Value:
        inside = build.icmp_signed(">=", at, constant(64, 0))
        address = build.gep(source, [build.select(inside, at, constant(64, 0))], source_etype=BYTE)
        return build.select(inside, build.bswap(build.load(address, typ=I64, align=1)), constant(64, 0))

    at = build.sub(offset, distance)
    before = word(build.sub(at, constant(64, LIMB_BYTES)))
    result = build.or_(build.lshr(word(at), bits), build.shl(build.shl(before, constant(64, 1)), rest))
    build.store(build.bswap(result), build.gep(target, [offset], source_etype=BYTE), align=1)
    following = build.add(offset, constant(64, LIMB_BYTES))
    offset.add_incoming(following, body)
    build.cbranch(build.icmp_signed("<", following, constant(64, size)), body, after)
    ll.IRBuilder(after).ret_void()
    return function
