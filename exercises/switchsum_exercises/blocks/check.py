"""Exercise 4: what worker and switch must do."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from switchsum_exercises.driver import Attempt, Bench, Wrong, ranks
from switchsum_exercises.frames import LANES, NO_BLOCK, WORKERS, Frame, add

Array = list[tuple[int, ...]]
ZEROS = (0,) * LANES
BLOCKS = 8
PLACES = ((0, 2, 5), (1, 2), (5, 7))
"""Which blocks are not zero at each rank."""


def arrays_of(places: tuple[tuple[int, ...], ...]) -> list[Array]:
    """Return an array for each rank."""
    return [
        [(block + 1, 10**rank, -rank, 0) if block in held else ZEROS for block in range(BLOCKS)]
        for rank, held in enumerate(places)
    ]


def following(array: Array, block: int) -> int:
    """Return the next block that is not zero."""
    return next((other for other in range(block + 1, BLOCKS) if any(array[other])), NO_BLOCK)


def words(block: int) -> str:
    """Return a block's number in words."""
    return "no block" if block == NO_BLOCK else f"block {block}"


class Play:
    """One array through workers and switch, each frame judged."""

    def __init__(self, attempt: Attempt, bench: Bench, arrays: list[Array]) -> None:
        self.attempt = attempt
        self.bench = bench
        self.arrays = arrays
        self.workers: list[Any] = [attempt.call("Worker", rank, list(array)) for rank, array in enumerate(arrays)]
        self.sent: set[tuple[int, int]] = set()
        self.asked = 0
        """The block that all are at."""

    def frame(self, rank: int, made: Any, what: str) -> Frame:
        """Judge a frame that a worker sends."""
        if not isinstance(made, Frame):
            raise Wrong(f"{what} of rank {rank} returned {made!r}, which is no Frame")
        if made.block != self.asked:
            raise Wrong(f"rank {rank} sent block {made.block} when {words(self.asked)} was asked for")
        array = self.arrays[rank]
        if self.asked and not any(array[made.block]):
            raise Wrong(f"rank {rank} sent block {made.block}, which is zero at this rank: a frame for nothing")
        if made.next_block != (right := following(array, made.block)):
            raise Wrong(
                f"rank {rank} said with block {made.block} that {words(made.next_block)} follows; at this rank "
                f"{words(right)} is the next that is not zero"
            )
        if (made.lanes or ZEROS) != array[made.block]:
            raise Wrong(f"rank {rank} sent {made.lanes} as block {made.block}, which is {array[made.block]}")
        return made

    def run(self) -> None:
        """Play until no frame is under way."""
        waiting = deque(
            (rank, self.frame(rank, self.attempt.guard(worker.first, "Worker.first"), "Worker.first"))
            for rank, worker in enumerate(self.workers)
        )
        while waiting:
            rank, frame = waiting.popleft()
            self.sent.add((rank, frame.block))
            results = self.bench.contribute(rank, frame.lanes, block=frame.block, next_block=frame.next_block)
            if results:
                waiting.extend(self.results(results))
        if self.asked != NO_BLOCK:
            raise Wrong(
                f"block {self.asked}: every rank that has it has sent it, and no result left: a rank that has nothing "
                f"to send is not waited for"
            )
        for rank, worker in enumerate(self.workers):
            for block in range(BLOCKS):
                if tuple(worker.sums[block]) != (right := self.total(block)):
                    raise Wrong(f"rank {rank} has {worker.sums[block]} in block {block} of sums; the sum is {right}")

    def total(self, block: int) -> tuple[int, ...]:
        """Return the sum of a block."""
        first, second, third = (array[block] for array in self.arrays)
        return add(add(first, second), third)

    def results(self, results: dict[int, Frame]) -> list[tuple[int, Frame]]:
        """Judge results, give them to the workers, and return what these send."""
        block = self.asked
        holders = [rank for rank in range(WORKERS) if block == 0 or any(self.arrays[rank][block])]
        if late := [rank for rank in holders if (rank, block) not in self.sent]:
            raise Wrong(
                f"block {block}: a result left before {ranks(late)} had sent it; wait for all that announced it"
            )
        if missing := [rank for rank in range(WORKERS) if rank not in results]:
            raise Wrong(f"block {block}: {ranks(missing)} got no result; it goes to every rank")
        right = min(following(array, block) for array in self.arrays)
        for result in results.values():
            if result.block != block:
                raise Wrong(f"the result says block {result.block}, and block {block} was added")
            if (result.lanes or ZEROS) != self.total(block):
                raise Wrong(f"block {block}: the result is {result.lanes}, and the sum is {self.total(block)}")
            if result.next_block != right:
                raise Wrong(
                    f"block {block}: the result asks for {words(result.next_block)}; the least that ranks have "
                    f"announced is {words(right)}"
                )
        self.asked = right
        return self.answers(results, right)

    def answers(self, results: dict[int, Frame], asked: int) -> list[tuple[int, Frame]]:
        """Give results to the workers; return what these send."""
        frames = []
        for rank, result in sorted(results.items()):
            receive = self.workers[rank].receive
            made = self.attempt.guard(partial(receive, result), "Worker.receive")
            holds = asked != NO_BLOCK and any(self.arrays[rank][asked])
            if made is not None:
                if asked == NO_BLOCK:
                    raise Wrong(f"rank {rank} sent block {made.block} after the last result, which asks for no block")
                frames.append((rank, self.frame(rank, made, "Worker.receive")))
            elif holds:
                raise Wrong(f"block {asked} was asked for, and rank {rank}, which has it, sent nothing")
        return frames


def full(attempt: Attempt) -> None:
    """Let every rank have every block."""
    Play(attempt, attempt.switch(WORKERS), arrays_of((tuple(range(BLOCKS)),) * WORKERS)).run()


def skipping(attempt: Attempt) -> None:
    """Let each rank have blocks of its own."""
    Play(attempt, attempt.switch(WORKERS), arrays_of(PLACES)).run()


def empty(attempt: Attempt) -> None:
    """Let some ranks, and then all, have zeros alone."""
    Play(attempt, attempt.switch(WORKERS), arrays_of(((), (3,), ()))).run()
    Play(attempt, attempt.switch(WORKERS), arrays_of(((), (), ()))).run()


def again(attempt: Attempt) -> None:
    """Use a switch for one array after the other."""
    bench = attempt.switch(WORKERS)
    for places in (PLACES, PLACES[::-1], ((), (3,), (0,)), PLACES):
        Play(attempt, bench, arrays_of(places)).run()


CHECKS = (full, skipping, empty, again)
