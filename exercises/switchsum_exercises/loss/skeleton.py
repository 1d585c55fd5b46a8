"""Exercise 3: frames are lost, and repeated.  Complete what says TODO."""

from __future__ import annotations

from switchsum_exercises.frames import LANES, Answers, Frame, Kind, add, port_of


class Cell:
    """One version of the slot: what is known of one round."""

    def __init__(self) -> None:
        self.number = 0
        """Of the round; 0: none yet."""
        self.seen: set[int] = set()
        """The ranks that have contributed."""
        self.sums: tuple[int, ...] = (0,) * LANES


class Switch:
    """One slot with two versions, for rounds of odd and of even numbers."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.cells = (Cell(), Cell())

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a contribution; return what leaves."""
        cell = self.cells[frame.number % 2]
        # TODO: a number older than the cell's is a late copy: nothing happens.
        # TODO: a newer number opens a round in this cell: forget what was there.
        # TODO: a rank that has contributed already repeats.  Add nothing.  If the round is complete, the rank has lost
        #       the result: it alone gets it again.
        # As in exercise 2:
        cell.sums = add(cell.sums, frame.lanes)
        cell.seen.add(frame.rank)
        if len(cell.seen) < self.workers:
            return []
        return [(port_of(rank), Frame(kind=Kind.RESULT, number=frame.number, lanes=cell.sums)) for rank in cell.seen]
