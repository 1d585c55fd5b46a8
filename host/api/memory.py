"""Memory of collectives in flight: one that shares memory with an earlier one waits until that one has ended."""

from __future__ import annotations

from bisect import bisect_left, insort


class Memory:
    """Intervals of addresses, of which no two overlap."""

    def __init__(self) -> None:
        self.intervals: list[tuple[int, int]] = []

    def hold(self, start: int, end: int) -> None:
        """Note that a collective in flight uses the addresses from `start` to `end`, at least one."""
        insort(self.intervals, (start, end))

    def release(self, start: int) -> None:
        """Forget the interval that begins there."""
        del self.intervals[bisect_left(self.intervals, (start,))]

    def overlaps(self, start: int, end: int) -> bool:
        """Whether any of these addresses is in use."""
        place = bisect_left(self.intervals, (end,))  # those before begin below `end`, and the last one ends last
        return start < end and place > 0 and self.intervals[place - 1][1] > start
