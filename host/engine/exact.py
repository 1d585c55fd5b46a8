"""Sums of a few float32 as integers so wide that nothing is lost: they need no exponent, and so one round, not two.

A finite float32 is an integer of 277 bits, with its sign, times 2**-149: 11 digits of 26 bits, of which at most two,
side by side, are not zero.  A digit takes a lane of 32 bits, in which those of 32 workers add up without overflow.
Behind the digits of all values comes one lane that counts the workers that have a NaN or an infinity.  The sum is
rounded to float64 and then to float32, the same way on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.native.floats import restore_floats, usual_floats
from switchsum.native.kernels import Outlined, carray, inner, kernel
from switchsum.native.memory import address_of, floats_at, pointer
from switchsum.protocol.lanes import NOT_FINITE

from .prepared import Prepared
from .state import OPERATION

DIGITS: Final = 11
"""Lanes of one value."""
DIGIT_BITS: Final = 26
_DIGIT: Final = (1 << DIGIT_BITS) - 1
_LEAST: Final = -149
"""Exponent of the smallest float32."""
_FRACTION_BITS: Final = 23

_WORTH: Final = tuple(2.0 ** (_LEAST + DIGIT_BITS * digit) for digit in range(DIGITS))
"""What one unit of each digit is worth."""

Digits = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Few:
    """What exact sums of one kind need that are called one after the other."""

    prepared: Prepared
    digits: Digits
    """Scratch: a sum's lanes."""
    marks: npt.NDArray[np.uint8]
    """Set where a sum overflows, which none does."""
    record: npt.NDArray[Any]
    """One `OPERATION` that adds `digits`, ready to be submitted; its `share` is what sums are multiplied by."""
    address: int
    """Of the record."""

    @classmethod
    def of(cls, prepared: Prepared, share: float) -> Few:
        """Make room for one at a time."""
        digits, marks, record = np.zeros(prepared.size, np.int32), np.zeros(1, np.uint8), np.zeros(1, OPERATION)
        prepared.fill(record.view(np.uint8).data, 0, address_of(digits), address_of(marks))
        record["share"] = share  # of integers the engine does not look at it
        return cls(prepared, digits, marks, record, address_of(record.view(np.int64)))

    @property
    def share(self) -> float:
        """What sums are multiplied by."""
        return float(self.record["share"][0])


def most_values(lanes: int) -> int:
    """Return how many values fit frames of so many 32-bit lanes."""
    return (lanes - 1) // DIGITS


def digits_of(values: npt.NDArray[Any]) -> Digits:
    """Return the lanes of contiguous float32."""
    digits = np.empty(values.size * DIGITS + 1, np.int32)
    write_digits(values.reshape(-1).view(np.uint32), digits)
    return digits


@kernel
def write_digits(words: npt.NDArray[np.uint32], digits: Digits) -> None:
    """Write the lanes of values, of which these are the bits."""
    digits[:] = 0
    for i in range(len(words)):
        word = np.int64(words[i])
        exponent = (word >> _FRACTION_BITS) & 0xFF
        if exponent == NOT_FINITE:
            digits[-1] = 1
            continue
        magnitude = word & ((1 << _FRACTION_BITS) - 1)
        if exponent > 0:
            magnitude |= 1 << _FRACTION_BITS
        shift = exponent - (exponent > 0)
        magnitude <<= shift % DIGIT_BITS
        sign = -1 if word >> 31 else 1
        place = i * DIGITS + shift // DIGIT_BITS
        digits[place] = sign * (magnitude & _DIGIT)
        digits[place + 1] = sign * (magnitude >> DIGIT_BITS)


def put_sums(digits: Digits, share: float, values: npt.NDArray[np.float32]) -> None:
    """Write the sums that lanes have come to, each times `share`; all NaN if a worker had one or an infinity."""
    _put_sums(address_of(digits), len(values), share, address_of(values))


@inner
def put_sums_at(digits: int, count: int, share: float, values: int) -> int:
    """Do so with `count` values at an address.

    Not with arrays, of which numba tells the compiler that nothing else gets at them: it would add some of them up
    before or after floats are as usual.
    """
    mode = usual_floats()
    lanes, sums = carray(pointer(digits), (count * DIGITS + 1,), np.int32), floats_at(values, count)
    for i in range(count):
        total = 0.0
        for digit in range(DIGITS - 1, -1, -1):
            total += lanes[i * DIGITS + digit] * _WORTH[digit]
        sums[i] = np.float32(np.nan) if lanes[count * DIGITS] != 0 else np.float32(total * share)
    restore_floats(mode)
    return 0


@Outlined
def _put_sums(digits: int, count: int, share: float, values: int) -> int:
    return int(put_sums_at(digits, count, share, values))
