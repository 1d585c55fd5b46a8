"""Exercise 6, solved: the leaf of a tree."""

from __future__ import annotations

from switchsum_exercises.frames import LANES, UP, Answers, Frame, Kind, add, port_of


class Cell:
    """One version of the slot: what is known of one round."""

    def __init__(self) -> None:
        self.number = 0
        self.seen: set[int] = set()
        self.sums: tuple[int, ...] = (0,) * LANES
        self.result: Frame | None = None


class Leaf:
    """A switch between ranks and the root, with one slot of two versions."""

    def __init__(self, number: int, workers: int) -> None:
        self.number = number
        self.workers = workers
        self.cells = (Cell(), Cell())

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a contribution from below or a result from UP; return what leaves."""
        cell = self.cells[frame.number % 2]
        if frame.kind == Kind.RESULT:
            if frame.number != cell.number or cell.result is not None:
                return []
            cell.result = frame
            return [(port_of(rank), frame) for rank in range(self.workers)]
        if frame.number < cell.number:
            return []
        if frame.number > cell.number:
            cell.number, cell.seen, cell.sums, cell.result = frame.number, set(), (0,) * LANES, None
        if frame.rank in cell.seen:
            if cell.result is not None:
                return [(port, cell.result)]
            return self.up(cell)
        cell.sums = add(cell.sums, frame.lanes)
        cell.seen.add(frame.rank)
        return self.up(cell)

    def up(self, cell: Cell) -> Answers:
        """Return the contribution of this leaf, if its ranks have all contributed."""
        if len(cell.seen) < self.workers:
            return []
        return [(UP, Frame(kind=Kind.CONTRIBUTION, rank=self.number, number=cell.number, lanes=cell.sums))]
