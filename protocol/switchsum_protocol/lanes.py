"""Lane formats and block exponents: how floats become integers that a switch can add, and back.

This module is the definition, in plain numpy and float64; `engine/kernels.py` does the same in place and fast.

A block of floats is scaled by one power of two, taken from the largest exponent that any worker has in that block.
With `n` workers and values of `w` bits, the largest magnitude maps to at most ``full_scale(n, w)``, so that the sum of
`n` lanes cannot overflow.  Values of 32 and 16 bits add up in lanes as wide, values of 8 bits in lanes of 16: up to 258
workers have all 127 steps each.  Adding integers does not depend on the order, so every worker gets the same bits.
The full scale of 32-bit lanes is a power of two: scaling then changes no bit of a float32, and may be done in float32.

Error bound: each worker rounds by at most half a step, so a sum of `n` is off by at most ``n / 2`` steps, where a step
is ``step(exponent, n, w)``; narrowing the result to its dtype rounds once more.  Values of 16 and 8 bits are rounded at
random instead, which is off by less than a step and right in the mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.constants import GOLDEN

from .frame import LaneFormat
from .lane_scales import FRACTION_BITS, full_scale, step


def block_exponent(values: npt.NDArray[np.float32]) -> int:
    """Return the largest biased IEEE exponent (0 to 255) of a block of float32."""
    bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0x7FFF_FFFF)
    return int(bits.max(initial=0)) >> 23


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
    # Rounded to a float32 first: it costs half a bit of the value, and lets kernels compute in float32.
    fixed = np.rint((values.astype(np.float64) * scale).astype(np.float32)).astype(np.int64)
    index = np.arange(len(values), dtype=np.uint32)
    drawn = mixed(np.uint32(seed) + index * np.uint32(GOLDEN)) >> np.uint32(32 - FRACTION_BITS)
    return (fixed + drawn) >> FRACTION_BITS


def mixed(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Mix the bits of 32-bit words (the finaliser of MurmurHash3, which is in the public domain)."""
    for shift, factor in ((16, 0x85EB_CA6B), (13, 0xC2B2_AE35)):
        words = (words ^ (words >> np.uint32(shift))) * np.uint32(factor)
    return words ^ (words >> np.uint32(16))


def dequantise(sums: npt.NDArray[np.int64], exponent: int, workers: int, bits: int) -> npt.NDArray[np.float64]:
    """Turn integer sums back into values."""
    return sums.astype(np.float64) * step(exponent, workers, bits)


def widened(payload: bytes, lane_format: LaneFormat = LaneFormat.WIDENED) -> npt.NDArray[np.uint8]:
    """Return the lanes of a payload of half of each lane.

    As many bits as a lane has are for two lanes: the upper half of the j-th is for lane j, and the lower one for the
    lane that comes half of all lanes later.
    """
    bits, sign = lane_format.value_bits, 1 << (lane_format.value_bits - 1)
    pairs = np.frombuffer(payload, lane_format.dtype.replace("i", "u")).astype(np.int64)
    halves = np.concatenate([pairs >> bits, pairs & ((1 << bits) - 1)])
    return ((halves ^ sign) - sign).astype(lane_format.dtype).view(np.uint8)
