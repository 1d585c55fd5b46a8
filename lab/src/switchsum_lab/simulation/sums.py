"""How far a sum is from the right one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
_PIECE: Final = 1 << 20
"""Values that are compared at a time."""


def error_of(array: Array, total: Array) -> float:
    """Return the energy of a sum's error over that of the right sum."""
    energy = sum(float(np.sum(np.square(right, dtype=np.float64))) for right in _pieces(total))
    error = sum(
        float(np.sum(np.square(found - right, dtype=np.float64)))
        for found, right in zip(_pieces(array), _pieces(total), strict=True)
    )
    return error / energy if energy else 0.0


def is_near(array: Array, total: Array, tolerance: float) -> bool:
    """Tell whether no value of a sum is off by more than a share of the largest one, or of 1."""
    largest = max((float(np.max(np.abs(right))) for right in _pieces(total)), default=0.0)
    most = tolerance * max(1.0, largest)
    return all(
        bool((np.abs(found - right) <= most).all()) for found, right in zip(_pieces(array), _pieces(total), strict=True)
    )


def _pieces(array: Array) -> Iterator[Array]:
    """Yield an array piece by piece, so that little memory beside it is used."""
    for start in range(0, len(array), _PIECE):
        yield array[start : start + _PIECE]
