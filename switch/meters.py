"""Meters: two rates and three colours (RFC 2698, colour-blind), over bytes or packets.

Buckets hold millionths of a token, so that a rate in tokens a second times microseconds needs no division, and native
code and interpreter agree to the last packet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from switchsum.switch.errors import BadEntry
from switchsum.switch.lock import StateLock

GREEN, YELLOW, RED = 0, 1, 2
MICRO: Final = 1_000_000
"""Parts of a token."""
MAX_RATE: Final = (1 << 63) - 1
"""Tokens a second; P4Runtime's numbers are int64."""
MAX_BURST: Final = ((1 << 63) - 1) // MICRO
"""Tokens that a bucket may hold: 9 terabytes."""

LAST, PEAK, COMMITTED = 0, 1, 4
"""Words of a cell: the time of the last packet in microseconds; for each bucket RATE, BURST and TOKENS."""
RATE, BURST, TOKENS = range(3)
CONFIGURED: Final = 7
CELL_WORDS: Final = 8


class MeterUnit(Enum):
    """What a token stands for."""

    BYTES = "bytes"
    PACKETS = "packets"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterRates:
    """How a cell is configured; rates in tokens a second, bursts in tokens."""

    committed: int
    committed_burst: int
    peak: int
    peak_burst: int


class Meter:
    """An array of meters; a cell that is not configured is always green."""

    def __init__(self, name: str, size: int, unit: MeterUnit, lock: StateLock) -> None:
        self.name = name
        self.size = size
        self.unit = unit
        self._lock = lock
        self.cells = np.zeros((size, CELL_WORDS), np.uint64)
        """By index; shared with the native engine."""

    def configure(self, index: int, rates: MeterRates | None) -> None:
        """Set a cell's rates and fill its buckets, or make it always green; raises BadEntry."""
        made = [0] * CELL_WORDS
        if rates is not None:
            self._check(rates)
            peak, committed = rates.peak_burst * MICRO, rates.committed_burst * MICRO
            made = [0, rates.peak, peak, peak, rates.committed, committed, committed, 1]
        with self._lock:
            self.cells[self._checked(index)] = made

    def rates(self, index: int) -> MeterRates | None:
        """Return how a cell is configured, None where it is not; raises BadEntry."""
        with self._lock:
            cell = self.cells[self._checked(index)].tolist()
        if not cell[CONFIGURED]:
            return None
        return MeterRates(
            committed=cell[COMMITTED + RATE],
            committed_burst=cell[COMMITTED + BURST] // MICRO,
            peak=cell[PEAK + RATE],
            peak_burst=cell[PEAK + BURST] // MICRO,
        )

    def execute(self, index: int, frame_bytes: int, now_us: int) -> int:
        """Pass a packet through a cell and return its colour; native code does the same."""
        cell = self.cells[index].tolist()
        if not cell[CONFIGURED]:
            return GREEN
        needed = MICRO * (frame_bytes if self.unit is MeterUnit.BYTES else 1)
        elapsed_us = max(0, now_us - cell[LAST])
        cell[LAST] += elapsed_us
        for bucket in (PEAK, COMMITTED):
            filled = cell[bucket + TOKENS] + elapsed_us * cell[bucket + RATE]
            cell[bucket + TOKENS] = min(filled, cell[bucket + BURST])
        colour = RED
        if cell[PEAK + TOKENS] >= needed:
            cell[PEAK + TOKENS] -= needed
            colour = YELLOW
            if cell[COMMITTED + TOKENS] >= needed:
                cell[COMMITTED + TOKENS] -= needed
                colour = GREEN
        self.cells[index] = cell
        return colour

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise BadEntry(f"meter {self.name} has {self.size} cells, none of index {index}")
        return index

    def _check(self, rates: MeterRates) -> None:
        if not 0 <= rates.committed <= rates.peak <= MAX_RATE:
            raise BadEntry(f"meter {self.name}: the committed rate is to lie between 0 and the peak rate")
        if not (0 <= rates.committed_burst <= MAX_BURST and 0 <= rates.peak_burst <= MAX_BURST):
            raise BadEntry(f"meter {self.name}: bursts are to lie between 0 and {MAX_BURST}")
