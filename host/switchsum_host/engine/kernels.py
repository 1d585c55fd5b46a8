"""Hot loops over one block of floats, and its scan; those of integers are in `integers`, of 16 and 8 bits in `narrow`.

`switchsum_protocol.lanes` is the definition; tests hold these loops against it.  Values are scaled and rounded to the
nearest even integer, and back they go through float32 to the array's dtype, rounding at each step.  By definition they
are scaled as float64.  Float32 is multiplied as it is where that gives the same bits, as it nearly always does: the
factor is then a power of two (`_is_single`).  Any other factor, as of an average of three ranks, and values of 16 bits
go through float64.
float16 and bfloat16, which numba does not have, are read and written as bit patterns.  A frame's lanes are big-endian.
Everything is addressed by int64, and `source` and `target` never overlap.  Results do not depend on what the thread has
asked of its floats (`switchsum_switch.kernels.floats`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_protocol.lane_scales import NOT_FINITE
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.floats import restore_floats, usual_floats
from switchsum_switch.kernels.memory import Scalar, floats_at, halves_at, swap, words_at
from switchsum_switch.kernels.outlined import Outlined

from .dtypes import BFLOAT16, EXACT, FLOAT16, FLOAT32, INT8
from .integers import ALL_ZERO, is_zero

_DOUBLE_BIAS: Final = 1023
_DOUBLE_FRACTION: Final = np.uint64((1 << 52) - 1)
"""Bits of a float64 behind sign and exponent."""
_SINGLE_MIN: Final = -126
_SINGLE_MAX: Final = 127
"""Least and largest exponent of float32's normal powers of two."""
HALF_BIAS_GAP: Final = 112
"""Exponent bias of float32 less that of float16."""
HALF_TO_SINGLE: Final = 2.0**HALF_BIAS_GAP
"""A float16's bits, moved to where float32 has its own, are too small by this factor."""
HALF_INFINITY: Final = 0x7C00
_HALF_SMALLEST_NORMAL: Final = 0x3880_0000
"""2**-14 as float32."""
_HALF_TOO_LARGE: Final = 0x477F_F000
"""65520 as float32: from here on float16 rounds to infinity."""
_ONE_HALF: Final = 0x3F00_0000
"""0.5 as float32, whose last bit is worth 2**-24 as a subnormal float16's."""
_NAN: Final = (0, 0x7FC0_0000, 0x7E00, 0x7FC0)
"""Quiet NaN by dtype."""
_ITEM_BYTES: Final = (4, 4, 2, 2, 1, 2, 4, 8, 4)
"""Size of a value by dtype."""


@inner
def item_bytes(dtype: int) -> int:
    """Return the size of one value."""
    return _ITEM_BYTES[dtype]


@inner
def power_of_two(power: Scalar) -> Scalar:
    """Return 2 to a power, which is -1022 to 1023."""
    return np.int64((power + _DOUBLE_BIAS) << 52).view(np.float64)


@inner
def bound_of(exponent: Scalar) -> Scalar:
    """Return the power of two below 2 ** power of which all values of a block with that exponent are."""
    at_least: Scalar = max(np.int64(exponent), np.int64(1))
    return at_least - 126


@Outlined
def scan(dtype: int, source: int, count: int) -> int:
    """Return a block's biased exponent (0 for integers and EXACT), or ALL_ZERO.

    Zero has a sign, and blocks of zeros do not travel: negative zeros in one are made positive, so that it has the same
    bits on every worker.  Nothing else is written.
    """
    if dtype == EXACT:
        return ALL_ZERO if _scan_words(source, count) == ALL_ZERO else 0
    if dtype >= INT8:
        return ALL_ZERO if is_zero(dtype, source, count) else 0
    if dtype not in (FLOAT16, BFLOAT16):
        return int(_scan_words(source, count))
    mode = usual_floats()
    exponent = int(_scan_halves(dtype, source, count))
    restore_floats(mode)
    return exponent


@inner
def _scan_words(source: int, count: int) -> Scalar:
    words = words_at(source, count)
    mask = np.uint32(0x7FFF_FFFF)
    largest = np.uint32(0)
    union = np.uint32(0)
    for i in range(count):
        word = np.uint32(words[i] & mask)
        largest = word if word > largest else largest
        union |= words[i]
    if largest == 0:
        if union != 0:
            words[:] = 0
        return ALL_ZERO
    return np.int64(largest >> np.uint32(23))


@inner
def _scan_halves(dtype: int, source: int, count: int) -> Scalar:
    halves = halves_at(source, count)
    largest = np.uint16(0)
    union = np.uint16(0)
    for i in range(count):
        half = np.uint16(halves[i] & np.uint16(0x7FFF))
        largest = half if half > largest else largest
        union |= halves[i]
    if largest == 0:
        if union != 0:
            halves[:] = 0
        return ALL_ZERO
    if dtype == BFLOAT16:
        return np.int64(largest >> np.uint16(7))
    if largest >= HALF_INFINITY:
        return NOT_FINITE
    value = np.float32(np.float64(np.uint32(np.uint32(largest) << np.uint32(13)).view(np.float32)) * HALF_TO_SINGLE)
    return np.int64(np.float32(value).view(np.uint32) >> np.uint32(23))


