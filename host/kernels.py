"""Hot loops over one block: scan, pack and unpack.

`switchsum.protocol.lanes` is the definition; tests hold these loops against it.  Values become float64, are scaled and
rounded to the nearest even integer, and back they go through float32 to the array's dtype, rounding at each step.
float16 and bfloat16, which numba does not have, are read and written as bit patterns.  A frame's lanes are big-endian.
Everything is addressed by int64, and `source` and `target` never overlap.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.host.memory import Scalar, floats_at, halves_at, inner, words_at
from switchsum.protocol.kernels import kernel
from switchsum.protocol.lanes import NOT_FINITE

NO_DTYPE: Final = 0
"""Of an operation without values."""
FLOAT32: Final = 1
FLOAT16: Final = 2
BFLOAT16: Final = 3
INT32: Final = 4

ALL_ZERO: Final = -1
"""What `scan` returns for a block of zeros."""

HALF_BITS: Final = 16
"""An int32 that overflowed in the sum is added again in two halves of this many bits."""

_INT32_MIN: Final = -(1 << 31)
_INT32_MAX: Final = (1 << 31) - 1

_HALF_BIAS_GAP: Final = 112
"""Exponent bias of float32 less that of float16."""
_HALF_TO_SINGLE: Final = 2.0**_HALF_BIAS_GAP
"""A float16's bits, moved to where float32 has its own, are too small by this factor."""
_HALF_INFINITY: Final = 0x7C00
_HALF_SMALLEST_NORMAL: Final = 0x3880_0000
"""2**-14 as float32."""
_HALF_TOO_LARGE: Final = 0x477F_F000
"""65520 as float32: from here on float16 rounds to infinity."""
_ONE_HALF: Final = 0x3F00_0000
"""0.5 as float32, whose last bit is worth 2**-24 as a subnormal float16's."""
_NAN: Final = (0, 0x7FC0_0000, 0x7E00, 0x7FC0, 0)
"""Quiet NaN by dtype."""


@inner
def item_bytes(dtype: int) -> int:
    """Return the size of one value."""
    return 2 if dtype in (FLOAT16, BFLOAT16) else 4


@inner
def swap(word: Scalar) -> Scalar:
    """Reverse the bytes of a uint32."""
    return (
        ((word & np.uint32(0xFF)) << np.uint32(24))
        | ((word & np.uint32(0xFF00)) << np.uint32(8))
        | ((word >> np.uint32(8)) & np.uint32(0xFF00))
        | (word >> np.uint32(24))
    )


@kernel
def scan(dtype: int, source: int, count: int) -> Scalar:
    """Return a block's biased exponent (0 for integers), or ALL_ZERO.

    Zero has a sign, and blocks of zeros do not travel: negative zeros in one are made positive, so that it has the same
    bits on every worker.  Nothing else is written.
    """
    if dtype in (FLOAT16, BFLOAT16):
        return _scan_halves(dtype, source, count)
    return _scan_words(dtype, source, count)


@inner
def _scan_words(dtype: int, source: int, count: int) -> Scalar:
    words = words_at(source, count)
    mask = np.uint32(0xFFFF_FFFF if dtype == INT32 else 0x7FFF_FFFF)
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
    return 0 if dtype == INT32 else np.int64(largest >> np.uint32(23))


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
    if largest >= _HALF_INFINITY:
        return NOT_FINITE
    value = np.float32(np.float64(np.uint32(np.uint32(largest) << np.uint32(13)).view(np.float32)) * _HALF_TO_SINGLE)
    return np.int64(np.float32(value).view(np.uint32) >> np.uint32(23))


@kernel
def pack(dtype: int, source: int, count: int, target: int, lanes: int, scale: float) -> None:
    """Write a block of `count` values into the `lanes` lanes of a frame; the rest become zero."""
    words = words_at(target, lanes)
    if dtype == INT32:
        integers = words_at(source, count)
        for i in range(count):
            words[i] = swap(integers[i])
    elif dtype == FLOAT32:
        values = floats_at(source, count)
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
            scale *= _HALF_TO_SINGLE
            for i in range(count):
                half = np.uint32(halves[i])
                magnitude = (half & np.uint32(0x7FFF)) << np.uint32(13)
                bits = np.uint32(magnitude | ((half & np.uint32(0x8000)) << np.uint32(16)))
                words[i] = swap(np.uint32(np.int32(np.rint(np.float64(bits.view(np.float32)) * scale))))
    words[count:] = 0


