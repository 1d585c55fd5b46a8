"""The latest refusals by job: what nobody could see who asks about jobs, since a job that was refused is not there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from switchsum_protocol import rpc
from switchsum_protocol.errors import SwitchsumError
from switchsum_protocol.reports import printable

MOST_JOBS: Final = 16
"""Jobs that are kept, those that were refused last."""
MOST_TEXT: Final = 200
"""Characters of a name or a reason: anybody may ask for anything."""


class Refusals:
    """Keeps for each job the latest reason why it was not made, or a member not let in; any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: OrderedDict[str, tuple[int, str, str, float, int]] = OrderedDict()

    def note(self, job: str, rank: int, error: SwitchsumError, now: float) -> None:
        """Keep a refusal; rank -1: of the job itself."""
        job, reason = printable(job, MOST_TEXT), printable(str(error), MOST_TEXT)
        with self._lock:
            times = self._latest.pop(job, (0, "", "", 0.0, 0))[4] + 1
            self._latest[job] = rank, reason, type(error).__name__, now, times
            while len(self._latest) > MOST_JOBS:
                self._latest.popitem(last=False)

    def forget(self, job: str, rank: int) -> None:
        """Drop a refusal that has been made good: that rank has joined, or the job was made (-1)."""
        with self._lock:
            if self._latest.get(job := printable(job, MOST_TEXT), (None,))[0] == rank:
                del self._latest[job]

    def latest(self, now: float) -> list[rpc.RefusalInfo]:
        """Describe them, the latest first."""
        with self._lock:
            return [
                rpc.RefusalInfo(
                    job=job, rank=rank, reason=reason, kind=kind, age_s=round(max(0.0, now - at), 3), times=times
                )
                for job, (rank, reason, kind, at, times) in reversed(self._latest.items())
            ]
