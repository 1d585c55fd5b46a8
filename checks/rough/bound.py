"""The shortest time in which a sum can end, from what links, windows and troubles allow.

A worker sends `first` contributions, waits a round trip for their results, and then sends twice as many, up to its
window.  Before that it sends contributions without values in the same way, of which more may go at once.  While the
contributions are more than the slowest link takes in a round trip, the link sets the pace.  So the time is

    for each round: the longer one of the round trip, and what the link takes for the round's frames;
    for the last round: what the link takes for its frames, and the way of the last frame and its result.

A token bucket lets frames pass ahead of the rate.  A link that is down, or a host that stands still, takes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, cast

from switchsum_host.engine.config import EngineConfig
from switchsum_host.engine.congestion import FIRST_EMPTY

FIRST: Final = cast("int", next(one.default for one in fields(EngineConfig) if one.name == "first_window"))
"""Contributions with values that a worker sends over a tree before it has seen any result of such."""
_NEVER_AGAIN: Final = 1e12
_NEGLIGIBLE: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A time in which the slowest link has another rate."""

    since_s: float
    until_s: float
    factor: float = 0.0
    """How many times its own rate; 0: it takes nothing, because something is down or stands still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What limits a sum."""

    frame_s: float
    """Time of a contribution on the slowest link: of all jobs that share the link, one each."""
    trip_s: float
    """From the first bit of a contribution to the last bit of its result, with empty queues."""
    window: int
    """Most contributions in flight."""
    first: int = FIRST
    """Contributions in the first round trip."""
    short: int = 0
    """Contributions in front that carry no values, and take the link no time: floats agree on their scales first."""
    bucket_frames: float = 0.0
    """Frames that the slowest link sends ahead of its rate."""
    tries: float = 1.0
    """How often the frames of a round are sent on average until none is lost: each time takes a round trip."""
    phases: Sequence[Phase] = ()


def shortest_s(limits: Limits, contributions: int) -> float:
    """Return the shortest time of a sum of so many contributions of each worker.

    Example:
        >>> round(shortest_s(Limits(frame_s=1e-3, trip_s=10e-3, window=64), 1000), 6)  # the link sets the pace
        1.009
        >>> round(shortest_s(Limits(frame_s=1e-3, trip_s=0.125, window=10), 1000), 6)  # a hundred rounds of the window
        12.509

    """
    round_s = limits.trip_s * limits.tries
    now, left, credit = 0.0, limits.short, limits.bucket_frames
    window = min(FIRST_EMPTY, limits.window)
    while left > 0:
        now, left = now + round_s, left - window
        window = min(2 * window, limits.window)
    left, window = contributions, min(limits.first, limits.window)
    while left > 0:
        count = min(window, left)
        free = min(credit, count)
        passed = _passed_at(limits, now, count - free)
        if count == left:
            return max(now, passed - limits.frame_s * (count > free)) + round_s
        ends = max(now + round_s, passed)
        credit = min(credit - free + (ends - passed) / limits.frame_s, limits.bucket_frames)
        now, left = ends, left - count
        window = min(2 * window, limits.window)
    return now


def _passed_at(limits: Limits, now: float, frames: float) -> float:
    """Return when the slowest link has sent so many frames that begin to come now."""
    work = frames * limits.frame_s
    for phase in sorted(limits.phases, key=lambda one: one.since_s):
        if phase.until_s <= now:
            continue
        if now + work <= phase.since_s:
            break
        work -= max(0.0, phase.since_s - now)
        now = max(now, phase.since_s)
        done = (phase.until_s - now) * phase.factor
        if work <= done:
            return now + work / phase.factor if phase.factor else now
        work -= done
        now = phase.until_s
    return min(now + work, _NEVER_AGAIN)


def fullest_column(blocks: int, slots: int, part: float) -> int:
    """Return how many full blocks the slot with most of them has, as the median of such draws.

    A slot adds every `slots`-th block, and skips those that are zero on all ranks; the others are this `part`.  They
    lie at random, so that some slots have more of them than others.  Each takes a round trip, one after another.

    Example:
        >>> fullest_column(2453, 128, 0.36)  # 6.9 on average
        13
        >>> fullest_column(1000, 100, 1.0)
        10

    """
    length = -(-blocks // min(slots, blocks))
    if part >= 1:
        return length
    chance, at_most = (1 - part) ** length, 0.0
    for count in range(length):
        at_most += chance
        if at_most ** min(slots, blocks) >= 1 / 2:
            return count
        chance *= (length - count) / (count + 1) * part / (1 - part)
    return length


def mean_lateness_s(late: float, late_by_s: float, frames: int, most_s: float) -> float:
    """Return by how much the latest of the frames of a round is late on average.

    Each is late with the same probability, by a time between 0 and `late_by_s` that is equally likely.  Beyond `most_s`
    nobody waits for it: by then a repeat has come.

    Example:
        >>> round(mean_lateness_s(1.0, 1.0, 1, 10.0), 6)
        0.5
        >>> round(mean_lateness_s(0.05, 3.0, 20, 1.0), 3)  # most rounds have a late frame, and need a repeat
        0.571

    """
    if late == 0.0 or late_by_s == 0.0:
        return 0.0
    most_s = min(most_s, late_by_s)
    # The chance that no frame is later than x is (1 - late + late x / late_by_s) ^ frames; this is the integral of the
    # others' from 0 to `most_s`.
    to = 1 - late + late * most_s / late_by_s
    return most_s - late_by_s / (late * (frames + 1)) * (to ** (frames + 1) - (1 - late) ** (frames + 1))


def mean_tries(loss: float, frames: int, members: int) -> float:
    """Return how often contributions are sent on average until those of all members, and their results, have come.

    A contribution and its result cross so many links, on each of which a frame is lost with the same probability.
    """
    fails = 1 - (1 - loss) ** frames
    if fails == 0:
        return 1.0
    total, times = 0.0, 0
    while (missing := 1 - (1 - fails**times) ** members) > _NEGLIGIBLE:  # the chance that more are needed
        total, times = total + missing, times + 1
    return total
