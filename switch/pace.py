"""Whether frames come so fast that it pays to let a few gather before anybody looks at them.

A limited link hands over its frames one at a time.  Woken by each of them, a switch spends the time of a core on waking
up; where there are thousands a second, a nap shorter than the time-out of any sender by far costs nobody anything.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.kernels import kernel

NAP_NS: Final = 200_000
"""How long frames are let gather after the first one of them has come, where they come fast."""
PERIOD_S: Final = 0.005
"""For how long frames are counted before their rate is known."""
FAST: Final = 10_000.0
"""Frames a second from which on they are let gather."""

Pace = npt.NDArray[np.float64]
"""Whether they come fast (1, else 0), as the last whole period has shown; when this one began, and its frames."""

_IS_FAST: Final = 0
_SINCE: Final = 1
_COUNT: Final = 2


def new_pace() -> Pace:
    """Return that of a switch that has seen no frame yet, with the kernels ready for it."""
    pace = np.zeros(3)
    note_frames(pace, 0, 0.0)
    is_fast(pace)
    return pace


@kernel
def is_fast(pace: Pace) -> bool:
    """Tell whether frames are to be let gather."""
    return bool(pace[_IS_FAST])


@kernel
def note_frames(pace: Pace, count: int, now: float) -> None:
    """Note that so many frames have come until `now`, in seconds."""
    pace[_COUNT] += count
    passed = now - pace[_SINCE]
    if passed >= PERIOD_S:
        pace[_IS_FAST] = 1.0 if pace[_COUNT] >= FAST * passed else 0.0
        pace[_SINCE], pace[_COUNT] = now, 0.0
