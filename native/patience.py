"""When a worker or the switch lets others have its core: while it waits on a shared-memory link, before it sleeps.

To be put to sleep and woken takes several times as long as a round of a small allreduce, and where the core has halted,
longer still.  Whoever yields the core instead is back as soon as the others have had their turn, which are those that
it waits for: switch and workers look in turn, and nobody wakes anybody.  Two things would make that worse than sleep.

- Waits that are long: a wait looks for at most `LONGEST_S`, and after one that was longer for half as long, down to
  nothing, until one is short again.
- Somebody else who computes: the scheduler lets him run for milliseconds when he is yielded to, but at once whoever is
  woken.  So one that twice in a row does not get its core back for `STOLEN_S` sleeps from then on for a while, and for
  twice as long each time that it happens again soon.

Workers on other links, who cannot look without the kernel, step aside between contributions that they make.
`patience_kernels.py` does all that with what is here.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

LONGEST_S: Final = 0.0002
"""A wait looks for no longer than this."""
SHORTEST_S: Final = 0.000002
"""Less than this is nothing."""
STOLEN_S: Final = 0.002
"""One that yields and comes back after this may have met somebody who computes, whom the scheduler gives a slice."""
IN_A_ROW_S: Final = 0.02
"""If that happens twice within this, it has: many workers take that long now and then, one after the other."""
SHORTEST_AWAY_S: Final = 0.02
LONGEST_AWAY_S: Final = 1.28
"""For how long a core that was taken is not yielded."""

Patience = npt.NDArray[np.float64]
"""For how many seconds the next wait may look; when the core was taken last; the time before which no wait looks, and
for how long that was forbidden."""

FIELDS: Final = 4


def new_patience() -> Patience:
    """Return that of a side that has not waited yet."""
    return np.array([LONGEST_S, -np.inf, 0.0, 0.0])
