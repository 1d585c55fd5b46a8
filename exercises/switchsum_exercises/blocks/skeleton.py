"""Exercise 4: blocks of zeros are skipped.  Complete what says TODO."""

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
        """What the array becomes; a block that nobody sends stays zero."""

    def next_after(self, block: int) -> int:
        """Return the first block after this one that is not zero; NO_BLOCK where none follows."""
        # TODO: skip blocks of zeros.
        return block + 1 if block + 1 < len(self.blocks) else NO_BLOCK

    def first(self) -> Frame:
        """Return the first frame: block 0, zero or not."""
        return self.frame(0)

    def frame(self, block: int) -> Frame:
        """Return the frame of a block; it says which block of this rank follows."""
        lanes = self.blocks[block] if any(self.blocks[block]) else ()
        return Frame(
            kind=Kind.CONTRIBUTION, rank=self.rank, block=block, next_block=self.next_after(block), lanes=lanes
        )

    def receive(self, result: Frame) -> Frame | None:
        """Store a sum; return the frame that the result asks for, None if this rank does not have that block."""
        self.sums[result.block] = result.lanes or ZEROS
        if result.next_block == NO_BLOCK:
            return None
        # TODO: answer only if this rank has announced result.next_block.
        return self.frame(result.next_block)


class Switch:
    """Adds one block after the other."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.block = 0
        """Which block is added now."""
        self.sums: Block = ZEROS
        self.count = 0

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a contribution; return nothing, or the result for every rank when the block is complete."""
        self.sums = add(self.sums, frame.lanes or ZEROS)
        # TODO: a rank without this block sends nothing, so do not count.  Keep each rank's frame.next_block; the block
        #       is complete when the least of them is greater than self.block.
        self.count += 1
        if self.count < self.workers:
            return []
        following = frame.next_block  # TODO: the least of all ranks'
        result = Frame(kind=Kind.RESULT, block=self.block, next_block=following, lanes=self.sums)
        self.block, self.sums, self.count = following, ZEROS, 0
        # TODO: after the last block the switch begins anew with block 0.
        return [(port_of(rank), result) for rank in range(self.workers)]
