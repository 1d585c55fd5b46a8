"""Delivery: how fast results come, and whether the frames that are lost are more than the path can carry.

On a path that is full, results come one after another at the rate of its slowest link, however many contributions are
in flight.  What is sent beyond that waits in a queue, or is lost where the queue is short: one of a few frames does not
show in the time of rounds.  So a path *overflows* if in a round trip more was sent than that rate allows, results came
at nearly that rate, and by a standard deviation more frames were lost than chance loses.  Where chance loses frames,
results come with gaps between them.

The rate is that of a few results in a row, the highest of late: as BBR's delivery rate, with a maximum filter
(draft-cardwell-iccrg-bbr-congestion-control).  Where a driver takes results in batches the rate looks higher than it
is, and nothing overflows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.records import Float64, Int64, Record

_IN_A_ROW: Final = 3
"""Results in a row whose time says how fast the path is: with more, frames lost by chance leave gaps in most rows."""
_FEWEST: Final = 8
"""With no more results than that, a round trip is taken together with the next one."""
_KEPT: Final = 0.95
"""Part of the rate that is kept in each round trip without such results: the path may have become slower."""
_FULL: Final = 0.7
"""Part of that rate at which results come nearly as fast as the path lets them, though frames are lost."""
_BY_CHANCE: Final = 0.02
"""Part of a member's frames that may be lost by chance: 1 % in each direction."""


class Delivery(Record):
    """How fast results come on a path; counts are of the present round trip."""

    rate: Float64
    """Results a second that a few in a row came at lately; 0: not known."""
    fastest: Float64
    """The highest such rate in this round trip."""
    in_a_row: Int64
    """Results since `row_at`."""
    row_at: Float64
    """When the first of these results came; 0: none has come."""
    came: Int64
    """Results."""
    sent: Int64
    """Contributions that were sent, and repeats."""
    lost: Int64
    """Contributions that were taken for lost."""
    excess: Float64
    """Contributions that were lost beyond chance in the last few round trips, in all of which the path was full."""
    began_at: Float64
    """When the round trip began; later by the times in which nothing was in flight."""
    came_at: Float64
    """When the last result came."""


@inner
def by_chance(members: int) -> float:
    """Return how many repeats a round needs where each member loses some frames by chance: a round waits for all."""
    return float(np.exp(_BY_CHANCE * members)) - 1.0


@inner
def note_sent(delivery: Delivery, in_flight: int, now: float) -> None:
    """Note that a contribution is sent, or repeated, where so many are in flight with it."""
    delivery.sent += 1
    if in_flight <= 1 and delivery.came_at > 0.0:
        delivery.began_at += max(now - delivery.came_at, 0.0)
        delivery.came_at = now


@inner
def note_delivered(delivery: Delivery, now: float) -> None:
    """Note that a result with lanes has come."""
    delivery.came += 1
    delivery.came_at = now
    if delivery.row_at == 0.0:
        delivery.row_at = delivery.began_at = now
        return
    delivery.in_a_row += 1
    if delivery.in_a_row >= _IN_A_ROW and now > delivery.row_at:
        delivery.fastest = max(delivery.fastest, delivery.in_a_row / (now - delivery.row_at))
        delivery.in_a_row, delivery.row_at = 0, now


@inner
def end_round_trip(delivery: Delivery, members: int, now: float) -> float:
    """End a round trip; return how many frames were lost for each result if the path overflowed in it, else 0."""
    delivery.rate = max(delivery.fastest, _KEPT * delivery.rate)
    delivery.fastest = 0.0
    if delivery.came <= _FEWEST:
        return 0.0
    most = delivery.rate * (now - delivery.began_at)
    is_full = delivery.sent > most > 0.0 and delivery.came >= _FULL * most
    mean = by_chance(members)
    deviation = np.sqrt(mean * (1.0 + mean) * delivery.came)  # the standard one, of tries that fail independently
    beyond = delivery.excess + delivery.lost - mean * delivery.came
    delivery.excess = max(beyond, 0.0) if is_full else 0.0
    lost = delivery.lost / delivery.came if delivery.excess > deviation else 0.0
    if lost > 0.0:
        delivery.excess = 0.0
    delivery.came = delivery.sent = delivery.lost = 0
    delivery.began_at = now
    return lost
