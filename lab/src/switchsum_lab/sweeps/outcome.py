"""What one run of a cell came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from switchsum_lab.sweeps.axes import Cell

MOST_REPEATS: Final = 0.02
"""Share of contributions that may be sent again where nothing is lost: with more, time-outs decide the figure."""
MOST_BUSY: Final = 0.9
"""Share of the machine's processor time that a cell on real links may take: with more, processors decide the figure."""
LEAST_TIME: Final = 0.99
"""Share of the time that a link needs for what a worker sent: with less, more than its rate has passed."""
MARKS: Final = {
    "repeats": f"over {MOST_REPEATS:.0%} repeats without loss",
    "cores": f"cores over {MOST_BUSY:.0%} busy",
    "bucket": "faster than its links, whose token buckets were not empty",
}
"""What a figure may be marked with, and what that means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of one run.  Those that the cell's links or protocol do not have are None."""

    ms: float
    """Milliseconds that the collective took on the slowest worker."""
    mb_per_s: float
    """Bytes of a worker's array over that time."""
    sent_mb: float | None = None
    """Megabytes that a worker sent, headers included, on average."""
    frames: int | None = None
    """Frames that links took, or that workers sent."""
    repeats: int | None = None
    """Frames that were sent again."""
    taken: float | None = None
    """Share of rounds whose shared slot another job had, so that the aggregator added; None: no slots are shared."""
    cpu_s: float | None = None
    """Seconds for which processors worked for all processes of the job; virtual links: None."""
    worker_cpu_s: float | None = None
    """Those of them that the workers used."""
    memory_mb: float | None = None
    """Most megabytes that a worker held in the call beside its arrays and what it held when it had joined, on the
    worker where they are most.
    """
    slowest_ms: float | None = None
    """With arrivals, the longest time from a job's arrival to its end, whose mean over the jobs is `ms`."""
    late_ms: float | None = None
    """Milliseconds by which the latest rank began behind the first, a part of `ms`. None: ranks begin together."""
    sum_error: float | None = None
    """Energy of the sum's error over that of the right sum, on the worker where it is largest; None: nobody looked."""
    left_out: str | None = None
    """Ranks whose contributions some sum lacks, each with how many: `1:4 3:12`; None: the protocol counts none."""
    right: bool | None = None
    """Whether every worker has the sum; None: nothing was added, or the protocol's sums are inexact."""

    @classmethod
    def of(cls, seconds: float, size: int, **more: Any) -> Outcome:
        """Make one of a time and the bytes of an array."""
        return cls(ms=1e3 * seconds, mb_per_s=size / seconds / 1e6 if seconds else 0.0, **more)

    @property
    def record(self) -> dict[str, Any]:
        """Return the figures by their names."""
        return asdict(self)


def left_out_of(counts: Sequence[int]) -> str | None:
    """Return how many contributions of each rank sums lack, as a table has it.

    Example:
        >>> left_out_of([0, 4, 0, 12])
        '1:4 3:12'

    """
    return " ".join(f"{rank}:{count}" for rank, count in enumerate(counts) if count) or None


def marks(cell: Cell, outcome: Outcome, cores: int | None) -> list[str]:
    """Return what speaks against a figure, of `MARKS`.

    Args:
        cell: Where it was measured.
        outcome: What came out.
        cores: Cores of the machine; None: not known.

    Returns:
        Names of marks; none of a figure that links and protocol decide.

    Example:
        >>> marks(Cell(), Outcome(ms=1.0, mb_per_s=1.0, frames=1000, repeats=100), 2)
        ['repeats']

    """
    found = []
    is_lossy = cell.loss or cell.late or cell.twice or cell.outage or cell.pause
    is_lossy = is_lossy or cell.late_ranks or cell.arrivals or cell.fail or cell.background
    if not is_lossy and outcome.frames and outcome.repeats is not None:
        # A virtual network counts what each link takes: a contribution and its result, at least.
        contributions = outcome.frames * cell.calls / (2 if cell.is_virtual else 1)
        if outcome.repeats > MOST_REPEATS * contributions:
            found.append("repeats")
    if outcome.cpu_s is not None and cores and outcome.cpu_s > MOST_BUSY * cores * outcome.ms / 1e3:
        found.append("cores")
    rate = cell.rate_mbit if cell.links == "veth" else None
    if rate is not None and outcome.sent_mb is not None and outcome.ms < LEAST_TIME * 8e3 * outcome.sent_mb / rate:
        found.append("bucket")
    return found
