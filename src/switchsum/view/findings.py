"""What is worth saying of a job, and of all jobs of a controller, as a program reads it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is worth saying, as a program reads it."""

    kind: str
    """`straggler`, `late`, `left out`, `silent`, `lost`, `missing`, `switch`, `link`, `taken`, `nobody` or `fine`."""
    text: str
    """Finding in sentences."""
    advice: str = ""
    """Advice: what to do about it."""
    ranks: list[int] = field(default_factory=list)
    """Whom it is about."""
    since_s: float = 0.0
    """Seconds that it has lasted, as far as is known."""
    slots: list[int] = field(default_factory=list)
    """Slots of the switch in which it shows."""
    operation: str = ""
    """Operation that the others are waiting in."""
    cause: str = ""
    """The same for findings of several jobs that have one cause; empty: it is this job's alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One thing that is wrong with a controller's jobs, said once for all of them."""

    text: str
    kind: str = ""
    """`away`, `links`, `refused`, or the kind of the findings that it sums up."""
    advice: str = ""
    jobs: list[str] = field(default_factory=list)
    """Jobs that the alert is about."""
    switch: str = ""
    """Switch that is away."""
