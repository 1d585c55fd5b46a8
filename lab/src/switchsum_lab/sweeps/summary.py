"""Medians, and what they lie between."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST_RUNS = 6
"""Least runs for an interval. With fewer, the smallest and the largest do not hold the median with 95 % confidence: 1
- 2 / 2^n.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of several runs of one cell."""

    median: float
    low: float
    """Ends of the interval. From `LEAST_RUNS` runs on, the median of endless runs lies between them with 95 %
    confidence. With fewer runs they are the smallest and the largest.
    """
    high: float
    runs: int
    marks: frozenset[str] = frozenset()
    """What speaks against one of the runs or more (`outcome.MARKS`)."""

    @classmethod
    def of(cls, values: Sequence[float], marks: Iterable[str] = ()) -> Summary:
        """Summarise at least one value; the interval is by ranks, whatever the distribution."""
        ordered, count = sorted(values), len(values)
        first = _rank(count) if count >= LEAST_RUNS else 0
        middle = statistics.median(ordered)
        return cls(median=middle, low=ordered[first], high=ordered[-1 - first], runs=count, marks=frozenset(marks))


def _rank(count: int) -> int:
    """Return the largest rank of an interval's ends, from 0, that leaves out at most 2.5 % on each side (binomial)."""
    tail, rank = 0.5**count, 0
    while tail + math.comb(count, rank + 1) * 0.5**count <= 0.025:
        rank += 1
        tail += math.comb(count, rank) * 0.5**count
    return rank
