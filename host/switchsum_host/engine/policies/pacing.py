"""Pacing: contributions leave one after another, not a window at once (RFC 9002, 7.7).

A window that leaves at once, as at the beginning of a sum, overflows a queue of a few frames, though the link has room.
So once many frames of a round trip were lost or marked while no queue stood, the window is spread over a part of the
shortest round, for some round trips.  Results come at the rate of the slowest link, and so do contributions from then
on: spreading costs that part of a round trip at a sum's beginning, and nothing later.  Where the path holds many,
contributions leave hardly faster than its slowest link sends them (BBR's pacing).

Where rounds are hardly longer than the driver looks late at its clock, nothing is spread.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.records import Float64, Int64, Record

from .delivery import by_chance

_FASTER: Final = 4.0
"""A window is sent in a round trip's time, divided by this.  With 2 a job beside TCP that ignores marks has less than a
third of the link, for TCP's frames leave in bursts; with 1 each sum lasts a round trip longer."""
_COARSE: Final = 10.0
"""Round trips of so many times the driver's lateness are long enough to send at times of one's choice in them."""
_LONG: Final = 32.0
"""On a path that holds so many contributions they also leave no faster than results come: in slow start two would leave
for each result.  On shorter paths the window itself limits a burst."""
_GAIN: Final = 1.25
"""So many times as fast: with 1 a window that is too large would never overflow, and nothing would make it smaller."""
_TRIPS: Final = 16
"""Round trips for which contributions are paced."""
_BURST: Final = 1 / 8
"""Part of a window that is lost or marked in a burst, beside what is lost by chance."""


class Pace(Record):
    """When contributions with lanes may leave."""

    trips: Int64
    """Round trips for which they are paced; 0: they are not."""
    next_at: Float64
    """When the next one may be sent."""


@inner
def note_burst(pace: Pace, bad: int, window: float, members: int) -> None:
    """Pace contributions from now on if many of a window, `bad`, were lost or marked."""
    if bad > (_BURST + by_chance(members)) * window:
        pace.trips = _TRIPS


@inner
def is_time(pace: Pace, now: float) -> bool:
    """Tell whether a contribution may leave now."""
    return bool(pace.trips == 0 or now >= pace.next_at)


@inner
def note_sent(pace: Pace, least_s: float, window: float, rate: float, granularity_s: float, now: float) -> None:
    """Note that a contribution with lanes is sent now, and when the next one may be; `rate` is that of results."""
    if pace.trips > 0 and _COARSE * granularity_s < least_s < np.inf:
        interval_s = least_s / (_FASTER * max(window, 1.0))
        if rate * least_s > _LONG:
            interval_s = max(interval_s, 1.0 / (_GAIN * rate))
        pace.next_at = max(pace.next_at, now - granularity_s) + interval_s


@inner
def end_round_trip(pace: Pace) -> None:
    """Note that a round trip has ended."""
    pace.trips -= pace.trips > 0
