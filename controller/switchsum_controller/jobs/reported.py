"""What one member has said of itself: the latest report, and how fast its figures grow."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from switchsum_protocol import reports

RECENT_S: Final = 10.0
"""Rates are of so many seconds."""
GROWING: Final = (
    *("rounds", "frames_sent", "frames_received", "repeats", "recalled", "waiting_slots", "cpu_s", "bytes_sent"),
    *("finished", "held", "duplicates", "marked", "sparse_rows", "sparse_union_rows", "sparse_all_rows"),
)
"""Figures whose growth is told."""


@dataclass(slots=True)
class Reported:
    """Reports of a member, the latest one and those of a few seconds before."""

    latest: reports.WorkerReport | None = None
    at_s: float = 0.0
    """Time of that report's arrival, in the controller's monotonic seconds."""
    earlier: deque[tuple[float, reports.WorkerReport]] = field(default_factory=deque)

    def note(self, report: reports.WorkerReport, now: float) -> None:
        """Keep a report."""
        if self.latest is not None:
            self.earlier.append((self.at_s, self.latest))
        while len(self.earlier) > 1 and self.earlier[1][0] <= now - RECENT_S:
            self.earlier.popleft()
        self.latest, self.at_s = report, now

    @property
    def recent(self) -> reports.RecentFigures:
        """By how much figures have grown within the last seconds."""
        if self.latest is None or not self.earlier:
            return reports.RecentFigures()
        at_s, before = self.earlier[0]
        grown = {name: getattr(self.latest, name) - getattr(before, name) for name in GROWING}
        return reports.RecentFigures(seconds=round(self.at_s - at_s, 3), **grown)
