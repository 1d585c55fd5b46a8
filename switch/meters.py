"""Meters: two rates and three colours (RFC 2698, colour-blind mode), over bytes or packets.

A cell has two token buckets.  Each fills at its rate up to its burst.  A packet needs as many tokens as it has bytes,
or one in a meter of packets.  It is red if the peak bucket has too few; yellow if only the committed bucket has too
few; green if both have enough.  It takes its tokens from the peak bucket unless it is red, and from the committed
bucket if it is green.

Buckets hold millionths of a token: a rate in tokens a second, multiplied by microseconds, then needs no division.  So
native code and the interpreter round nowhere, and give every packet the same colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from .errors import BadEntry
from .lock import StateLock

GREEN, YELLOW, RED = 0, 1, 2
MICRO: Final = 1_000_000
"""Units of a bucket in one token."""
MAX_RATE: Final = (1 << 63) - 1
"""Tokens a second; P4Runtime's numbers are int64."""
MAX_BURST: Final = ((1 << 63) - 1) // MICRO
"""Tokens of a full bucket, so that a bucket's units fit 63 bits: 9 terabytes."""

LAST, PEAK, COMMITTED = 0, 1, 4
"""Words of a cell: time of the last packet in microseconds; from PEAK and from COMMITTED on, a bucket's three words."""
RATE, BURST, TOKENS = range(3)
CONFIGURED: Final = 7
CELL_WORDS: Final = 8


class MeterUnit(Enum):
    """What one token pays for."""

    BYTES = "bytes"
    PACKETS = "packets"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterRates:
    """The configuration of a cell: rates in tokens a second, bursts in tokens."""

    committed: int
    committed_burst: int
    peak: int
    peak_burst: int


class Meter:
    """A meter array; a cell that is not configured gives green."""

    def __init__(self, name: str, size: int, unit: MeterUnit, lock: StateLock) -> None:
        self.name = name
        self.size = size
        self.unit = unit
        self._lock = lock
        self.cells = np.zeros((size, CELL_WORDS), np.uint64)
        """The words of each cell; shared with the native engine."""

    def configure(self, index: int, rates: MeterRates | None) -> None:
        """Set a cell's rates and fill its buckets; None: the cell gives green again.  Raises BadEntry."""
        made = [0] * CELL_WORDS
        if rates is not None:
            self._check(rates)
            peak, committed = rates.peak_burst * MICRO, rates.committed_burst * MICRO
            made = [0, rates.peak, peak, peak, rates.committed, committed, committed, 1]
        with self._lock:
            self.cells[self._checked(index)] = made

    def rates(self, index: int) -> MeterRates | None:
        """Return the configuration of a cell, None if it has none; raises BadEntry."""
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
        # A caller may pass an earlier time than before; a meter's time never runs back.
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
