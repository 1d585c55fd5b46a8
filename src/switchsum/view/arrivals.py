"""Whose contributions come to the switch last: which ranks are missing in rounds that are under way, look after look.

All ranks of a call end it together, so their times say nothing about a slow link.  The switch does: while sums are
formed, the slots wait for the contribution that comes last.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from switchsum.view.rounds import newest_rounds
from switchsum_protocol import rpc

MOST_LOOKS: Final = 16
KEPT_S: Final = 60.0
"""Looks older than this say nothing of now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Rounds that lacked contributions when slots were read."""

    looks: int = 0
    """Number of readings in which a round was under way."""
    rounds: int = 0
    """Number of these rounds, in all readings."""
    missing: dict[int, float] = field(default_factory=dict)
    """In which part of them each rank was missing, on average over the readings.

    Each reading counts once, as a moment does: while ranks catch up with one whose contributions came together, all
    slots lack theirs, which takes a moment alone.
    """

    def share(self, rank: int) -> float:
        """Return in which part of the rounds of a reading a rank was missing, on average."""
        return self.missing.get(rank, 0.0)


class ArrivalsOfJobs:
    """Adds up the latest readings of the slots of each job."""

    def __init__(self) -> None:
        self._looks: dict[str, deque[tuple[float, int, Counter[int]]]] = {}

    def forget_all_but(self, jobs: Iterable[str]) -> None:
        """Forget jobs that are no more."""
        there = {*jobs}
        self._looks = {job: looks for job, looks in self._looks.items() if job in there}

    def note(self, job: rpc.JobInfo, cells: list[rpc.SlotInfo], now: float) -> None:
        """Count a reading, unless no round was under way in it."""
        under_way = [one for one in newest_rounds(job, cells) if one.contributed and not one.is_complete]
        missing = Counter(rank for one in under_way for rank in one.missing)
        if under_way:
            self._looks.setdefault(job.job, deque(maxlen=MOST_LOOKS)).append((now, len(under_way), missing))

    def of(self, job: str, now: float) -> Arrivals:
        """Return the sum of a job's latest readings."""
        looks = [one for one in self._looks.get(job, ()) if now - one[0] <= KEPT_S]
        missing: dict[int, float] = {}
        for _, rounds, of_look in looks:
            for rank, count in of_look.items():
                missing[rank] = missing.get(rank, 0.0) + count / rounds / len(looks)
        return Arrivals(looks=len(looks), rounds=sum(count for _, count, _ in looks), missing=missing)
