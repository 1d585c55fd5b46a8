"""Round trips: how long a round takes on a path, told apart from what late ranks and others' repeats add.

A round lasts as long as the slowest worker needs.  So no single round tells how long the path is; the shortest rounds
of a round trip do, for they have waited for nobody:

* `least_s`, the shortest of all, is the path without a queue.
* `recent_s`, the shortest of the last round trip, is the path with the queues that stand now.
* `usual_s` is the longest of these lately: a token bucket makes some round trips a thousand times as long as others.
* `in_order_s` is the shortest of the last few results that came in the order of sending: how long the path is now, in
  the middle of a round trip.  A round that waited for somebody's repeat comes behind later ones.
* `answer_s` is what the switch's answer to a repeat took.  It waits for nobody, but in a tree it comes from nearer.

A queue *stands* if even the shortest round of a round trip was longer than the shortest of all.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar
from switchsum_switch.kernels.records import Float64, Int64, Record

STANDING_S: Final = 1e-3
"""Seconds that frames must have waited for a queue to stand: processors that are shared make rounds longer, too."""
LONG_S: Final = 50e-3
"""A queue that is so long lets the window grow no more."""
LOSSY_S: Final = 1e-4
"""With a queue that is so long a loss is its own."""
FEW_TIMED: Final = 4
"""The shortest of so many rounds of a round trip tells whether a queue stands (HyStart, RFC 9406)."""
MANY_MEMBERS: Final = 64
"""With more members than that most rounds lose a frame somewhere where 1 % is lost, and answers count for longer."""
_GAIN: Final = 1 / 8
"""Part by which what rounds are thought to take follows those that say little (the gain of RFC 6298)."""
_HALF_QUEUED: Final = 2.0
"""With a round trip of so many times the shortest one, half of what is in flight lies in queues."""
_DEEP: Final = 8.0
_DEEP_S: Final = 10e-3
"""A queue in which frames wait for so many shortest rounds, and that long, is our own: no repeat takes as long."""
_FAR: Final = 4.0
"""On far paths one in which they wait for so many shortest rounds and `LONG_S` is."""
_ANSWERS: Final = 2.0
"""A round takes at most so many times what an answer takes."""
_FEW_IN_FLIGHT: Final = 8
"""With no more than that the last results of a sum come in any order."""


class RoundTrips(Record):
    """What is known of the times of rounds on a path, in seconds.  Infinity: nothing yet."""

    least_s: Float64
    """The shortest round with lanes of all."""
    recent_s: Float64
    """The shortest of the round trip before the present one."""
    usual_s: Float64
    """The longest of these shortest rounds in round trips lately; 0: none."""
    shortest_s: Float64
    """The shortest since the present round trip began."""
    timed: Int64
    """How many were timed since then."""
    settled: Int64
    """How many of these were sent after a result of their operation had come: they have not waited for a late rank."""
    timed_from: Float64
    """Since when they are counted."""
    newest: Int64
    """The highest sequence whose result has come."""
    in_order: Int64
    """Results that came in the order of sending since `lately_s` was set anew."""
    lately_s: Float64
    """What the shortest of them took."""
    in_order_s: Float64
    """What the shortest of the last few results in the order of sending took, without waiting for a late rank."""
    came_at: Float64
    """When the last result came."""
    answer_s: Float64
    """What the last answer to a repeat took."""
    answered_at: Float64
    """When it came."""
    shortened_at: Float64
    """When `usual_s` was last made shorter for an answer."""


UNKNOWN: Final[dict[str, Any]] = dict.fromkeys(("least_s", "recent_s", "shortest_s", "lately_s", "answer_s"), np.inf)
"""What a path's `RoundTrips` have before its first round; all others are 0."""


@inner
def has_many(members: int) -> bool:
    """Tell whether so many members add that nearly each round loses a frame somewhere.

    Then even the shortest rounds have waited for repeats, and these for such rounds: only answers know the path.
    """
    return bool(members > MANY_MEMBERS)


@inner
def note_round(trips: RoundTrips, elapsed: float, is_settled: bool) -> None:
    """Note how long a round took whose contribution was sent once."""
    trips.least_s = min(trips.least_s, elapsed)
    trips.shortest_s = min(trips.shortest_s, elapsed)
    trips.timed += 1
    trips.settled += is_settled


@inner
def note_in_order(
    trips: RoundTrips, sequence: int, in_flight: int, elapsed: float, carries: bool, members: int
) -> None:
    """Notice within a round trip that all rounds have become long, as when a token bucket is empty or a rate falls.

    Where a few results in a row come in order, and more are on their way, even the shortest round of them was as long
    as the path is now.  `elapsed` is since the operation's first result at the most, for until then ranks may have
    waited for a late one.
    """
    if sequence <= trips.newest:
        return
    trips.newest = sequence
    if in_flight <= _FEW_IN_FLIGHT:
        return
    trips.lately_s = min(trips.lately_s, elapsed)
    trips.in_order += 1
    if trips.in_order >= FEW_TIMED:
        _forget_answer(trips, members)
        trips.usual_s = max(trips.usual_s, trips.lately_s)
        if carries:
            trips.in_order_s = trips.lately_s
        trips.in_order = 0
        trips.lately_s = np.inf


