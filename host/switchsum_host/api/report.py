"""What a worker says of itself to its controller, read beside the job: nothing of it is in the way of a collective."""

from __future__ import annotations

import base64
import math
import os
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol import member_rpc, reports
from switchsum_switch.notices import say

from ..engine.call_times import CALLS
from ..engine.operation import KNOWN
from ..engine.state import Count

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from .communicator import Communicator

MOST_CALLS: Final = CALLS / 2
"""Most calls in a second's report, about. If there are more, rows of them are left out, the same ones on all ranks."""
_UNNAMED: Final = "a collective"


class Reporter:
    """Makes reports of one communicator, on the thread of the heartbeats.

    It reads the engine's counters while another thread may write them: each is one word, and a report may mix those of
    two moments.  How long a worker waits is known to the time between two reports.
    """

    def __init__(
        self,
        communicator: Communicator,
        engine: Engine,
        *,
        host: str,
        link: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Report of a communicator and of the engine that its driver runs."""
        self._communicator, self._engine = weakref.ref(communicator), weakref.ref(engine)
        self._host, self._link = host[: member_rpc.MOST_TEXT], link[: member_rpc.MOST_TEXT]
        self._clock = clock
        self._seen = (-1, -1)
        self._changed_s = clock()
        self._reported, self._begun, self._reported_s = 0, 0, clock()
        self._failure: type[Exception] | None = None

    def __call__(self, job: str, nonce: int) -> reports.WorkerReport | None:
        """Return a report; None once the communicator is closed or gone, in a forked child, and if it cannot be made.

        A mistake of ours must not end the thread of heartbeats, on which the rank's place in the job depends.
        """
        try:
            return self._make(job, nonce)
        except Exception as error:
            if type(error) is not self._failure:
                self._failure = type(error)
                say(f"the report for the controller could not be made: {type(error).__name__}: {error}")
            return None

    def _make(self, job: str, nonce: int) -> reports.WorkerReport | None:
        communicator, engine = self._communicator(), self._engine()
        if communicator is None or engine is None or communicator.queue.closed or os.getpid() != communicator.queue.pid:
            return None
        now = self._clock()
        counts = engine.counts.tolist()
        begun, oldest = engine.progress
        seen = counts[Count.ROUNDS], begun
        if seen != self._seen:
            self._seen, self._changed_s = seen, now
        quiet_s, is_under_way = round(now - self._changed_s, 3), begun > oldest
        had, of_some, of_all = communicator.supports.tolist()
        calls, kinds = self._calls(engine.state.core[0]["calls"], communicator.purpose_of, begun, now)
        return reports.WorkerReport(
            job=job,
            nonce=nonce,
            host=self._host,
            pid=communicator.queue.pid,
            link=self._link,
            begun=begun,
            finished=min(communicator.queue.finished, begun),
            operation=engine.name_of(oldest)[: member_rpc.MOST_TEXT] if is_under_way else "",
            waiting_s=quiet_s if is_under_way else 0.0,
            is_inside=is_under_way and communicator.queue.holds_caller,
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
            marked=counts[Count.MARKED],
            cpu_s=round(time.process_time(), 3),
            sparse_rows=had,
            sparse_union_rows=of_some,
            sparse_all_rows=of_all,
            calls=calls,
            kinds=kinds,
        )

    def _calls(self, kept: Any, purpose_of: Callable[[int], str], begun: int, now: float) -> tuple[str, list[str]]:
        """Return what has ended since the last report, as its fields have it, and choose what is kept from now on."""
        rows, kinds, self._reported = ended_calls(kept, self._reported)
        kinds = with_purposes(rows, kinds, purpose_of)
        if now > self._reported_s:
            rate = (begun - self._begun) / (now - self._reported_s)
            kept["sieve"] = (1 << max(0, math.ceil(math.log2(max(1.0, rate / MOST_CALLS))))) - 1
            self._begun, self._reported_s = begun, now
        return base64.b64encode(rows.astype("<i8").tobytes()).decode(), [one[: reports.MOST_KIND] for one in kinds]


def with_purposes(rows: npt.NDArray[np.int64], kinds: list[str], purpose_of: Callable[[int], str]) -> list[str]:
    """Divide kinds of calls by what these are for, where that is known; return the kinds that rows have now."""
    places: dict[str, int] = {}
    for row in rows:
        purpose = purpose_of(int(row[0]))
        kind = kinds[row[1]] + f", {purpose}" * bool(purpose)
        row[1] = places.setdefault(kind, len(places))
    return list(places)


def ended_calls(kept: Any, reported: int) -> tuple[npt.NDArray[np.int64], list[str], int]:
    """Return what an engine has kept of calls from number `reported` on, up to the first that is under way.

    Returns:
        Three things.  First a row for each call: its serial number, its place in the list of kinds, when it began and
        how long it took (in nanoseconds), and whether somebody waited between the call before and it.  Then the list of
        kinds, and the number of the next call.

    """
    first = max(reported, int(kept["count"]) - CALLS)
    numbers = np.arange(first, int(kept["count"]))
    serials, digests, begun, ended, waited = (
        kept[name][numbers % CALLS].copy() for name in ("serial", "digest", "begun_at", "ended_at", "waited")
    )
    written = max(0, int(kept["count"]) - CALLS - first)  # over what was read, by another thread meanwhile
    under_way = np.flatnonzero(ended[written:] == 0.0)
    count = written + int(under_way[0]) if len(under_way) else len(numbers)
    found = slice(written, count)
    known, places = np.unique(digests[found], return_inverse=True)
    names = [str(KNOWN.get(int(digest), _UNNAMED)) for digest in known]
    times = np.rint(np.stack([begun[found], ended[found] - begun[found]]) * 1e9).astype(np.int64)
    return np.column_stack([serials[found], places, *times, waited[found]]), names, first + count
