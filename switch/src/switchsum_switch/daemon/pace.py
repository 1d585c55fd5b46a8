"""Whether frames arrive so fast that the switch should let a few of them gather before it looks.

A link with a limited rate delivers its frames one at a time.  A switch that wakes up for each of them spends a whole
core on waking up.  If thousands of frames arrive in a second, the switch naps for 0.2 ms after it wakes: it then finds
several frames at once, and the nap is far shorter than the time-out of any sender (1 ms or more).

Senders that wait for each answer, as with one small allreduce after the other, send as fast, and less while the switch
naps.  So a rate that falls when naps begin ends them for a while, and for twice as long each time that it happens again
soon.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import kernel

NAP_NS: Final = 200_000
"""How long the switch naps after it has been woken, if frames arrive fast."""
PERIOD_S: Final = 0.005
"""How long frames are counted before their rate is known."""
FAST: Final = 10_000.0
"""Frames a second from which on the switch naps."""
SLOWED: Final = 0.75
"""Naps are in the way where the rate falls below this part of what it was before them."""
SHORTEST_AWAY_S: Final = 0.05
LONGEST_AWAY_S: Final = 1.6
"""Longest time without naps, in seconds, after the rate has fallen with them."""

Pace = npt.NDArray[np.float64]
"""Words: 1 if frames arrived fast in the last whole period, else 0; when this period began; its frames so far; the rate
of the last period without naps; the time before which there are none, and for how long that was forbidden."""

FIELDS: Final = 6
_IS_FAST: Final = 0
_SINCE: Final = 1
_COUNT: Final = 2
_BEFORE: Final = 3
_AWAY_UNTIL: Final = 4
_AWAY: Final = 5


def new_pace() -> Pace:
    """Return the pace of a switch that has seen no frame yet, and compile the kernels that use it."""
    pace = np.zeros(FIELDS)
    note_frames(pace, 0, 0.0)
    is_fast(pace)
    return pace


@kernel
def is_fast(pace: Pace) -> bool:
    """Tell whether the switch should nap after it has been woken."""
    return bool(pace[_IS_FAST])


@kernel
def note_frames(pace: Pace, count: int, now: float) -> None:
    """Note that `count` frames have arrived up to the time `now`, in seconds."""
    pace[_COUNT] += count
    passed = now - pace[_SINCE]
    if passed < PERIOD_S:
        return
    rate = pace[_COUNT] / passed
    pace[_SINCE], pace[_COUNT] = now, 0.0
    if not pace[_IS_FAST]:
        pace[_BEFORE] = rate
    elif rate < SLOWED * pace[_BEFORE] and passed < 2 * PERIOD_S:  # a longer one ended with a pause of the senders'
        again = now - pace[_AWAY_UNTIL] < pace[_AWAY]
        pace[_AWAY] = min(2 * pace[_AWAY], LONGEST_AWAY_S) if again else SHORTEST_AWAY_S
        pace[_AWAY_UNTIL] = now + pace[_AWAY]
    pace[_IS_FAST] = 1.0 if rate >= FAST and now >= pace[_AWAY_UNTIL] else 0.0
