"""Lane formats and block exponents: how floats become integers that a switch can add, and back.

This module is the definition, in plain numpy and float64; `host/engine/kernels.py` does the same in place and fast.

A block of floats is scaled by one power of two, taken from the largest exponent that any worker has in that block.
With `n` workers and values of `w` bits, the largest magnitude maps to at most ``full_scale(n, w)``, so that the sum of
`n` lanes cannot overflow.  Values of 32 and 16 bits add up in lanes of as many, those of 8 in lanes of 16: up to 258
workers have all 127 steps each.  Adding integers does not depend on the order, so every worker gets the same bits.
The full scale of 32-bit lanes is a power of two: scaling then changes no bit of a float32, and may be done in float32.

Error bound: each worker rounds by at most half a step, so a sum of `n` is off by at most ``n / 2`` steps, where a step
is ``step(exponent, n, w)``; narrowing the result to its dtype rounds once more.  Values of 16 and 8 bits are rounded at
random instead, which is off by less than a step and right in the mean.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

NOT_FINITE: Final = 255
"""Exponent of a block with an infinity or a NaN."""

WIDE_BITS: Final = 32
"""Lanes that have room for all bits of a float32."""

EACH_BITS: Final = 25
"""Bits to which a value is scaled that has an exponent of its own: as many as a float32 has, and one."""
EACH_MOST_WORKERS: Final = 64
"""So many values of `EACH_BITS` bits fit a lane of 32."""
PLUS: Final = 1
MINUS: Final = 1 << 8
NO_NUMBER: Final = 1 << 16
"""What a lane counts infinities of either sign and NaN by, which are at most EACH_MOST_WORKERS each."""
_INFINITY: Final = 0x7F80_0000
"""Bits of float32's."""

FRACTION_BITS: Final = 16
"""How finely a value is placed between the two integers that it may be rounded to at random."""
GOLDEN: Final = 0x9E37_79B9
"""2**32 over the golden ratio: its multiples are spread evenly."""

NARROW_SUM_BITS: Final = 16
"""Lanes in which values of 16 and of 8 bits add up."""


def full_scale(workers: int, bits: int) -> int:
    """Return what values of 32, 16 or 8 bits are scaled to, so that the sum of `workers` fits its lane.

    Values of 32 bits stay below it, for a float32 is below its power of two by a 2**-24th of that at least.
    """
    if bits == WIDE_BITS:
        return 1 << (bits - 1) >> (workers - 1).bit_length()
    return min((1 << (bits - 1)) - 1, ((1 << (NARROW_SUM_BITS - 1)) - 1) // workers)


def block_exponent(values: npt.NDArray[np.float32]) -> int:
    """Return the largest biased IEEE exponent (0 to 255) of a block of float32."""
    bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0x7FFF_FFFF)
    return int(bits.max(initial=0)) >> 23


def step(exponent: int, workers: int, bits: int) -> float:
    """Return the value of one unit of a lane; every finite float32 of that exponent is below ``step * full_scale``.

    Subnormals (exponent 0) share the range of exponent 1.
    """
    return 2.0 ** (max(exponent, 1) - 126) / full_scale(workers, bits)


def quantise(values: npt.NDArray[np.float32], exponent: int, workers: int, bits: int) -> npt.NDArray[np.int64]:
    """Scale and round to nearest even; `exponent` must be at least the block's own and finite."""
    scale = full_scale(workers, bits) * 2.0 ** (126 - max(exponent, 1))
    return np.rint(values.astype(np.float64) * scale).astype(np.int64)


def quantise_at_random(
    values: npt.NDArray[np.float32], exponent: int, workers: int, bits: int, seed: int
) -> npt.NDArray[np.int64]:
    """Scale and round each value up or down at random, so that its mean is the value; at most `full_scale` either way.

    What is drawn depends on the 32-bit seed and on the value's index alone.  A sum of `n` is then off by less than `n`
    steps, and in the mean by less than `n` times ``2**-FRACTION_BITS`` of one.
    """
    scale = full_scale(workers, bits) * 2.0 ** (126 + FRACTION_BITS - max(exponent, 1))
    # Rounded to a float32 first: that is half a bit of the value itself, and may then be done in float32.
    fixed = np.rint((values.astype(np.float64) * scale).astype(np.float32)).astype(np.int64)
    index = np.arange(len(values), dtype=np.uint32)
    drawn = mixed(np.uint32(seed) + index * np.uint32(GOLDEN)) >> np.uint32(32 - FRACTION_BITS)
    return (fixed + drawn) >> FRACTION_BITS


def mixed(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Mix the bits of 32-bit words (the finaliser of MurmurHash3, which is in the public domain)."""
    for shift, factor in ((16, 0x85EB_CA6B), (13, 0xC2B2_AE35)):
        words = (words ^ (words >> np.uint32(shift))) * np.uint32(factor)
    return words ^ (words >> np.uint32(16))


def each_step(exponents: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Return what one unit of a lane is worth where each value has its own largest exponent; see `quantise_each`."""
    return np.ldexp(1.0, np.maximum(exponents, 1).astype(np.int32) - (126 + EACH_BITS))


def quantise_each(values: npt.NDArray[np.float32], exponents: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Scale each value by its own exponent, the largest that any worker has in it, and round to nearest even.

    The scale does not depend on the number of workers: the rank with the largest exponent loses nothing, and of `n`
    ranks n - 1 are off by at most half a unit, a 2**-25th of the largest value.  Where the exponent is NOT_FINITE, the
    lane counts what is not: `PLUS` for infinity, `MINUS` for its negative and `NO_NUMBER` for NaN.
    """
    words = values.view(np.uint32)
    magnitudes, is_negative = words & np.uint32(0x7FFF_FFFF), words >> np.uint32(31) == 1
    with np.errstate(invalid="ignore"):
        finite = np.where(exponents == NOT_FINITE, 0, np.rint(values.astype(np.float64) / each_step(exponents)))
    infinite = np.where(magnitudes == _INFINITY, np.where(is_negative, MINUS, PLUS), 0)
    counted = np.where(magnitudes > _INFINITY, NO_NUMBER, infinite)
    return np.where(exponents == NOT_FINITE, counted, finite.astype(np.int64))


def dequantise_each(
    sums: npt.NDArray[np.int64], exponents: npt.NDArray[np.uint8], divisor: int = 1
) -> npt.NDArray[np.float32]:
    """Turn such sums back into values, over `divisor`; zero has no sign, and all NaN are the same."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = (sums / divisor * each_step(exponents)).astype(np.float32) + np.float32(0)
    plus, minus, no_number = sums % MINUS, sums // MINUS % MINUS, sums // NO_NUMBER
    infinite = np.where(plus > 0, np.where(minus > 0, np.nan, np.inf), -np.inf)
    counted = np.where(no_number > 0, np.nan, infinite).astype(np.float32)
    return np.where(exponents == NOT_FINITE, counted, finite)


def dequantise(sums: npt.NDArray[np.int64], exponent: int, workers: int, bits: int) -> npt.NDArray[np.float64]:
    """Turn integer sums back into values."""
    return sums.astype(np.float64) * step(exponent, workers, bits)
