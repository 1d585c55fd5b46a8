"""Silence: a path over which nothing comes for a time-out, and how much of what was sent over it may be lost.

The timer waits for the silence of all paths.  A job with several trees may have lost all that was in flight over one of
them, while results come over the others.  So a path that is silent for twice a time-out has some frames repeated, too.

First contributions over a path have no lanes, and leave at once, up to 128 of them.  Where they are all lost, as in a
queue of a few frames, nothing passes them, and each time-out would bring two of them back.  So they become *suspect*
with a time-out.  If an answer to a repeat comes, and for a round trip no result of what was not repeated, then all are
taken for lost, as in F-RTO (RFC 5682): each answer has two more repeated, as slow start does.
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
    """When a result last came over it, or some of its contributions were repeated for its silence."""
    times: Int64
    """Time-outs in a row in which no result came over it, though some came over others."""
    suspect: Int64
    """What was sent up to this sequence waited in vain for a time-out, and may all be lost; 0: a result of it came."""
    goes_on_at: Float64
    """When the repeats go on by themselves: a round trip after an answer; 0: none has come."""


@inner
def note_timeout(silence: Silence, sequence: int) -> None:
    """Note that a time-out has ended, in which nothing came of what was sent up to a sequence."""
    silence.suspect = sequence
    silence.goes_on_at = 0.0


@inner
def note_repeats(silence: Silence, now: float) -> None:
    """Note that contributions are repeated because of this path's silence."""
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
