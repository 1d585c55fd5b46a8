"""Loops over the 64-bit words (limbs) of wide values: additions and subtractions with carry, shifts to the right.

`vectors.py` computes lanes, between which nothing is carried.  When a whole field of 2,048 bits is added as one number,
a carry runs through all of it, from the last word in memory to the first.  LLVM's own integers of that width would be
straight-line code for each such operation.
"""

from __future__ import annotations

import llvmlite.ir as ll

from .emitter import BYTE, I64, POINTER, VOID, Unit, Value, constant

LIMB_BYTES = 8
LOOP_BYTES = 64
"""Longest values that are added as one LLVM integer."""


def carry_function(unit: Unit, subtract: bool, size: int) -> ll.Function:
    """Return a function (target, left, right) for numbers of `size` bytes, a multiple of 8, in network byte order.

    The target may be one of the operands.
    """
    return unit.helper(("carry", subtract, size), lambda: _write_carry(unit, subtract, size))


def _write_carry(unit: Unit, subtract: bool, size: int) -> ll.Function:
    function = unit.function(f"{'subtract' if subtract else 'add'}.{size}", VOID, [POINTER] * 3)
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
    """Return the sum or difference of two words, and the carry or borrow."""
    if subtract:
        return build.sub(left, right), build.icmp_unsigned("<", left, right)
    result = build.add(left, right)
    return result, build.icmp_unsigned("<", result, left)


def shift_function(unit: Unit, size: int) -> ll.Function:
    """Return a function (target, source, bits) that shifts a number of `size` bytes, a multiple of 8, to the right.

    Both numbers are in network byte order and must not overlap; `bits` is unsigned and may exceed the width.
    """
    return unit.helper(("shift", size), lambda: _write_shift(unit, size))


def _write_shift(unit: Unit, size: int) -> ll.Function:
    function = unit.function(f"shift.{size}", VOID, [POINTER, POINTER, I64])
    target, source, amount = function.args
    entry, body, after = (function.append_basic_block(name) for name in ("entry", "body", "after"))
    build = ll.IRBuilder(entry)
    words, bits = build.lshr(amount, constant(64, 6)), build.and_(amount, constant(64, 63))
    # A shift by the width or more gives 0.  The number of words is cut to `size`, so that `offset - distance` is then
    # negative for every word and `word` returns 0.
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

    # Shifting to the left by 1 and then by 63 - bits instead of by 64 - bits: for 0 bits, 64 would be undefined in
    # LLVM.
    at = build.sub(offset, distance)
    before = word(build.sub(at, constant(64, LIMB_BYTES)))
    result = build.or_(build.lshr(word(at), bits), build.shl(build.shl(before, constant(64, 1)), rest))
    build.store(build.bswap(result), build.gep(target, [offset], source_etype=BYTE), align=1)
    following = build.add(offset, constant(64, LIMB_BYTES))
    offset.add_incoming(following, body)
    build.cbranch(build.icmp_signed("<", following, constant(64, size)), body, after)
    ll.IRBuilder(after).ret_void()
    return function
