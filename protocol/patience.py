"""How long a side of a shared-memory link looks for frames before it sleeps: only where that has paid lately.

To be woken takes longer than a round of a small allreduce.  So where switch and workers can have a core each, whoever
waits first looks for frames again and again, for at most `LONGEST_S`, and only while waits are that short: one
that took longer halves what the next may take, down to nothing, and a short one restores it.  Where they share cores,
nobody looks: the one that it waits for needs the core.  (Yielding it in between is worse than sleeping:
whoever else wants to run then runs for milliseconds, while one that sleeps goes first when it is woken.)
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.kernels import kernel

LONGEST_S: Final = 0.00002
"""A core is given to looking for no longer than this at a time."""
SHORTEST_S: Final = 0.000002
"""Less than this is nothing."""

Patience = npt.NDArray[np.float64]
"""For how many seconds the next wait may look before it sleeps, and how many that may be at most."""


def patience() -> Patience:
    """Return that of a side that has not waited yet, and does not know how many share the cores: it sleeps at once."""
    return np.zeros(2)


def share_cores(left: Patience, processes: int) -> None:
    """Take note of how many processes there are on a link's switch, itself included."""
    left[1] = LONGEST_S if processes <= len(os.sched_getaffinity(0)) else 0.0
    left[0] = min(left[0], left[1])


@kernel
def note_wait(left: Patience, waited_s: float) -> None:
    """Learn from a wait, looking and sleeping together."""
    if waited_s <= left[1]:
        left[0] = left[1]
    else:
        left[0] = left[0] / 2 if left[0] > SHORTEST_S else 0.0
