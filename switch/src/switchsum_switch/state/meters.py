"""Meters of three colours, over bytes or packets: of two rates (RFC 2698) or of one (RFC 2697), in colour-blind mode.

A cell has two token buckets.  Each fills at its rate up to its burst.  A packet needs as many tokens as it has bytes,
or one in a meter of packets.  It is red if the peak bucket has too few; yellow if only the committed bucket has too
few; green if both have enough.  It takes its tokens from the peak bucket unless it is red, and from the committed
bucket if it is green.

A meter of one rate has an excess bucket in the place of the peak bucket.  It gets the tokens for which the committed
bucket has no room.  A packet is green if the committed bucket has enough, else yellow if the excess bucket has, and
takes its tokens from that one of the two.

Each cell also counts the packets and bytes of each colour.

Buckets hold millionths of a token: a rate in tokens a second, multiplied by microseconds, then needs no division.  So
native code and the interpreter round nowhere, and give every packet the same colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from ..errors import BadEntry
from .lock import StateLock

GREEN, YELLOW, RED = 0, 1, 2
COLOURS: Final = ("green", "yellow", "red")
MICRO: Final = 1_000_000
"""Units of a bucket in one token."""
MAX_RATE: Final = (1 << 63) - 1
"""Tokens a second; P4Runtime's numbers are int64."""
MAX_BURST: Final = ((1 << 63) - 1) // MICRO
"""Tokens of a full bucket, so that a bucket's units fit 63 bits: 9 terabytes."""
_WORD: Final = (1 << 64) - 1

LAST, PEAK, COMMITTED = 0, 1, 4
"""Words of a cell: time of the last packet in microseconds; from PEAK and from COMMITTED on, a bucket's three words.
The excess bucket of a meter of one rate is at PEAK."""
RATE, BURST, TOKENS = range(3)
CONFIGURED: Final = 7
"""Word that says how the cell works: 0, it gives green; TWO_RATES or ONE_RATE."""
TWO_RATES, ONE_RATE = 1, 2
COUNTS: Final = 8
"""Index of the first word with packets and bytes of each colour."""
CELL_WORDS: Final = 16


