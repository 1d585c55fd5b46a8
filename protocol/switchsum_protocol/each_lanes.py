"""Definition of lanes for floats that have an exponent each; `lanes` defines lanes with an exponent for each block."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .lane_scales import NOT_FINITE

EACH_BITS: Final = 25
"""A value with an exponent of its own is scaled to so many bits: the 24 of a float32, and one more."""
EACH_MOST_WORKERS: Final = 64
"""Most workers: the sum of so many values of `EACH_BITS` bits fits a lane of 32 bits."""
PLUS: Final = 1
MINUS: Final = 1 << 8
NO_NUMBER: Final = 1 << 16
"""Unit in which a lane counts infinities of either sign and NaN. There are at most EACH_MOST_WORKERS of each."""
_INFINITY: Final = 0x7F80_0000
"""Bits of float32's infinity."""


def each_step(exponents: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Return what one unit of a lane is worth where each value has its own largest exponent; see `quantise_each`."""
    return np.ldexp(1.0, np.maximum(exponents, 1).astype(np.int32) - (126 + EACH_BITS))


def quantise_each(values: npt.NDArray[np.float32], exponents: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Scale each value by its own exponent, the largest that any worker has in it, and round to nearest even.

    The scale does not depend on the number of workers: the rank with the largest exponent loses nothing, and of `n`
    ranks n - 1 are off by at most half a unit, a 2**-25th of the largest value.  Where the exponent is NOT_FINITE, the
    lane counts what is not finite: `PLUS` for infinity, `MINUS` for its negative and `NO_NUMBER` for NaN.
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
    """Turn sums of such lanes into values, divided by `divisor`; zero has no sign, and all NaN are the same."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = (sums / divisor * each_step(exponents)).astype(np.float32) + np.float32(0)
    plus, minus, no_number = sums % MINUS, sums // MINUS % MINUS, sums // NO_NUMBER
    infinite = np.where(plus > 0, np.where(minus > 0, np.nan, np.inf), -np.inf)
    counted = np.where(no_number > 0, np.nan, infinite).astype(np.float32)
    return np.where(exponents == NOT_FINITE, counted, finite)
