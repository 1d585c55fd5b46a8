"""Numbers by which operations and kernels know dtypes, and what a lane holds of a value."""

from __future__ import annotations

from typing import Final

NO_DTYPE: Final = 0
"""Code of an operation without values."""
FLOAT32: Final = 1
FLOAT16: Final = 2
BFLOAT16: Final = 3
INT8: Final = 4
INT16: Final = 5
INT32: Final = 6
INT64: Final = 7
"""Code of 64-bit integers. The codes do not tell whether integers have a sign."""
EXACT: Final = 8
"""Few float32 as integers that lose nothing, see `switchsum_host.engine.exact`; like integers without exponent."""

AS_IS: Final = 0
UNSIGNED: Final = 1
"""Mapping that flips the top bit of an unsigned value, so that signed lanes sort as the values do."""
FLOAT_MAX: Final = 2
"""Mapping of floats to lanes that sort as the floats do, with NaN above everything."""
FLOAT_MIN: Final = 3
"""The same mapping, but with NaN below everything."""

DIGITS: Final = 11
"""Lanes of one EXACT value."""


def most_values(lanes_per_frame: int) -> int:
    """Return how many EXACT values fit frames of so many 32-bit lanes."""
    return (lanes_per_frame - 1) // DIGITS


def has_marks(dtype: int) -> bool:
    """Tell whether sums may be too large for a dtype; each block then has a mark that says so."""
    return INT8 <= dtype <= INT64
