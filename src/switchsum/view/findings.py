"""What is worth saying of a job, and of all jobs of a controller, as a program reads it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is worth saying, as a program reads it."""

    kind: str
    """`straggler`, `late`, `waits`, `left out`, `silent`, `lost`, `starting`, `missing`, `switch`, `link`,
    `congested`, `taken`, `mismatch`, `nobody` or `fine`."""
    text: str
    """Finding in one short sentence: who is to blame, by how much, and who suffers."""
    details: str = ""
    """Further sentences: calls, slots, addresses, and shares of time."""
    advice: str = ""
    """Advice: what to do about it."""
    command: str = ""
    """Command that does what `advice` says, to be copied."""
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
    share: float = 0.0
    """Share of frames that are lost, of findings of kind `link`."""
    symptom: str = ""
    """Name of the row of `view/rules.py` that was filled."""
    level: int = 0
    """Level of this row: the lower, the more it outweighs."""
    cost: float = 0.0
    """Share of the last ten seconds that it takes up, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One thing that is wrong with a controller's jobs, said once for all of them."""

    text: str
    """One short sentence."""
    kind: str = ""
    """`away`, `links`, `refused`, or the kind of the findings that it sums up."""
    details: str = ""
    """Further sentences, for smaller letters."""
    advice: str = ""
    command: str = ""
    """Command that does what `advice` says, to be copied."""
    jobs: list[str] = field(default_factory=list)
    """Jobs that the alert is about."""
    switch: str = ""
    """Switch that is away."""
