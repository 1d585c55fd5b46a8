"""Packet and byte counts that several threads add to without waiting for one another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Counts:
    """Packets and bytes by index.

    Each thread but the first one adds to a share of its own.  A reader holds the pipeline's lock, so that no thread
    runs packets meanwhile.
    """

    def __init__(self, size: int) -> None:
        self._first = np.zeros((size, 2), dtype=np.uint64)
        self._shares: list[npt.NDArray[np.uint64]] = []

    def share(self) -> npt.NDArray[np.uint64]:
        """Return counts for one thread more."""
        self._shares.append(np.zeros_like(self._first))
        return self._shares[-1]

    def all(self) -> npt.NDArray[np.uint64]:
        """Return all counts, with those of the shares moved into them; it is the first thread's memory."""
        for share in self._shares:
            self._first += share
            share[:] = 0
        return self._first

    def read(self, index: int) -> tuple[int, int]:
        """Return packets and bytes."""
        packets, count_bytes = sum((share[index] for share in self._shares), self._first[index])
        return int(packets), int(count_bytes)
