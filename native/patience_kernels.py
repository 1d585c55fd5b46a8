"""Whether to look for frames or to sleep: the kernels of `patience.py`, which says why."""

from __future__ import annotations

from typing import Final

import numpy as np

from .kernels import kernel
from .patience import IN_A_ROW_S, LONGEST_AWAY_S, LONGEST_S, SHORTEST_AWAY_S, SHORTEST_S, STOLEN_S, Patience
from .system import monotonic, yield_core

_LEFT: Final = 0
_STOLEN_AT: Final = 1
_AWAY_UNTIL: Final = 2
_AWAY: Final = 3


@kernel
def look_until(patience: Patience, now: float) -> float:
    """Return until when to look, in a wait that begins now."""
    return now if now < patience[_AWAY_UNTIL] else now + patience[_LEFT]


@kernel
def note_absence(patience: Patience, now: float, back: float) -> float:
    """Learn from a core that was yielded at `now` and is ours again at `back`; return `back`."""
    if back - now >= STOLEN_S:
        in_a_row = back - patience[_STOLEN_AT] < IN_A_ROW_S
        patience[_STOLEN_AT] = -np.inf if in_a_row else back
        if in_a_row:
            again = back - patience[_AWAY_UNTIL] < patience[_AWAY]
            patience[_AWAY] = min(2 * patience[_AWAY], LONGEST_AWAY_S) if again else SHORTEST_AWAY_S
            patience[_AWAY_UNTIL] = back + patience[_AWAY]
    return back


@kernel
def give_way(patience: Patience, now: float) -> float:
    """Let others have the core, between two looks; return the time after that, `now` being the time before."""
    yield_core()
    return note_absence(patience, now, monotonic())


@kernel
def step_aside(patience: Patience) -> None:
    """Let others have the core in the middle of work, unless somebody computes there."""
    now = monotonic()
    if now >= patience[_AWAY_UNTIL]:
        give_way(patience, now)


@kernel
def note_wait(patience: Patience, paid: bool, waited_s: float) -> None:
    """Learn from a wait, looking and sleeping together; `paid` says whether looking was enough."""
    if paid or waited_s <= LONGEST_S:
        patience[_LEFT] = LONGEST_S
    else:
        patience[_LEFT] = patience[_LEFT] / 2 if patience[_LEFT] > SHORTEST_S else 0.0