class MeterUnit(Enum):
    """What one token pays for."""

    BYTES = "bytes"
    PACKETS = "packets"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterRates:
    """The configuration of a meter's cell.  A token is a byte, or a packet in a meter of packets."""

    committed: int
    """Committed rate, in tokens a second; above it packets are yellow."""
    committed_burst: int
    """Tokens that the committed bucket holds."""
    peak: int
    """Peak rate, in tokens a second; above it packets are red.  Of a meter of one rate the same as `committed`."""
    peak_burst: int
    """Tokens that the peak bucket holds.  Of a meter of one rate the same as `committed_burst`."""
    excess_burst: int | None = None
    """Tokens that the excess bucket holds, of a meter of one rate; None: it has two."""


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
        """Set a cell's rates and fill its buckets; None: the cell gives green again.  Raises BadEntry or TypeError."""
        made = [0] * COUNTS
        if rates is not None:
            if not isinstance(rates, MeterRates):
                raise TypeError(f"meter {self.name} is configured with MeterRates or None, not {rates!r}")
            self._check(rates)
            kind = TWO_RATES if rates.excess_burst is None else ONE_RATE
            other = MICRO * (rates.peak_burst if rates.excess_burst is None else rates.excess_burst)
            committed = rates.committed_burst * MICRO
            made = [0, rates.peak, other, other, rates.committed, committed, committed, kind]
        with self._lock:
            self.cells[self._checked(index), :COUNTS] = made

    def rates(self, index: int) -> MeterRates | None:
        """Return the configuration of a cell, None if it has none; raises BadEntry."""
        with self._lock:
            cell = self.cells[self._checked(index)].tolist()
        if not cell[CONFIGURED]:
            return None
        committed, other = cell[COMMITTED + BURST] // MICRO, cell[PEAK + BURST] // MICRO
        of_one = cell[CONFIGURED] == ONE_RATE
        return MeterRates(
            committed=cell[COMMITTED + RATE],
            committed_burst=committed,
            peak=cell[PEAK + RATE],
            peak_burst=committed if of_one else other,
            excess_burst=other if of_one else None,
        )

    def counts(self, index: int) -> tuple[tuple[int, int], ...]:
        """Return the packets and bytes that were green, yellow and red in a cell; raises BadEntry."""
        with self._lock:
            words = self.cells[self._checked(index), COUNTS:].tolist()
        return tuple((words[2 * colour], words[2 * colour + 1]) for colour in (GREEN, YELLOW, RED))

    def clear_counts(self, index: int) -> None:
        """Set the counts of a cell to 0; raises BadEntry."""
        with self._lock:
            self.cells[self._checked(index), COUNTS:] = 0

    def __len__(self) -> int:
        """Return how many cells there are."""
        return self.size

    def __repr__(self) -> str:
        """Say how many cells are configured."""
        configured = int(np.count_nonzero(self.cells[:, CONFIGURED]))
        return f"<meter {self.name} of {self.size}, in {self.unit.value}: {configured} configured>"

    def execute(self, index: int, frame_bytes: int, now_us: int) -> int:
        """Pass a packet through a cell and return its colour; native code does the same."""
        cell = self.cells[index].tolist()
        colour = self._pass(cell, frame_bytes, now_us) if cell[CONFIGURED] else GREEN
        for word, amount in enumerate((1, frame_bytes), start=COUNTS + 2 * colour):
            cell[word] = cell[word] + amount & _WORD
        self.cells[index] = cell
        return colour

    def _pass(self, cell: list[int], frame_bytes: int, now_us: int) -> int:
        """Fill the buckets of a cell, and take the tokens of a packet; return its colour."""
        needed = MICRO * (frame_bytes if self.unit is MeterUnit.BYTES else 1)
        # A caller may pass an earlier time than before; a meter's time never runs back.
        elapsed_us = max(0, now_us - cell[LAST])
        cell[LAST] += elapsed_us
        filled = {bucket: cell[bucket + TOKENS] + elapsed_us * cell[bucket + RATE] for bucket in (PEAK, COMMITTED)}
        of_one = cell[CONFIGURED] == ONE_RATE
        if of_one:
            filled[PEAK] = cell[PEAK + TOKENS] + max(0, filled[COMMITTED] - cell[COMMITTED + BURST])
        for bucket in (PEAK, COMMITTED):
            cell[bucket + TOKENS] = min(filled[bucket], cell[bucket + BURST])
        enough = {bucket: cell[bucket + TOKENS] >= needed for bucket in (PEAK, COMMITTED)}
        green = enough[COMMITTED] and (of_one or enough[PEAK])
        # A green packet pays from the committed bucket, and with two rates from the peak bucket as well.
        pays = {PEAK: enough[PEAK] and not (green and of_one), COMMITTED: green}
        for bucket in (PEAK, COMMITTED):
            cell[bucket + TOKENS] -= needed * pays[bucket]
        return GREEN if green else YELLOW if enough[PEAK] else RED

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise BadEntry(f"meter {self.name} has {self.size} cells, none of index {index}")
        return index

    def _check(self, rates: MeterRates) -> None:
        if not 0 <= rates.committed <= rates.peak <= MAX_RATE:
            raise BadEntry(f"meter {self.name}: the committed rate is to lie between 0 and the peak rate")
        if not (0 <= rates.committed_burst <= MAX_BURST and 0 <= rates.peak_burst <= MAX_BURST):
            raise BadEntry(f"meter {self.name}: bursts are to lie between 0 and {MAX_BURST}")
        if rates.excess_burst is None:
            return
        if (rates.peak, rates.peak_burst) != (rates.committed, rates.committed_burst):
            raise BadEntry(
                f"meter {self.name}: with an excess burst it has one rate, and the peak is the committed one"
            )
        if not 0 <= rates.excess_burst <= MAX_BURST:
            raise BadEntry(f"meter {self.name}: the excess burst is to lie between 0 and {MAX_BURST}")
