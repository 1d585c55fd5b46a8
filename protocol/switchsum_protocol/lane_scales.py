"""What floats are scaled by before the switch adds them: numbers of the lane formats that `lanes` defines."""

from __future__ import annotations

from typing import Final

NOT_FINITE: Final = 255
"""Exponent of a block with an infinity or a NaN."""

WIDE_BITS: Final = 32
"""Width of lanes that have room for all bits of a float32."""

FRACTION_BITS: Final = 16
"""Bits behind the point that random rounding looks at: 2**16 places between two integers."""

NARROW_SUM_BITS: Final = 16
"""Width of the lanes in which values of 16 and of 8 bits add up, if nothing else is said."""


def full_scale(workers: int, bits: int, lane_bits: int = NARROW_SUM_BITS) -> int:
    """Return what values of so many bits are scaled to, so that the sum of `workers` fits its lane.

    Values of 32 bits stay below it, for a float32 is below its power of two by a 2**-24th of that at least.
    """
    if bits == WIDE_BITS:
        return 1 << (bits - 1) >> (workers - 1).bit_length()
    return min((1 << (bits - 1)) - 1, ((1 << (lane_bits - 1)) - 1) // workers)


def step(exponent: int, workers: int, bits: int, lane_bits: int = NARROW_SUM_BITS) -> float:
    """Return the value of one unit of a lane; every finite float32 of that exponent is below ``step * full_scale``.

    Subnormals (exponent 0) share the range of exponent 1.
    """
    return 2.0 ** (max(exponent, 1) - 126) / full_scale(workers, bits, lane_bits)
