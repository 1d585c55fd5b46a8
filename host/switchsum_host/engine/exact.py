"""Blocks of a few float32 as integers so wide that nothing is lost: they need no exponent, and so one round, not two.

A finite float32 is an integer of 277 bits, with its sign, times 2**-149: 11 digits of 26 bits, of which at most two,
side by side, are not zero.  A digit takes a lane of 32 bits, in which those of 32 workers add up without overflow.
Behind the digits of all values comes one lane that counts the workers that have a NaN or an infinity.  The sum is
rounded to float64 and then to float32, the same way on all ranks.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_protocol.lane_scales import NOT_FINITE
from switchsum_switch.kernels.floats import restore_floats, usual_floats
from switchsum_switch.kernels.memory import floats_at, swap, words_at
from switchsum_switch.kernels.outlined import Outlined

from .dtypes import DIGITS

DIGIT_BITS: Final = 26
_DIGIT: Final = (1 << DIGIT_BITS) - 1
_LEAST: Final = -149
"""Exponent of the smallest float32."""
_FRACTION_BITS: Final = 23

_WORTH: Final = tuple(2.0 ** (_LEAST + DIGIT_BITS * digit) for digit in range(DIGITS))
"""Value of one unit of each digit."""


@Outlined
def pack_exact(source: int, count: int, target: int, lanes: int) -> int:
    """Write a block of `count` values into the `lanes` lanes of a frame; the rest become zero."""
    values, digits = words_at(source, count), words_at(target, lanes)
    digits[:] = 0
    for i in range(count):
        word = np.int64(values[i])
        exponent = (word >> _FRACTION_BITS) & 0xFF
        if exponent == NOT_FINITE:
            digits[count * DIGITS] = swap(np.uint32(1))
            continue
        magnitude = word & ((1 << _FRACTION_BITS) - 1)
        if exponent > 0:
            magnitude |= 1 << _FRACTION_BITS
        shift = exponent - (exponent > 0)
        magnitude <<= shift % DIGIT_BITS
        sign = -1 if word >> 31 else 1
        place = i * DIGITS + shift // DIGIT_BITS
        digits[place] = swap(np.uint32(sign * (magnitude & _DIGIT)))
        digits[place + 1] = swap(np.uint32(sign * (magnitude >> DIGIT_BITS)))
    return 0


@Outlined
def unpack_exact(source: int, count: int, target: int, share: float) -> int:
    """Write the sums of a frame to the array, each times `share`; all NaN if a worker had one or an infinity."""
    mode = usual_floats()
    lanes, values = words_at(source, count * DIGITS + 1), floats_at(target, count)
    is_finite = lanes[count * DIGITS] == 0
    for i in range(count):
        total = 0.0
        for digit in range(DIGITS - 1, -1, -1):
            total += np.float64(np.int32(swap(lanes[i * DIGITS + digit]))) * _WORTH[digit]
        values[i] = np.float32(total * share) if is_finite else np.float32(np.nan)
    restore_floats(mode)
    return 0
