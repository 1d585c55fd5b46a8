"""Whether frames come so fast that it pays to let a few gather before anybody looks at them.

A limited link hands over its frames one at a time.  Woken by each of them, a switch spends the time of a core on waking
up; where there are thousands a second, a nap shorter than the time-out of any sender by far costs nobody anything.
"""

from __future__ import annotations

from typing import Final

PERIOD_S: Final = 0.005
"""For how long frames are counted before their rate is known."""
FAST: Final = 10_000.0
"""Frames a second from which on they are let gather."""


class Pace:
    """Counts frames."""

    def __init__(self) -> None:
        self.is_fast = False
        """What the last whole period has shown."""
        self._since = 0.0
        self._count = 0

    def note(self, count: int, now: float) -> None:
        """Note that so many frames have come until `now`, in seconds."""
        self._count += count
        passed = now - self._since
        if passed >= PERIOD_S:
            self.is_fast = self._count >= FAST * passed
            self._since, self._count = now, 0
