"""When a worker or the switch lets others have its core: while it waits on a shared-memory link, before it sleeps.

To be put to sleep and woken takes several times as long as a round of a small allreduce, and where the core has halted,
longer still.  Whoever yields the core instead is back as soon as the others have had their turn, which are those that
it waits for: switch and workers look in turn, and nobody wakes anybody.  Two things make yielding worse than sleep.

- Waits that are long: a wait looks for at most `LONGEST_S`, and after one that was longer for half as long, down to
  nothing, until one is short again.
- Somebody else who computes: the scheduler lets him run for milliseconds when he is yielded to, but at once whoever is
  woken.  So one that twice in a row does not get its core back for `STOLEN_S` sleeps from then on for a while, and for
  twice as long each time that it happens again soon.

Workers on other links, who cannot look without the kernel, step aside between contributions that they make.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ..kernels.decorators import kernel
from .system import monotonic, yield_core

LONGEST_S: Final = 0.0002
"""A wait looks for no longer than this."""
SHORTEST_S: Final = 0.000002
"""A wait that would look for less than this does not look at all."""
STOLEN_S: Final = 0.002
"""Who yields and gets the core back after this or later may have met a process that computes for a time slice."""
IN_A_ROW_S: Final = 0.02
"""Seconds within which that must happen twice to count: many workers take that long now and then, one after the other.
"""
SHORTEST_AWAY_S: Final = 0.02
LONGEST_AWAY_S: Final = 1.28
"""Most seconds for which a core that was taken is not yielded."""

Patience = npt.NDArray[np.float64]
"""Four numbers: seconds that the next wait may look; when the core was taken last; the time before which no wait
looks; and for how long looking was forbidden.
"""

FIELDS: Final = 4
_LEFT: Final = 0
_STOLEN_AT: Final = 1
_AWAY_UNTIL: Final = 2
_AWAY: Final = 3


def new_patience() -> Patience:
    """Return the patience of a side that has not waited yet."""
    return np.array([LONGEST_S, -np.inf, 0.0, 0.0])


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
