"""What is worth saying of a job, as a program reads it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is worth saying, as a program reads it."""

    kind: str
    """`straggler`, `late`, `silent`, `lost`, `missing`, `switch`, `link`, `nobody` or `fine`."""
    text: str
    """In sentences."""
    advice: str = ""
    """What to do about it."""
    ranks: list[int] = field(default_factory=list)
    """Whom it is about."""
    since_s: float = 0.0
    """For how long, as far as is known."""
    slots: list[int] = field(default_factory=list)
    """Slots of the switch in which it shows."""
    operation: str = ""
    """What the others are in the midst of."""
    cause: str = ""
    """The same for findings of several jobs that have one cause; empty: it is this job's alone."""
