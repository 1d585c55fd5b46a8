"""Whether frames arrive so fast that the switch should let a few of them gather before it looks.

A link with a limited rate delivers its frames one at a time.  A switch that wakes up for each of them spends a whole
core on waking up.  If thousands of frames arrive in a second, the switch naps for 0.2 ms after it wakes: it then finds
several frames at once, and the nap is far shorter than the time-out of any sender (1 ms or more).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.native.kernels import kernel

NAP_NS: Final = 200_000
"""How long the switch naps after it has been woken, if frames arrive fast."""
PERIOD_S: Final = 0.005
"""How long frames are counted before their rate is known."""
FAST: Final = 10_000.0
"""Frames a second from which on the switch naps."""

Pace = npt.NDArray[np.float64]
"""Three words: 1 if frames arrived fast in the last whole period, else 0; when this period began; its frames so far."""

_IS_FAST: Final = 0
_SINCE: Final = 1
_COUNT: Final = 2


def new_pace() -> Pace:
    """Return the pace of a switch that has seen no frame yet, and compile the kernels that use it."""
    pace = np.zeros(3)
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
    if passed >= PERIOD_S:
        pace[_IS_FAST] = 1.0 if pace[_COUNT] >= FAST * passed else 0.0
        pace[_SINCE], pace[_COUNT] = now, 0.0
