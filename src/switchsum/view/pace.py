"""Decides how often slots are read: always where a rank waits, else so seldom that the job keeps switch and links.

Slots are registers, which BMv2 lets nobody read over P4Runtime: the controller sends a query for each cell and the
switch answers it between frames of the job.  That costs the controller about a quarter of a millisecond a cell, and the
switch its part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from switchsum.view.arrivals import ArrivalsOfJobs
from switchsum_protocol import rpc

SHARE: Final = 0.01
"""Largest share of the time that goes into reading slots while nobody waits."""
LONG_WAIT_S: Final = 0.5
"""A rank that has had no result for so long waits for another, and not for the line."""


class Pace:
    """Says at each look for which jobs slots are read; used by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._rest_until_s = 0.0
        self._is_due = False
        self._known: set[str] = set()
        self.arrivals = ArrivalsOfJobs()
        """What the slots that were read say about whose contributions come last."""

    def begin(self, jobs: Iterable[str]) -> None:
        """Begin a look at these jobs."""
        there = {*jobs}
        self._known &= there
        self.arrivals.forget_all_but(there)
        self._is_due = self._clock() >= self._rest_until_s

    def wants(self, job: str, workers: list[rpc.WorkerInfo]) -> bool:
        """Whether the slots of a job are to be read in this look: if it is new, if a rank waits, or if it is time."""
        is_new = job not in self._known
        self._known.add(job)
        return self._is_due or is_new or any(one.age_s >= 0 and one.waiting_s >= LONG_WAIT_S for one in workers)

    @property
    def now_s(self) -> float:
        """The time, in seconds of its clock."""
        return self._clock()

    def read(self, reading_s: float) -> None:
        """Rest after slots have been read, for as long as makes reading the stated share of the time."""
        self._rest_until_s = max(self._rest_until_s, self._clock()) + reading_s / SHARE
