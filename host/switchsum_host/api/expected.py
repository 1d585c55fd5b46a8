"""What a sparse sum is expected to be: as the last one was of the same call, on an array of the same length.

All ranks remember the same, because it follows from what all of them received in that call's first step.  It decides
what goes along with the next first step, and so saves a round trip.  A wrong guess costs time, and changes no sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from .collectives import Options, Way
from .ways import ROUND_TRIP_BITS, Cost, Facts, costs, is_dense, part_octets

FIRST_FROM: Final = 1 << 15
"""Rows of an array from which on pairs go along at first: headers of their frames are a hundredth of shorter ones."""
FIRST_MOST_RANKS: Final = 16
_UNIT: Final = 1 << 10
"""Bytes in the smallest common frame."""
_FIRST_UNITS: Final = 12
"""Whole ones of all ranks that go along with the first step. If they stay empty, each costs a header both ways."""
MOST_OCTETS: Final = 1 << 17
"""Most bytes of all ranks' pairs that go along; of more of them, a round trip would be a fiftieth at 10 Gbit/s."""
_WORD: Final = 8
_MOST_KNOWN: Final = 1024
"""Calls that are remembered; the oldest is forgotten first, on all ranks alike."""
Key = tuple[str, int, str]
"""Name of a call, length of its array and label: what a rank whose other arguments are refused knows, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A sum of all rows, which a call has come to because every rank had nearly all of them."""

    called: str
    """The call: what all ranks must agree in."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of the whole array."""
    how: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What goes along with the first step of a sparse sum."""

    octets: int = 0
    """Bytes of each rank's places and values."""
    is_cut: bool = False
    """Whether the first bytes of larger parts go along as well, and the rest later. False: all of a part or nothing."""
    has_words: bool = False
    """Whether a bit for each row comes along."""
    dense: Dense | None = None
    """The last call, if every rank had nearly all rows."""
    was_dense: bool = False
    """Whether the call before the last one was the same. Once is not enough: two arrays may take turns."""

    def sent(self, octets: int) -> int:
        """Return how many bytes of a part of so many go along."""
        return min(octets, self.octets) if self.is_cut or octets <= self.octets else 0

    @property
    def sum_at_once(self) -> Dense | None:
        """The sum of all rows that a call begins with; None: it begins with the ordinary first step."""
        return self.dense if self.was_dense else None


NOTHING: Final = Expected()
"""Nothing goes along."""


def note(known: dict[Key, Expected], key: Key, facts: Facts, dense: Dense | None = None) -> None:
    """Remember what a call was, so that the next one begins with what would have been best for it.

    `dense` is what the call comes to if all ranks have nearly all rows; None: it cannot come to that.
    """
    anew = replace(facts, sent=(), is_known=False) if facts.sent or facts.is_known else facts
    best = min(costs(anew), key=lambda one: (_bits(one, facts.frame_bits), one.way))
    if not facts.rows or not is_dense(min(facts.counts), facts.rows):
        dense = None
    before = known.pop(key, None)
    known[key] = Expected(
        octets=_octets(facts) if best.way is Way.PAIRS else 0,
        is_cut=True,
        has_words=best.way is Way.BITMAPS and best.levels == 1,
        dense=dense,
        was_dense=dense is not None and before is not None and before.dense == dense,
    )
    if len(known) > _MOST_KNOWN:
        del known[next(iter(known))]


def _bits(cost: Cost, frame_bits: int) -> int:
    """Return what a way takes, less a step and a round trip where its first step can go along with the call's."""
    goes_along = cost.way is Way.PAIRS or cost.levels == 1
    return cost.bits(frame_bits) - goes_along * (frame_bits + ROUND_TRIP_BITS)


def first_pairs(rows: int, ranks: int) -> Expected:
    """Return what goes along before anything is known."""
    if rows < FIRST_FROM or ranks > FIRST_MOST_RANKS:
        return NOTHING
    return Expected(octets=_FIRST_UNITS // ranks * _UNIT + _UNIT // 4)


def _octets(facts: Facts) -> int:
    """Return how many bytes of each part go along next time: the largest part of this time."""
    largest = part_octets(max(facts.counts), facts.rows, facts.pair_bits)
    return min(largest, MOST_OCTETS // len(facts.counts) // _WORD * _WORD)
