"""Silence: a tree over which nothing comes for a time-out, while results come over others of the job.

The timer waits for the silence of all trees.  So a tree over which no lanes have come yet has a time-out of its own,
twice as long.  First contributions have no lanes, and leave at once, up to 128 of them.  Where they are all lost, as in
a queue of a few frames that the trees share, nothing passes them, and each time-out would bring two of them back.  So
they become *suspect* with a time-out.  If an answer to a repeat comes, and for a round trip no result of what was not
repeated, then all are taken for lost, as in F-RTO (RFC 5682): each answer has two more repeated, as slow start does.

A single tree has no such rule.  Others may share its link and be slow at the beginning, and what they would repeat
makes their shares unequal.
"""

from __future__ import annotations

from typing import Final

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.records import Float64, Int64, Record

REPEATED: Final = 2
"""Contributions that an answer has repeated."""


class Silence(Record):
    """What is known of a path's silence; times are 0 until then."""

    heard_at: Float64
    """When a result last came over it, or a time-out of its own ended."""
    times: Int64
    """Time-outs in a row in which no result came over it, though some came over others."""
    suspect: Int64
    """What was sent up to this sequence waited in vain for a time-out, and may all be lost; 0: a result of it came."""
    goes_on_at: Float64
    """When the repeats go on by themselves: a round trip after an answer; 0: none has come."""


@inner
def note_timeout(silence: Silence, sequence: int, now: float) -> None:
    """Note that a time-out has ended, in which nothing came of what was sent up to a sequence."""
    silence.suspect = sequence
    silence.goes_on_at = 0.0
    silence.heard_at = now
    silence.times += 1


@inner
def note_idle(silence: Silence, now: float) -> None:
    """Note that nothing is in flight: from now on, silence would mean something."""
    silence.heard_at = now
    silence.times = 0


@inner
def note_result(silence: Silence, sequence: int, is_repeated: bool, is_first: bool, elapsed: float, now: float) -> bool:
    """Note a result, `elapsed` after its contribution was last sent; tell whether two suspects are repeated for it.

    `is_first`: the path has brought no lanes yet, and the switch has not said that it had this contribution.
    """
    silence.heard_at = now
    silence.times = 0
    if not is_repeated and sequence <= silence.suspect:
        silence.suspect = 0
    if not (is_repeated and is_first and silence.suspect > 0):
        return False
    if silence.goes_on_at == 0.0:
        silence.goes_on_at = now + elapsed
        return False
    return bool(now >= silence.goes_on_at)


@inner
def goes_on(silence: Silence, now: float) -> bool:
    """Tell whether two suspects are repeated since nothing at all has come for a round trip after an answer."""
    return bool(silence.suspect > 0 and silence.heard_at < silence.goes_on_at <= now)
