"""Eight places at once, for kernels that code many of them.

The compiler takes as many of the eight for one instruction as the processor has room for.  Everything is exact, so the
results are the same on all processors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from switchsum_switch.kernels.intrinsics import cgutils, intrinsic, ir, types
from switchsum_switch.kernels.memory import Scalar

EIGHT: Final = 8
FIRST_FACTOR: Final = 0x9E37_79B9_7F4A_7C15
SECOND_FACTOR: Final = 0xD6E8_FEB8_6659_FD93
HALF: Final = 32
"""Factors and shift of a place's hash."""
_WRAPPED: Final = (1 << 64) - 1


def _kind() -> Any:
    return ir.VectorType(ir.IntType(64), EIGHT)


def _eight(numbers: Sequence[int]) -> Any:
    return ir.Constant(_kind(), list(numbers))


def _each(builder: Any, word: Any) -> Any:
    """Return a vector that has the same word eight times."""
    one = builder.insert_element(ir.Constant(_kind(), ir.Undefined), word, ir.Constant(ir.IntType(32), 0))
    same = ir.Constant(ir.VectorType(ir.IntType(32), EIGHT), [0] * EIGHT)
    return builder.shuffle_vector(one, ir.Constant(_kind(), ir.Undefined), same)


def _loaded(builder: Any, address: Any) -> Any:
    found = builder.load(_pointer(builder, address))
    found.align = EIGHT
    return found


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _kind().as_pointer())


def _reduced(builder: Any, how: str, vector: Any) -> Any:
    kind = ir.FunctionType(ir.IntType(64), [_kind()])
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.{how}.v{EIGHT}i64"), [vector]
    )


def _hashes(builder: Any, address: Any) -> Any:
    word = builder.add(_loaded(builder, address), _eight([1] * EIGHT))
    for factor in (FIRST_FACTOR, SECOND_FACTOR):
        word = builder.mul(word, _eight([factor] * EIGHT))
        word = builder.xor(word, builder.lshr(word, _eight([HALF] * EIGHT)))
    return word


def _generating(made: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _context, builder, _signature, values: made(builder, *values)


def _packed(_context: Any, address: Any, width: Any) -> Any:
    return types.uint64(address, width), _generating(_pack)


def _spread(_context: Any, address: Any, width: Any, start: Any) -> Any:
    return types.uint64(address, width, start), _generating(_set_bits)


def _hashed(_context: Any, address: Any, mask: Any, totals: Any) -> Any:
    return types.uint64(address, mask, totals), _generating(_add_hashes)


def _set_long(_context: Any, address: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store(arguments[1], target).align = 1
        return context.get_dummy_value()

    return types.void(address, word), generate


def _pack(builder: Any, address: Any, width: Any) -> Any:
    mask = builder.sub(builder.shl(ir.Constant(ir.IntType(64), 1), width), ir.Constant(ir.IntType(64), 1))
    shifts = builder.mul(_each(builder, width), _eight(range(EIGHT)))
    low = builder.and_(_loaded(builder, address), _each(builder, mask))
    return _reduced(builder, "or", builder.shl(low, shifts))


def _set_bits(builder: Any, address: Any, width: Any, start: Any) -> Any:
    upper = builder.add(builder.lshr(_loaded(builder, address), _each(builder, width)), _eight(range(EIGHT)))
    at = builder.sub(upper, _each(builder, start))
    return _reduced(builder, "or", builder.shl(_eight([1] * EIGHT), at))


def _add_hashes(builder: Any, address: Any, mask: Any, totals: Any) -> Any:
    hashes = _hashes(builder, address)
    builder.store(builder.add(_loaded(builder, totals), hashes), _pointer(builder, totals)).align = EIGHT
    rest = builder.and_(hashes, _each(builder, mask))
    marks = builder.bitcast(builder.icmp_unsigned("==", rest, _eight([0] * EIGHT)), ir.IntType(EIGHT))
    return builder.zext(marks, ir.IntType(64))


def _read(address: Scalar) -> Sequence[int]:
    """Return eight places, where kernels are Python."""
    return list((ctypes.c_uint64 * EIGHT).from_address(int(address)))


def _hash(place: int) -> int:
    word = place + 1
    for factor in (FIRST_FACTOR, SECOND_FACTOR):
        word = word * factor & _WRAPPED
        word ^= word >> HALF
    return word


@intrinsic(_packed)
def packed(address: Scalar, width: Scalar) -> Scalar:
    """Return the lower bits of eight places side by side; `width` of each, at most eight."""
    mask = (1 << int(width)) - 1
    return np.uint64(sum((place & mask) << int(width) * i for i, place in enumerate(_read(address))))


@intrinsic(_spread)
def spread(address: Scalar, width: Scalar, start: Scalar) -> Scalar:
    """Return a word with a bit for each of eight places, at its upper bits plus its number less `start`: 0 to 63."""
    return np.uint64(sum(1 << (place >> int(width)) + i - int(start) for i, place in enumerate(_read(address))))


@intrinsic(_hashed)
def hashed(address: Scalar, mask: Scalar, totals: Scalar) -> Scalar:
    """Add the hashes of eight places to the eight words at `totals`; return a bit for each without a bit of `mask`.

    Eight totals, and not one: to add eight numbers up takes longer than to hash them.
    """
    words, marks = (ctypes.c_uint64 * EIGHT).from_address(int(totals)), 0
    for i, place in enumerate(_read(address)):
        word = _hash(place)
        words[i] = words[i] + word & _WRAPPED
        marks |= (word & int(mask) == 0) << i
    return np.uint64(marks)


@intrinsic(_set_long)
def set_long(address: Scalar, word: Scalar) -> None:
    """Write a 64-bit word to an address, which need not be a multiple of eight."""
    ctypes.c_uint64.from_address(int(address)).value = int(word)
