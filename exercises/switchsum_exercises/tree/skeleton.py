"""Exercise 6: the leaf of a tree.  Complete what says TODO."""

from __future__ import annotations

from switchsum_exercises.frames import LANES, UP, Answers, Frame, Kind, add, port_of  # noqa: F401


class Cell:
    """One version of the slot: what is known of one round."""

    def __init__(self) -> None:
        self.number = 0
        """Of the round; 0: none yet."""
        self.seen: set[int] = set()
        """The ranks that have contributed."""
        self.sums: tuple[int, ...] = (0,) * LANES
        """Of the ranks below."""
        self.result: Frame | None = None
        """Of the whole tree; None until it came."""


class Leaf:
    """A switch between ranks and the root, with one slot of two versions."""

    def __init__(self, number: int, workers: int) -> None:
        self.number = number
        """Of this leaf: the rank that it has at the root."""
        self.workers = workers
        """Ranks below; rank r is behind port_of(r)."""
        self.cells = (Cell(), Cell())

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a contribution from below or a result from UP; return what leaves."""
        cell = self.cells[frame.number % 2]
        if frame.kind == Kind.RESULT:
            # TODO: if the cell's round waits for it, keep the result, and send it to every rank below.
            return []
        if frame.number < cell.number:
            return []
        if frame.number > cell.number:
            cell.number, cell.seen, cell.sums, cell.result = frame.number, set(), (0,) * LANES, None
        if frame.rank in cell.seen:
            # TODO: with the result here, the rank gets it; without, and all seen, the contribution goes up again.
            return []
        cell.sums = add(cell.sums, frame.lanes)
        cell.seen.add(frame.rank)
        # TODO: with the last rank, a contribution goes to UP.
        return []
