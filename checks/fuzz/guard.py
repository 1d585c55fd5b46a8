"""Memory that ends where nothing may be touched: one byte too far is a segmentation fault."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE
PROT_NONE = 0


class Guarded:
    """Pages followed by one with PROT_NONE."""

    def __init__(self, size: int) -> None:
        """Reserve room for `size` bytes."""
        self._inside = -(-size // PAGE) * PAGE
        self._map = mmap.mmap(-1, self._inside + PAGE)
        self._memory = np.frombuffer(self._map, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if libc.mprotect(self._memory.ctypes.data + self._inside, PAGE, PROT_NONE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def last(self, size: int) -> npt.NDArray[np.uint8]:
        """Return the last `size` bytes before the guard."""
        return self._memory[self._inside - size : self._inside]

    def place(self, data: bytes) -> npt.NDArray[np.uint8]:
        """Put bytes right before the guard, and return where they are."""
        view = self.last(len(data))
        view[:] = np.frombuffer(data, np.uint8)
        return view
