"""Ways of a sparse sum, what each brings down to a rank, and the choice of one.

The choice follows from numbers that all ranks have got in the call's first step: how many rows each rank has, whether
these rows are the same, and about how many rows some rank has.  So all ranks choose alike, and nothing is measured.
Floats are only added, multiplied, divided and compared here, which IEEE 754 rounds in one way on every machine.

What comes down decides on links that carry both ways at once: no rank sends more than it receives, but for headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from . import places, ragged
from .collectives import Way

ROUND_TRIP_BITS: Final = 1 << 14
"""Bits that take about as long as a round trip of headers: 2 kB, as links of 100 Mbit/s to 10 Gbit/s have under way."""
DENSE_FROM: Final = 31 / 32
"""Share of rows from which on all rows are added. Leaving the rest out would save fewer bytes than the bitmap costs."""
FEW: Final = 8
"""A rank that has at most one row in so many codes its places. Bits for all rows take as few bytes for more rows."""
SUM_TRIPS: Final = 2
"""Round trips of a sum of floats: exponents, in headers, and values."""
ROUGH_STEPS: Final = 3
ROUGH_TRIPS: Final = 4
"""Steps and round trips of rough sums and the exact ones: scales, bytes, exponents and values."""
ROUGH_UP_TO: Final = 3 / 4
"""Sums of which a smaller share is kept are found out roughly first: a byte for each, and then four for those kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What all ranks know after the first step."""

    rows: int
    """Rows of the whole array."""
    counts: Sequence[int]
    """Rows that each rank has."""
    union: int
    """Rows that some rank has, or about as many."""
    is_same: bool
    """Whether all ranks have the same rows."""
    pair_bits: int
    """Bits of a row's values as they lie in memory; 0: values of this kind are not added by hosts."""
    sum_bits: int
    """Bits of a row's values in lanes."""
    frame_bits: int
    """Bits of the lanes of a frame, which are all sent."""
    keep: int | None = None
    """Number of sums that are kept, which rough sums of 8 bits may find first."""
    occupied: int | None = None
    """Rows in those stretches of the array in which some rank has a row; None: all."""
    is_known: bool = False
    """Whether all ranks know already which rows are in the union: bits for all rows came in the first step."""
    sent: Sequence[int] = ()
    """Bytes of each rank's places and values that went along with the first step; empty: none."""
    has_exponents: bool = False
    """Whether all ranks know the exponents of values, if all have the same rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a way takes after the first step."""

    way: Way
    frames: int
    """Frames with lanes that come down to the rank that gets most."""
    trips: int
    """Round trips."""
    steps: int
    """Round trips of frames with lanes."""
    levels: int = 0
    """Steps in which a bitmap travels."""

    def bits(self, frame_bits: int) -> int:
        """Return bits of lanes, and the time of round trips in bits: a frame goes up before the first comes down."""
        return (self.frames + self.steps) * frame_bits + self.trips * ROUND_TRIP_BITS


_ALL_IS_THERE: Final = Cost(way=Way.PAIRS, frames=0, trips=0, steps=0)


def choose(facts: Facts) -> Cost:
    """Return the way that takes least."""
    if facts.pair_bits and has_few(max(facts.counts), facts.rows) and not any(left_of_pairs(facts)):
        return _ALL_IS_THERE
    return min(costs(facts), key=lambda one: (one.bits(facts.frame_bits), one.way))


def costs(facts: Facts) -> Iterator[Cost]:
    """Yield what each way takes that these ranks can go."""
    union = min(max(facts.union, *facts.counts), facts.rows)
    most, octets = max(facts.counts), facts.frame_bits // 8
    frames, trips, steps = _sum(facts, union)
    if facts.is_same:
        known = facts.has_exponents and trips == SUM_TRIPS
        yield Cost(way=Way.SAME, frames=frames, trips=trips - known, steps=steps)
    if has_few(most, facts.rows):
        if facts.pair_bits:
            pairs = left_of_pairs(facts)
            down, goes = ragged.layout(pairs, octets).frames_down, int(any(pairs))
            yield Cost(way=Way.PAIRS, frames=down, trips=goes, steps=goes)
        if not facts.is_known:
            coded = [places.octets_for(count, facts.rows) for count in facts.counts]
            down = ragged.layout(coded, octets).frames_down
            yield Cost(way=Way.PLACES, frames=down + frames, trips=1 + trips, steps=1 + steps)
    if is_dense(union, facts.rows):
        frames, trips, steps = _sum(facts, facts.rows)
    if is_dense(most, facts.rows):
        yield Cost(way=Way.ALL, frames=frames, trips=trips, steps=steps)
    if facts.is_known and is_dense(most, facts.rows):
        return
    if facts.is_known:
        yield Cost(way=Way.BITMAPS, frames=frames, trips=trips, steps=steps)
        return
    # Frames of zeros do not travel, so rows far from all of the union's do not count.
    occupied = facts.rows if facts.occupied is None else max(facts.occupied, union)
    for level, bits in enumerate(bitmap_bits(occupied, union), 1):
        down = _frames(facts, bits)
        yield Cost(way=Way.BITMAPS, frames=down + frames, trips=level + trips, steps=level + steps, levels=level)


def has_few(count: int, rows: int) -> bool:
    """Tell whether a rank has so few rows that it codes their places."""
    return count * FEW <= rows


def is_dense(count: int, rows: int) -> bool:
    """Tell whether a rank has so many rows that all rows are added."""
    return count >= DENSE_FROM * rows


def part_octets(count: int, rows: int, pair_bits: int) -> int:
    """Return how many bytes a rank's places and values take: places are whole words, and come first."""
    return places.octets_for(count, rows) + -(-count * pair_bits // 8)


def left_of_pairs(facts: Facts) -> Sequence[int]:
    """Return how many bytes of each rank's part did not go along with the first step."""
    parts = [part_octets(count, facts.rows, facts.pair_bits) for count in facts.counts]
    return [part - sent for part, sent in zip(parts, facts.sent or [0] * len(parts), strict=True)]


def bitmap_bits(rows: int, union: int) -> tuple[int, int, int]:
    """Return how many bits a bitmap takes in one, two and three steps, for a union at random places of `rows`."""
    absent = 1 - union / max(1, rows)
    for _ in range(3):
        absent *= absent
    octets = rows * (1 - absent)
    for _ in range(3):
        absent *= absent
    masks = rows / 8 * (1 - absent)
    return rows, int(rows / 8 + octets), int(rows / 64 + masks + octets)


def _sum(facts: Facts, union: int) -> tuple[int, int, int]:
    """Return the frames, round trips and steps of the values' sum."""
    if facts.keep is not None and facts.keep < ROUGH_UP_TO * union:
        rough, exact = _frames(facts, 8 * union), _frames(facts, facts.sum_bits * facts.keep)
        return rough + exact, ROUGH_TRIPS, ROUGH_STEPS
    return _frames(facts, facts.sum_bits * union), SUM_TRIPS, 1


def _frames(facts: Facts, bits: int) -> int:
    """Return how many frames have so many bits of lanes."""
    return -(-bits // facts.frame_bits)
