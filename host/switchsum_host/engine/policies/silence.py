"""Silence: a tree over which nothing comes for a time-out, while results come over others of the job.

The timer waits for the silence of all trees.  So a tree over which no lanes have come yet has a time-out of its own,
twice as long: all of its first contributions may be lost, in a queue of a few frames that the trees share.
"""

from __future__ import annotations

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.records import Float64, Int64, Record


class Silence(Record):
    """How long a path has been silent."""

    heard_at: Float64
    """When a result last came over it, or a time-out of its own ended; 0: neither has."""
    times: Int64
    """Time-outs in a row in which no result came over it, though some came over others."""


@inner
def note_timeout(silence: Silence, now: float) -> None:
    """Note that a time-out of the path's own has ended."""
    silence.heard_at = now
    silence.times += 1


@inner
def note_heard(silence: Silence, now: float) -> None:
    """Note that a result has come, or that nothing is in flight: from now on, silence would mean something."""
    silence.heard_at = now
    silence.times = 0
