"""Lane formats and block exponents: how floats become integers that a switch can add, and back.

This module is the definition, in plain numpy and float64; `switchsum.host.kernels` does the same in place and fast.

A block of floats is scaled by one power of two, taken from the largest exponent that any worker has in that block.
With `n` workers and lanes of `w` bits, the largest magnitude maps to at most ``full_scale(n, w)``, so that the sum of
`n` lanes cannot overflow.  Adding integers does not depend on the order, so every worker gets the same bits.

Error bound: each worker rounds by at most half a step, so a sum of `n` is off by at most ``n / 2`` steps, where a step
is ``step(exponent, n, w)``; narrowing the result to its dtype rounds once more.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import UsageError

NOT_FINITE: Final = 255
"""Exponent of a block with an infinity or a NaN."""

MIN_SCALE_BITS: Final = 2
"""Lane formats that leave a value fewer bits than this are refused when a job is made."""


def full_scale(workers: int, lane_bits: int) -> int:
    """Return the largest magnitude a lane may hold so that the sum of `workers` fits `lane_bits`; raises UsageError."""
    scale = ((1 << (lane_bits - 1)) - 1) // workers
    if scale < (1 << MIN_SCALE_BITS) - 1:
        raise UsageError(f"{lane_bits}-bit lanes leave too few bits for the sum of {workers} workers")
    return scale


def block_exponent(values: npt.NDArray[np.float32]) -> int:
    """Return the largest biased IEEE exponent (0 to 255) of a block of float32."""
    bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0x7FFF_FFFF)
    return int(bits.max(initial=0)) >> 23


def step(exponent: int, workers: int, lane_bits: int) -> float:
    """Return the value of one unit of a lane; every finite float32 of that exponent is below ``step * full_scale``.

    Subnormals (exponent 0) share the range of exponent 1.
    """
    return 2.0 ** (max(exponent, 1) - 126) / full_scale(workers, lane_bits)


def quantise(values: npt.NDArray[np.float32], exponent: int, workers: int, lane_bits: int) -> npt.NDArray[np.int64]:
    """Scale and round to nearest even; `exponent` must be at least the block's own and finite."""
    scale = full_scale(workers, lane_bits) * 2.0 ** (126 - max(exponent, 1))
    return np.rint(values.astype(np.float64) * scale).astype(np.int64)


def dequantise(sums: npt.NDArray[np.int64], exponent: int, workers: int, lane_bits: int) -> npt.NDArray[np.float64]:
    """Turn integer sums back into values."""
    return sums.astype(np.float64) * step(exponent, workers, lane_bits)
