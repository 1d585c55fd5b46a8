"""Memory whose parts begin cache lines, and that of many hosts side by side.

A thousand engines with a dozen arrays each would lie on as many pages as there are entries in the processor's table of
pages.  Numpy asks the kernel for huge pages where an array has several megabytes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_SLAB_BYTES: Final = 64 << 20
_LINE_BYTES: Final = 64


class Arena:
    """Hands out pieces of large arrays, which live as long as any of their pieces."""

    def __init__(self) -> None:
        self._slab = np.zeros(0, np.uint8)
        self._used = 0

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """Return a zeroed array that begins a cache line."""
        kind = np.dtype(dtype)
        size = kind.itemsize * (math.prod(shape) if isinstance(shape, tuple) else shape)
        if self._used + size > len(self._slab):
            self._slab, self._used = aligned(max(_SLAB_BYTES, size)), 0
        piece = self._slab[self._used : self._used + size]
        self._used += -(-size // _LINE_BYTES) * _LINE_BYTES
        return piece.view(kind).reshape(shape)


def aligned(size: int, offset: int = 0) -> npt.NDArray[np.uint8]:
    """Return zeroed bytes, of which the one at an offset begins a cache line."""
    memory = np.zeros(size + _LINE_BYTES, np.uint8)
    start = -(memory.ctypes.data + offset) % _LINE_BYTES
    return memory[start : start + size]


def enlarged(records: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return a copy of records with room for so many, the first of which begins a cache line."""
    larger = aligned(count * records.itemsize).view(records.dtype)
    larger[: len(records)] = records
    return larger
