"""Memory for the state of many hosts, side by side.

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
            slab = np.zeros(max(_SLAB_BYTES, size) + _LINE_BYTES, np.uint8)
            start = -slab.ctypes.data % _LINE_BYTES
            self._slab, self._used = slab[start : start + max(_SLAB_BYTES, size)], 0
        piece = self._slab[self._used : self._used + size]
        self._used += -(-size // _LINE_BYTES) * _LINE_BYTES
        return piece.view(kind).reshape(shape)