@Outlined
def pack(dtype: int, source: int, count: int, target: int, lanes: int, scale: float) -> int:
    """Write a block of `count` values into the `lanes` lanes of a frame; the rest become zero."""
    mode = usual_floats()
    words = words_at(target, lanes)
    if dtype == FLOAT32:
        values = floats_at(source, count)
        if _is_single(scale):
            factor = np.float32(scale)
            for i in range(count):
                words[i] = swap(np.uint32(np.int32(np.rint(np.float32(values[i] * factor)))))
        else:
            for i in range(count):
                words[i] = swap(np.uint32(np.int32(np.rint(np.float64(values[i]) * scale))))
    else:
        halves = halves_at(source, count)
        if dtype == BFLOAT16:
            for i in range(count):
                bits = np.uint32(np.uint32(halves[i]) << np.uint32(16))
                words[i] = swap(np.uint32(np.int32(np.rint(np.float64(bits.view(np.float32)) * scale))))
        else:
            # A power of two more in the scale changes no other bit of it.
            scale *= HALF_TO_SINGLE
            for i in range(count):
                half = np.uint32(halves[i])
                magnitude = (half & np.uint32(0x7FFF)) << np.uint32(13)
                bits = np.uint32(magnitude | ((half & np.uint32(0x8000)) << np.uint32(16)))
                words[i] = swap(np.uint32(np.int32(np.rint(np.float64(bits.view(np.float32)) * scale))))
    words[count:] = 0
    restore_floats(mode)
    return 0


@Outlined
def unpack(dtype: int, source: int, count: int, target: int, step: float) -> int:
    """Write the first `count` sums of a frame to the array, each times `step`."""
    mode = usual_floats()
    words = words_at(source, count)
    if dtype == FLOAT32:
        values = floats_at(target, count)
        if _is_single(step):
            factor = np.float32(step)
            for i in range(count):
                values[i] = np.float32(np.float32(np.int32(swap(words[i]))) * factor)
        else:
            for i in range(count):
                values[i] = np.float32(np.float64(np.int32(swap(words[i]))) * step)
    else:
        halves = halves_at(target, count)
        if dtype == BFLOAT16:
            for i in range(count):
                halves[i] = as_bfloat16(np.float32(np.float64(np.int32(swap(words[i]))) * step))
        else:
            for i in range(count):
                halves[i] = as_float16(np.float32(np.float64(np.int32(swap(words[i]))) * step))
    restore_floats(mode)
    return 0


@inner
def _is_single(factor: float) -> Scalar:
    """Tell whether a factor is a power of two by which float32 can be multiplied as well as float64.

    A product is then the float32 with another exponent, or so small that it is rounded to zero (`pack`), or the integer
    is rounded once, when it becomes a float32 (`unpack`, where no product but zero is subnormal).
    """
    bits = np.float64(factor).view(np.uint64)
    exponent = np.int64(bits >> np.uint64(52)) - _DOUBLE_BIAS
    return (bits & _DOUBLE_FRACTION) == np.uint64(0) and _SINGLE_MIN <= exponent <= _SINGLE_MAX


@inner
def as_bfloat16(value: Scalar) -> Scalar:
    """Round a finite or infinite float32 to nearest even and return the bits."""
    bits = np.float32(value).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@inner
def as_float16(value: Scalar) -> Scalar:
    """Round a finite or infinite float32 to nearest even and return the bits."""
    bits = np.float32(value).view(np.uint32)
    magnitude = np.uint32(bits & np.uint32(0x7FFF_FFFF))
    odd = (magnitude >> np.uint32(13)) & np.uint32(1)
    normal = ((magnitude + np.uint32(0xFFF) + odd) >> np.uint32(13)) - np.uint32(HALF_BIAS_GAP << 10)
    # Adding 0.5 rounds to a subnormal's last bit; without 0.5 again the bits left are the subnormal's.
    rounded = np.float32(magnitude.view(np.float32) + np.float32(0.5))
    subnormal = np.uint32(np.float32(rounded).view(np.uint32) - np.uint32(_ONE_HALF))
    half = subnormal if magnitude < np.uint32(_HALF_SMALLEST_NORMAL) else np.uint32(normal)
    half = np.uint32(HALF_INFINITY) if magnitude >= np.uint32(_HALF_TOO_LARGE) else half
    return np.uint16(half | ((bits >> np.uint32(16)) & np.uint32(0x8000)))


@Outlined
def fill_nan(dtype: int, target: int, count: int) -> int:
    """Make a block of floats all NaN."""
    if dtype == FLOAT32:
        words_at(target, count)[:] = _NAN[dtype]
    else:
        halves_at(target, count)[:] = _NAN[dtype]
    return 0
