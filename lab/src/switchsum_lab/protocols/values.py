"""Float32 as integers that a switch can add, by the same kernels as our own workers, so that this costs the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from switchsum_host.engine.dtypes import FLOAT32
from switchsum_host.engine.kernels import fill_nan, pack, scan, unpack
from switchsum_protocol.lane_scales import NOT_FINITE, WIDE_BITS, full_scale, step
from switchsum_switch.kernels.loading import address_of

from .seam import Array


class Blocks:
    """A float32 array as blocks of a frame each, with an exponent for each block.

    Example:
        >>> from switchsum_lab.protocols.values import Blocks
        >>> blocks = Blocks(np.ones(100, np.float32), lanes=64, workers=2)
        >>> blocks.count, blocks.exponent(0)
        (2, 127)

    """

    def __init__(self, array: Array, *, lanes: int, workers: int) -> None:
        self._array, self._lanes, self._workers = array, lanes, workers
        self._start = address_of(array)
        self.count = max(1, -(-len(array) // lanes))
        """How many there are; at least one, so that an empty array is a barrier."""

    def exponent(self, block: int) -> int:
        """Return a block's exponent: 0 to 254; 255: it holds an infinity or a NaN."""
        return max(0, scan(FLOAT32, self._at(block), self._values(block)))

    def pack(self, block: int, exponent: int, target: int) -> None:
        """Write a block's lanes to an address; `exponent` is the largest of all workers for it."""
        if exponent == NOT_FINITE:
            exponent, count = 1, 0
        else:
            count = self._values(block)
        pack(FLOAT32, self._at(block), count, target, self._lanes, 1 / step(exponent, self._workers, WIDE_BITS))

    def unpack(self, block: int, exponent: int, source: int) -> None:
        """Write the sums at an address into the array."""
        if exponent == NOT_FINITE:
            fill_nan(FLOAT32, self._at(block), self._values(block))
            return
        unpack(FLOAT32, source, self._values(block), self._at(block), step(exponent, self._workers, WIDE_BITS))

    def _at(self, block: int) -> int:
        return self._start + 4 * block * self._lanes

    def _values(self, block: int) -> int:
        return min(self._lanes, len(self._array) - block * self._lanes)


class FixedPoint:
    """A float32 array as blocks of integers with one scale for all values, as ATP has it."""

    def __init__(self, array: Array, *, lanes: int, scale: float) -> None:
        self._array, self._lanes, self._scale = array, lanes, scale
        self._start = address_of(array)
        self.count = max(1, -(-len(array) // lanes))

    def pack(self, block: int, target: int) -> None:
        """Write a block's lanes to an address."""
        pack(FLOAT32, self._start + 4 * block * self._lanes, self._values(block), target, self._lanes, self._scale)

    def unpack(self, block: int, source: int) -> None:
        """Write the sums at an address into the array."""
        at = self._start + 4 * block * self._lanes
        unpack(FLOAT32, source, self._values(block), at, 1 / self._scale)

    def _values(self, block: int) -> int:
        return min(self._lanes, len(self._array) - block * self._lanes)


def rows(count: int, length: int) -> tuple[npt.NDArray[np.uint8], list[memoryview], list[int]]:
    """Return memory for frames: the array, a view of each row, and each row's address."""
    made = np.zeros((count, length), np.uint8)
    first = address_of(made)
    return made, [memoryview(row) for row in made], [first + length * number for number in range(count)]  # type: ignore[arg-type]


def address_in(frame: bytes, offset: int) -> int:
    """Return the address of a byte of a frame, which must outlive its use."""
    return address_of(np.frombuffer(frame, np.uint8)) + offset


__all__ = ["Blocks", "FixedPoint", "address_in", "full_scale", "rows"]
