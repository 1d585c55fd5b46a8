"""What a worker says of itself to its controller, read beside the job: nothing of it is in the way of a collective."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from switchsum.protocol import reports

from ..engine.state import Count

if TYPE_CHECKING:
    from .communicator import Communicator


class Reporter:
    """Makes reports of one communicator, on the thread of the heartbeats.

    It reads the engine's counters while another thread may write them: each is one word, and a report may mix those of
    two moments.  How long a worker waits is known to the time between two reports.
    """

    def __init__(
        self, communicator: Communicator, *, host: str, link: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._communicator = weakref.ref(communicator)
        self._host, self._link = host[: reports.MOST_TEXT], link[: reports.MOST_TEXT]
        self._clock = clock
        self._seen = (-1, -1)
        self._changed_s = clock()

    def __call__(self, job: str, nonce: int) -> reports.WorkerReport | None:
        """Return a report; None once the communicator is closed or gone, and in a forked child."""
        communicator = self._communicator()
        if communicator is None or communicator.queue.closed or os.getpid() != communicator.queue.pid:
            return None
        engine, now = communicator.queue.driver.engine, self._clock()
        counts = engine.counts.tolist()
        begun, oldest = engine.progress
        seen = counts[Count.ROUNDS], begun
        if seen != self._seen:
            self._seen, self._changed_s = seen, now
        quiet_s, is_under_way = round(now - self._changed_s, 3), begun > oldest
        return reports.WorkerReport(
            job=job,
            nonce=nonce,
            host=self._host,
            pid=communicator.queue.pid,
            link=self._link,
            begun=begun,
            finished=min(communicator.queue.finished, begun),
            operation=engine.name_of(oldest)[: reports.MOST_TEXT] if is_under_way else "",
            waiting_s=quiet_s if is_under_way else 0.0,
            idle_s=0.0 if is_under_way else quiet_s,
            collective_s=round(communicator.queue.seconds, 6),
            waiting_slots=max(0, engine.slots_waiting),
            rounds=counts[Count.ROUNDS],
            frames_sent=counts[Count.FRAMES_SENT],
            bytes_sent=counts[Count.BYTES_SENT],
            frames_received=counts[Count.FRAMES_RECEIVED],
            bytes_received=counts[Count.BYTES_RECEIVED],
            repeats=counts[Count.OVERTAKEN] + counts[Count.PROBES] + counts[Count.RECALLED],
            recalled=counts[Count.RECALLED],
            held=counts[Count.HELD],
            duplicates=counts[Count.DUPLICATE] + counts[Count.STALE],
        )
