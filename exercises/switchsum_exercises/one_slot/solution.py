"""Exercise 2, solved: one slot."""

from __future__ import annotations

from switchsum_exercises.frames import LANES, Answers, Frame, Kind, add, port_of


class Switch:
    """Adds one frame of every worker, and gives everybody the sum."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.sums: tuple[int, ...] = (0,) * LANES
        self.count = 0

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a contribution; return nothing, or the result for every rank when it was the last one."""
        self.sums = add(self.sums, frame.lanes)
        self.count += 1
        if self.count < self.workers:
            return []
        result = Frame(kind=Kind.RESULT, lanes=self.sums)
        self.sums = (0,) * LANES
        self.count = 0
        return [(port_of(rank), result) for rank in range(self.workers)]
