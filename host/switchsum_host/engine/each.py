"""Hot loops over floats that have an exponent each, instead of one exponent for a block.

`switchsum_protocol.each_lanes` is the definition.  Values become lanes, and lanes sums, where they lie in memory; as
float32, the other dtypes are narrower.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.each_lanes import EACH_BITS, MINUS, NO_NUMBER, PLUS
from switchsum_protocol.lane_scales import NOT_FINITE
from switchsum_switch.kernels.decorators import inner, kernel
from switchsum_switch.kernels.floats import restore_floats, usual_floats
from switchsum_switch.kernels.memory import Scalar
from switchsum_switch.kernels.plain import wrapping

Words = npt.NDArray[np.uint32]
"""Float32 as bits, or lanes."""
Exponents = npt.NDArray[np.uint8]

_UNIT: Final = 126 + EACH_BITS
"""Number to subtract from an exponent; the difference is the exponent of a lane's unit."""
_DOUBLE_BIAS: Final = 1023
_DOUBLE_FRACTION_BITS: Final = 52
_MAGNITUDE: Final = 0x7FFF_FFFF
_INFINITY: Final = 0x7F80_0000
_MINUS_INFINITY: Final = 0xFF80_0000
_NAN: Final = 0x7FC0_0000


@kernel
def find_exponents(words: Words, exponents: Exponents) -> None:
    """Write the biased exponent of each value."""
    for i in range(words.size):
        exponents[i] = (words[i] >> np.uint32(23)) & np.uint32(0xFF)


@kernel
@wrapping
def narrow(words: Words, exponents: Exponents) -> None:
    """Make lanes of values, by the largest exponent that any rank has in each."""
    mode = usual_floats()
    for i in range(words.size):
        exponent: Scalar = max(np.int64(exponents[i]), 1)
        value = np.float64(np.uint32(words[i]).view(np.float32))
        lane = np.int32(np.rint(value * _power(_UNIT - exponent)))
        words[i] = np.uint32(lane) if exponents[i] != NOT_FINITE else _counted(words[i])
    restore_floats(mode)


@kernel
@wrapping
def widen(words: Words, exponents: Exponents, divisor: float) -> None:
    """Make values of sums of lanes, each over `divisor`."""
    mode = usual_floats()
    for i in range(words.size):
        exponent: Scalar = max(np.int64(exponents[i]), 1)
        total = np.int32(words[i])
        value = np.float32(np.float64(total) / divisor * _power(exponent - _UNIT))
        value = np.float32(value + np.float32(0))  # -0 becomes 0
        words[i] = np.float32(value).view(np.uint32) if exponents[i] != NOT_FINITE else _outcome(total)
    restore_floats(mode)


@inner
def _power(exponent: Scalar) -> Any:
    """Return 2 to the power of an exponent."""
    return np.uint64((exponent + _DOUBLE_BIAS) << _DOUBLE_FRACTION_BITS).view(np.float64)


@inner
def _counted(word: Scalar) -> Scalar:
    """Return the lane of this rank's value where some rank has an infinity or a NaN."""
    magnitude = word & np.uint32(_MAGNITUDE)
    infinite = np.uint32(PLUS) if word == magnitude else np.uint32(MINUS)
    lane = infinite if magnitude == np.uint32(_INFINITY) else np.uint32(0)
    return np.uint32(NO_NUMBER) if magnitude > np.uint32(_INFINITY) else lane


@inner
def _outcome(total: Scalar) -> Scalar:
    """Return the bits of the sum, as infinities and NaN of all ranks determine it."""
    has_plus, has_minus = total & (MINUS - 1) != 0, total & (NO_NUMBER - MINUS) != 0
    infinite = np.uint32(_INFINITY) if has_plus else np.uint32(_MINUS_INFINITY)
    is_none = (total >= NO_NUMBER) | (has_plus & has_minus)
    return np.uint32(_NAN) if is_none else infinite