@inner
def note_answer(trips: RoundTrips, elapsed: float, in_tree: int, now: float) -> None:
    """Note how long the answer to a repeat took.

    Where that is longer than rounds are thought to be, they are so long now, unless a shorter one has just come.  In a
    tree not if none has come at all: it may be the answer to somebody else's repeat, and ours was lost.  Where it is
    shorter, rounds wait for repeats; but not in a tree, where answers come from a switch that is nearer.  One answer in
    a round's time counts, for those of a moment have all met the same queue, or the tokens that were left in a bucket.
    """
    trips.answer_s = elapsed
    trips.answered_at = now
    if trips.recent_s < elapsed and (in_tree == 0 or now - trips.came_at <= elapsed / 2):
        trips.recent_s = min(trips.shortest_s, elapsed)
    if in_tree == 0 and now >= trips.shortened_at + trips.usual_s:
        trips.shortened_at = now
        trips.usual_s = min(trips.usual_s, (trips.usual_s + elapsed) / 2)
        trips.in_order_s = min(trips.in_order_s, (trips.in_order_s + elapsed) / 2)


@inner
def end_round_trip(trips: RoundTrips, in_flight: int, members: int, now: float) -> None:
    """End a round trip: its shortest round says how long the path is.

    Of few rounds, all may have waited for somebody's repeat.  So may all that were sent before the first result of
    their operation: a rank that waited for its repeat begins late.  If its time-out became the others' shortest round
    at once, time-outs would follow one another.  Yet such rounds are right where the path has become slow.
    """
    if trips.timed < FEW_TIMED:
        return
    is_known = trips.settled >= FEW_TIMED
    trips.recent_s = trips.shortest_s if is_known else min(trips.shortest_s, (1.0 + _GAIN) * trips.recent_s)
    trips.usual_s = max(trips.recent_s, trips.usual_s + _GAIN * (trips.recent_s - trips.usual_s))
    if in_flight <= _FEW_IN_FLIGHT:  # then results in order no longer tell whether a queue is deep
        trips.in_order_s = min(trips.in_order_s, trips.recent_s)
    if is_known and trips.answered_at < trips.timed_from:
        _forget_answer(trips, members)
    trips.timed_from = now
    trips.shortest_s = np.inf
    trips.timed = trips.settled = 0


@inner
def _forget_answer(trips: RoundTrips, members: int) -> None:
    """Forget what an answer took: newer rounds tell how long one takes, and the answer may be older than a queue."""
    if not has_many(members):
        trips.answer_s = np.inf


@inner
def shortest_s(trips: RoundTrips) -> Scalar:
    """Return the shortest round with lanes of the last round trip and the present one; infinity: none was timed."""
    return min(trips.recent_s, trips.shortest_s)


@inner
def answered_s(trips: RoundTrips, members: int, in_tree: int) -> Scalar:
    """Return how long a round takes that waits for nobody, as far as answers tell; infinity: they do not count.

    In a tree with few members they do not: they come from a switch that is nearer.
    """
    return _ANSWERS * trips.answer_s if has_many(members) or in_tree == 0 else np.inf


@inner
def longest_s(trips: RoundTrips, members: int, in_tree: int) -> Scalar:
    """Return how long a round without a repeat may take: the longest of round trips lately; 0: none was timed."""
    answered: Scalar = answered_s(trips, members, in_tree)
    if min(trips.least_s, answered) == np.inf:
        return 0.0
    return min(max(trips.usual_s, shortest_s(trips)), max(answered, trips.usual_s / 2))


@inner
def expected_s(trips: RoundTrips, members: int, in_tree: int) -> Scalar:
    """Return how long a round takes now if nobody repeats anything; infinity: not known."""
    return min(shortest_s(trips), answered_s(trips, members, in_tree))


@inner
def waited(trips: RoundTrips, elapsed: float, most_s: float) -> bool:
    """Tell whether a round's time means that frames waited for half a shortest round, and for `most_s`."""
    return bool(1.5 * trips.least_s + most_s < elapsed < np.inf)


@inner
def is_queued(trips: RoundTrips, most_s: float) -> bool:
    """Tell whether frames waited for half a shortest round, and for `most_s`, in all of the last round trip."""
    return waited(trips, trips.recent_s, most_s)


@inner
def is_busy(trips: RoundTrips) -> bool:
    """Tell whether queues on the way never emptied in the last round trip, so that repeats make them longer.

    Other round trips may be long because somebody's frame was lost; the shortest one was not.
    """
    return bool(_HALF_QUEUED * trips.least_s < trips.recent_s < np.inf)


@inner
def is_deep(trips: RoundTrips) -> bool:
    """Tell whether the last results that came in order waited in a queue that holds far more than fills the link."""
    return bool(trips.in_order_s > min(_DEEP * trips.least_s + _DEEP_S, _FAR * trips.least_s + LONG_S))


@inner
def filling(trips: RoundTrips, in_flight: int) -> float:
    """Return how much of what is in flight fills the link: all if no queue stands (Little's law); 0: not known."""
    round_s = max(trips.recent_s, trips.in_order_s) if is_deep(trips) else trips.recent_s
    return in_flight * trips.least_s / round_s if round_s < np.inf else 0.0
