"""Exercise 4, solved: blocks of zeros are skipped."""

from __future__ import annotations

from switchsum_exercises.frames import LANES, NO_BLOCK, Answers, Frame, Kind, add, port_of

Block = tuple[int, ...]
ZEROS: Block = (0,) * LANES


class Worker:
    """One rank: an array of blocks, and the sums that have come."""

    def __init__(self, rank: int, blocks: list[Block]) -> None:
        self.rank = rank
        self.blocks = blocks
        self.sums = [ZEROS] * len(blocks)
        self.announced = 0

    def next_after(self, block: int) -> int:
        """Return the first block after this one that is not zero; NO_BLOCK where none follows."""
        return next((other for other in range(block + 1, len(self.blocks)) if any(self.blocks[other])), NO_BLOCK)

    def first(self) -> Frame:
        """Return the first frame: block 0, zero or not."""
        return self.frame(0)

    def frame(self, block: int) -> Frame:
        """Return the frame of a block; it says which block of this rank follows."""
        lanes = self.blocks[block] if any(self.blocks[block]) else ()
        self.announced = self.next_after(block)
        return Frame(kind=Kind.CONTRIBUTION, rank=self.rank, block=block, next_block=self.announced, lanes=lanes)

    def receive(self, result: Frame) -> Frame | None:
        """Store a sum; return the frame that the result asks for, None if this rank does not have that block."""
        self.sums[result.block] = result.lanes or ZEROS
        if result.next_block == NO_BLOCK or result.next_block != self.announced:
            return None
        return self.frame(result.next_block)


class Switch:
    """Adds one block after the other."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.block = 0
        self.sums: Block = ZEROS
        self.nexts = [0] * workers

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a contribution; return nothing, or the result for every rank when the block is complete."""
        self.sums = add(self.sums, frame.lanes or ZEROS)
        self.nexts[frame.rank] = frame.next_block
        following = min(self.nexts)
        if following <= self.block:
            return []
        result = Frame(kind=Kind.RESULT, block=self.block, next_block=following, lanes=self.sums)
        self.block, self.sums = following, ZEROS
        if following == NO_BLOCK:
            self.block, self.nexts = 0, [0] * self.workers
        return [(port_of(rank), result) for rank in range(self.workers)]
