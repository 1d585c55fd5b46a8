"""Hot loops over one block of floats that travel as 16 or as 8 bits, and add up in lanes of 16.

Each value is rounded up or down at random, so that the mean is right: `switchsum_protocol.lanes.quantise_at_random` is
the definition.  Values of 8 bits are written as the switch takes them (docs/wire-rules.md, Lanes).  If it does not take
them, they are written into lanes of 16 bits: the sums are the same.  All else is as in `switchsum_host.engine.kernels`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_protocol.lane_scales import FRACTION_BITS, NOT_FINITE
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.floats import restore_floats, usual_floats
from switchsum_switch.kernels.memory import Scalar, bytes_at, floats_at, halves_at, swap, words_at
from switchsum_switch.kernels.mixing import drawn_at
from switchsum_switch.kernels.outlined import Outlined

from .dtypes import BFLOAT16, FLOAT32
from .kernels import HALF_BIAS_GAP, HALF_INFINITY, HALF_TO_SINGLE, as_bfloat16, as_float16

_LAST_EXPONENT: Final = (0, NOT_FINITE - 1, NOT_FINITE - 1 - HALF_BIAS_GAP, NOT_FINITE - 1)
"""Exponent of a block whose values may be the largest finite ones, by dtype."""
_INFINITY: Final = (0, 0x7F80_0000, HALF_INFINITY, 0x7F80)
"""Bits of infinity, by dtype. One less is the largest finite value."""


@Outlined
def pack_narrow(
    dtype: int,
    bits: int,
    lane_bits: int,
    source: int,
    count: int,
    target: int,
    words: int,
    scale: float,
    seed: int,
) -> int:
    """Write a block of `count` values into a frame of so many 32-bit words, `bits` of each; the rest become zero.

    With half of the bits of a lane, the upper half of the j-th is value j, and the lower one the value that comes half
    of all lanes later.  There are kernels for lanes of 16 bits, whole and by halves.
    """
    is_paired = bits < lane_bits
    mode = usual_floats()
    halves = halves_at(target, 2 * words)
    firsts = min(count, words) if is_paired else 0
    seconds = count - firsts if is_paired else 0
    scale *= 1 << FRACTION_BITS
    factor = np.float32(scale)
    if dtype == FLOAT32 and np.float64(factor) == scale:
        # Apart, so that the loops have no branches and run several values at a time.
        values = floats_at(source, count)
        for i in range(seconds):
            first = _rounded(np.float32(values[i] * factor), seed, i)
            halves[i] = _pair(first, _rounded(np.float32(values[words + i] * factor), seed, words + i))
        for i in range(seconds, firsts):
            halves[i] = _pair(_rounded(np.float32(values[i] * factor), seed, i), np.uint32(0))
        for i in range(0 if is_paired else count):
            halves[i] = swap(np.uint16(_rounded(np.float32(values[i] * factor), seed, i)))
    else:
        for i in range(seconds):
            first = _rounded(np.float32(_value(dtype, source, i) * scale), seed, i)
            second = _rounded(np.float32(_value(dtype, source, words + i) * scale), seed, words + i)
            halves[i] = _pair(first, second)
        for i in range(seconds, firsts):
            halves[i] = _pair(_rounded(np.float32(_value(dtype, source, i) * scale), seed, i), np.uint32(0))
        for i in range(0 if is_paired else count):
            halves[i] = swap(np.uint16(_rounded(np.float32(_value(dtype, source, i) * scale), seed, i)))
    used = 2 * firsts if is_paired else 2 * count
    bytes_at(target + used, (2 if is_paired else 4) * words - used)[:] = 0
    restore_floats(mode)
    return 0


@Outlined
def unpack_narrow(dtype: int, source: int, count: int, target: int, step: float) -> int:
    """Write the first `count` sums of a frame with lanes of 16 bits to the array, each times `step`."""
    mode = usual_floats()
    lanes = halves_at(source, count)
    if dtype == FLOAT32:
        values = floats_at(target, count)
        for i in range(count):
            values[i] = np.float32(np.float64(np.int16(swap(lanes[i]))) * step)
    else:
        results = halves_at(target, count)
        for i in range(count):
            value = np.float32(np.float64(np.int16(swap(lanes[i]))) * step)
            results[i] = as_bfloat16(value) if dtype == BFLOAT16 else as_float16(value)
    restore_floats(mode)
    return 0


@inner
def _value(dtype: int, source: int, index: int) -> Scalar:
    """Return one value as float64."""
    if dtype == FLOAT32:
        return np.float64(floats_at(source + 4 * index, 1)[0])
    half = np.uint32(halves_at(source + 2 * index, 1)[0])
    if dtype == BFLOAT16:
        return np.float64(np.uint32(half << np.uint32(16)).view(np.float32))
    magnitude = (half & np.uint32(0x7FFF)) << np.uint32(13)
    bits = np.uint32(magnitude | ((half & np.uint32(0x8000)) << np.uint32(16)))
    return np.float64(bits.view(np.float32)) * HALF_TO_SINGLE


@inner
def _rounded(fixed: Scalar, seed: int, index: int) -> Scalar:
    """Round a number of ``2**-FRACTION_BITS`` down, after less than 1 was added to it, drawn from seed and index.

    Return it in two's complement, below bits that mean nothing.
    """
    drawn = np.uint32(drawn_at(seed, index) >> np.uint32(32 - FRACTION_BITS))
    return np.uint32(np.uint32(np.uint32(np.int32(np.rint(fixed))) + drawn) >> np.uint32(FRACTION_BITS))


@inner
def _pair(first: Scalar, second: Scalar) -> Scalar:
    """Return the lowest bytes of two words side by side, as a half lies in memory."""
    return swap(np.uint16(np.uint32(np.uint32(first) << np.uint32(8)) | np.uint32(second & np.uint32(0xFF))))


@inner
def can_round_to_infinity(dtype: int, exponent: int) -> bool:
    """Tell whether a step more than a block's largest value may be infinite."""
    return exponent >= _LAST_EXPONENT[dtype]


@Outlined
def limit(dtype: int, target: int, count: int) -> int:
    """Make infinities of a block of floats the largest finite values."""
    if dtype == FLOAT32:
        words = words_at(target, count)
        for i in range(count):
            words[i] -= np.uint32(words[i] & np.uint32(0x7FFF_FFFF) == _INFINITY[FLOAT32])
    else:
        halves = halves_at(target, count)
        for i in range(count):
            halves[i] -= np.uint16(halves[i] & np.uint16(0x7FFF) == _INFINITY[dtype])
    return 0