@kernel
def unpack(dtype: int, source: int, count: int, target: int, step: float) -> None:
    """Write the first `count` sums of a frame to the array, each times `step` (integers as they are)."""
    words = words_at(source, count)
    if dtype == INT32:
        integers = words_at(target, count)
        for i in range(count):
            integers[i] = swap(words[i])
    elif dtype == FLOAT32:
        values = floats_at(target, count)
        for i in range(count):
            values[i] = np.float32(np.float64(np.int32(swap(words[i]))) * step)
    else:
        halves = halves_at(target, count)
        if dtype == BFLOAT16:
            for i in range(count):
                halves[i] = _bfloat16(np.float32(np.float64(np.int32(swap(words[i]))) * step))
        else:
            for i in range(count):
                halves[i] = _float16(np.float32(np.float64(np.int32(swap(words[i]))) * step))


@inner
def _bfloat16(value: Scalar) -> Scalar:
    """Round a finite or infinite float32 to nearest even and return the bits."""
    bits = np.float32(value).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@inner
def _float16(value: Scalar) -> Scalar:
    """Round a finite or infinite float32 to nearest even and return the bits."""
    bits = np.float32(value).view(np.uint32)
    magnitude = np.uint32(bits & np.uint32(0x7FFF_FFFF))
    odd = (magnitude >> np.uint32(13)) & np.uint32(1)
    normal = ((magnitude + np.uint32(0xFFF) + odd) >> np.uint32(13)) - np.uint32(_HALF_BIAS_GAP << 10)
    # Adding 0.5 rounds to a subnormal's last bit; without 0.5 again the bits left are the subnormal's.
    rounded = np.float32(magnitude.view(np.float32) + np.float32(0.5))
    subnormal = np.uint32(np.float32(rounded).view(np.uint32) - np.uint32(_ONE_HALF))
    half = subnormal if magnitude < np.uint32(_HALF_SMALLEST_NORMAL) else np.uint32(normal)
    half = np.uint32(_HALF_INFINITY) if magnitude >= np.uint32(_HALF_TOO_LARGE) else half
    return np.uint16(half | ((bits >> np.uint32(16)) & np.uint32(0x8000)))


@kernel
def fill_nan(dtype: int, target: int, count: int) -> None:
    """Make a block of floats all NaN."""
    if dtype == FLOAT32:
        words_at(target, count)[:] = _NAN[dtype]
    else:
        halves_at(target, count)[:] = _NAN[dtype]


@kernel
def pack_half(source: int, count: int, target: int, lanes: int, high: bool) -> None:
    """Write the low (0 to 65535) or high (signed) half of each int32 into a frame's lanes."""
    words = words_at(target, lanes)
    integers = words_at(source, count)
    for i in range(count):
        value = np.int32(integers[i])
        half = (value >> np.int32(HALF_BITS)) if high else (value & np.int32(0xFFFF))
        words[i] = swap(np.uint32(np.int32(half)))
    words[count:] = 0


@kernel
def keep_low(source: int, count: int, kept: npt.NDArray[np.uint32]) -> None:
    """Put the sums of the low halves, as the frame has them, aside until those of the high halves come."""
    words = words_at(source, count)
    for i in range(count):
        kept[i] = words[i]


@kernel
def join_halves(source: int, count: int, kept: npt.NDArray[np.uint32], target: int) -> bool:
    """Write the exact sums, made of both halves; one beyond int32 becomes its nearest, and the answer False."""
    high = words_at(source, count)
    integers = words_at(target, count)
    fits = True
    for i in range(count):
        total: Scalar = (np.int64(np.int32(swap(high[i]))) << HALF_BITS) + np.int64(np.int32(swap(kept[i])))
        limited: Scalar = min(max(total, _INT32_MIN), _INT32_MAX)
        fits &= limited == total
        integers[i] = np.uint32(np.int32(limited))
    return fits
