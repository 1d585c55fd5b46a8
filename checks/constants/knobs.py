"""Numbers in memory that compiled code reads in place of constants, so that one compilation does for all values."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import integers_at

MOST: Final = 1024
REALS: Final = np.zeros(MOST, np.float64)
INTEGERS: Final = np.zeros(MOST, np.int64)
_REALS_AT: Final = address_of(REALS)
_INTEGERS_AT: Final = address_of(INTEGERS)


@inner
def real(place: int) -> float:
    """Return a constant that is a float."""
    return carray(pointer(_REALS_AT), (MOST,), np.float64)[place]  # type: ignore[no-any-return]


@inner
def integer(place: int) -> int:
    """Return a constant that is an integer."""
    return integers_at(_INTEGERS_AT, MOST)[place]  # type: ignore[no-any-return]
