"""What one run of a cell came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


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
    sum_error: float | None = None
    """Energy of the sum's error over that of the right sum, on the worker where it is largest; None: nobody looked."""
    right: bool | None = None
    """Whether every worker has the sum; None: nothing was added."""

    @classmethod
    def of(cls, seconds: float, size: int, **more: Any) -> Outcome:
        """Make one of a time and the bytes of an array."""
        return cls(ms=1e3 * seconds, mb_per_s=size / seconds / 1e6 if seconds else 0.0, **more)

    @property
    def record(self) -> dict[str, Any]:
        """Return the figures by their names."""
        return asdict(self)
