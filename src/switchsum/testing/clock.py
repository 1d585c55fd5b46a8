"""Time that passes when it is told to."""

from __future__ import annotations


class VirtualClock:
    """A monotonic clock for tests: calling it returns the time in seconds."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s

    def advance_to(self, now_s: float) -> None:
        """Let time pass; a time that has been is ignored."""
        self.now_s = max(self.now_s, now_s)
