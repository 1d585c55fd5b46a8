"""The latest refusals by job: what nobody could see who asks about jobs, since a job that was refused is not there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from switchsum_protocol import rpc
from switchsum_protocol.errors import SwitchsumError, WorldSizeMismatch
from switchsum_protocol.reports import printable

MOST_JOBS: Final = 16
"""Jobs that are kept, those that were refused last."""
MOST_TEXT: Final = 200
"""Characters of a name or a reason: anybody may ask for anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    at_s: float
    """When it was, in the controller's monotonic seconds."""
    info: rpc.RefusalInfo


class Refusals:
    """Keeps for each job the latest reason why it was not made, or a member not let in; any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: OrderedDict[str, _Refusal] = OrderedDict()

    def note(self, job: str, rank: int, error: SwitchsumError, now: float) -> None:
        """Keep a refusal; rank -1: of the job itself."""
        job, reason = printable(job, MOST_TEXT), printable(str(error), MOST_TEXT)
        with self._lock:
            before = self._latest.pop(job, None)
            self._latest[job] = _Refusal(
                at_s=now,
                info=rpc.RefusalInfo(
                    job=job,
                    rank=rank,
                    reason=reason,
                    kind=type(error).__name__,
                    times=1 if before is None else before.info.times + 1,
                    world_size=error.world_size if isinstance(error, WorldSizeMismatch) else 0,
                ),
            )
            while len(self._latest) > MOST_JOBS:
                self._latest.popitem(last=False)

    def forget(self, job: str, rank: int) -> None:
        """Drop a refusal that has been made good: that rank has joined, or the job was made (-1)."""
        with self._lock:
            before = self._latest.get(job := printable(job, MOST_TEXT))
            if before is not None and before.info.rank == rank:
                del self._latest[job]

    def latest(self, now: float) -> list[rpc.RefusalInfo]:
        """Describe them, the latest first."""
        with self._lock:
            latest = [*reversed(self._latest.values())]
        return [replace(one.info, age_s=round(max(0.0, now - one.at_s), 3)) for one in latest]
