"""OmniReduce's worker and aggregator (SIGCOMM 2021), written from its paper; the switch only forwards.

An array's blocks are dealt to columns, and the columns to streams.  Each stream has one aggregator.  A frame of a
stream has a block of each of its columns; without fusion there is one column.  A worker says with each block which
block of the column it has next.  The aggregator answers with sums and the next blocks that any worker has.  So blocks
that are zero on all workers are never sent.  README.md lists what differs.

There are the paper's two versions.  On links that may lose frames every worker answers every round of a stream, with a
block or without one, and repeats its frame after a time-out.  On links that lose nothing (`World.is_lossless`) only
workers that have the block which is asked for send it, and nobody repeats.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_lab.protocols import forwarding
from switchsum_lab.protocols.seam import HEADERS_BYTES, Array, HostLink, Steps, World
from switchsum_lab.protocols.timing import RoundTrips

LANES: Final = 256
ANY_LANES: Final = True
ANY_SERVERS: Final = True
ANY_JOBS: Final = True
MOST_BLOCKS: Final = 32
"""In a frame."""
LEVELS: Final = 2
WINDOW_VALUES: Final = 256 * 32
"""Values in flight: 256 pending messages of 32 values, as in the public code (omnireduce-DPDK)."""
EVEN: Final = True
"""Each stream has an aggregator: with a few streams more than others have, one's link would be the bottleneck."""
LEAST_ROUNDS: Final = 3.0
"""Shortest time-out, in mean round trips: where blocks gather at an aggregator, answers wait in its queue."""
PROGRAM: Final = forwarding.FORWARDING
entries: Final = forwarding.entries
PORT: Final = 0xBED0
HEADER: Final = struct.Struct("!BBHI")
"""Kind, worker, stream, round of the stream; behind it, for each column, a block and the next block that follows."""
CONTRIBUTION: Final = 0
RESULT: Final = 1
COLUMNS_AT: Final = HEADERS_BYTES + HEADER.size
HAS_VALUES: Final = 0x8000_0000
"""Bit of a block's number: its values are in the frame."""
NO_BLOCK: Final = 0x7FFF_FFFF
"""The column has ended."""
END: Final = 0xFFFF_FFFF
"""No block comes any more."""


def servers(world: World) -> int:
    """Return how many aggregators there are: with as many as workers, their links are no bottleneck."""
    return world.workers


def peer(world: World, link: HostLink) -> Worker:
    """Return a worker."""
    return Worker(world, link)


@dataclass(slots=True)
class Column:
    """What a frame has of one column."""

    block: int = NO_BLOCK
    following: int = END
    """The next block that the sender has; in a result, that any worker has."""
    values: Array | None = None


class Layout:
    """Frames between one host and others."""

    def __init__(self, world: World, host: int, others: Sequence[int]) -> None:
        self.size = world.lanes if world.block is None else world.block
        """Values in a block."""
        self.columns = world.lanes // self.size
        self._words = struct.Struct(f"!{2 * self.columns}I")
        self._values_at = COLUMNS_AT + self._words.size
        self._heads = [
            [
                forwarding.head(world, PORT, host, other, HEADER.size + self._words.size + 4 * self.size * count)
                for count in range(self.columns + 1)
            ]
            for other in others
        ]
        """For each of the others, by the number of blocks with values."""

    def body(self, kind: int, worker: int, stream: int, number: int, columns: Sequence[Column]) -> bytes:
        """Return what stands behind the headers of a frame."""
        words, values = [], b""
        for column in columns:
            words += [column.block | (HAS_VALUES if column.values is not None else 0), column.following]
            if column.values is not None:
                values += column.values.tobytes().ljust(4 * self.size, b"\0")
        return HEADER.pack(kind, worker, stream, number) + self._words.pack(*words) + values

    def to(self, other: int, body: bytes) -> bytes:
        """Return the frame to one of the others, by its place among them."""
        count = (HEADERS_BYTES + len(body) - self._values_at) // (4 * self.size)
        return self._heads[other][count] + body

    def read(self, frame: bytes) -> tuple[tuple[int, int, int, int], list[Column]] | None:
        """Return the header of a frame, and its columns; None: it is none of ours."""
        if not forwarding.is_to(frame, PORT, self._values_at):
            return None
        words, at, columns = self._words.unpack_from(frame, COLUMNS_AT), self._values_at, []
        for block, following in zip(words[::2], words[1::2], strict=True):
            column = Column(block & NO_BLOCK, following)
            if block & HAS_VALUES:
                if len(frame) < at + 4 * self.size:
                    return None
                column.values = np.frombuffer(frame, np.float32, self.size, at)
                at += 4 * self.size
            columns.append(column)
        return HEADER.unpack_from(frame, HEADERS_BYTES), columns


@dataclass(slots=True)
class Pending:
    """A frame whose result has not come."""

    frame: bytes
    """Empty: nothing was sent, for this worker has none of the blocks."""
    sent_at: float
    was_repeated: bool = False


class Worker:
    """One worker: a frame of its own in each stream, which is sent again until its result comes."""

    def __init__(self, world: World, link: HostLink) -> None:
        self._world, self._link = world, link
        self._layout = Layout(world, link.host, range(world.workers, world.hosts))
        self._rounds = RoundTrips(world.least_timeout_s, LEAST_ROUNDS, in_flight=world.slots)
        self._numbers = [0] * world.slots
        """Round of each stream, counted over all arrays."""
        self._pending: dict[int, Pending] = {}
        """By stream, the longest unanswered one first."""
        self._counts = {"rounds": 0, "repeats": 0, "stale": 0}

    def allreduce(self, array: Array) -> Steps:
        """Sum an array: block i belongs to column i modulo the number of all streams' columns."""
        size, each = self._layout.size, self._layout.columns
        filled = blocks_with_values(array, size)
        streams = min(self._world.slots, -(-len(filled) // each))
        columns = streams * each
        left = [deque((np.flatnonzero(filled[first::columns]) * columns + first).tolist()) for first in range(columns)]
        for stream in range(streams):
            blocks = range(stream * each, (stream + 1) * each)
            first = [block if block < len(filled) else NO_BLOCK for block in blocks]
            self._contribute(array, left, stream, first, is_first=True)
        while self._pending:
            until = next(iter(self._pending.values())).sent_at + self._rounds.timeout_s
            frame = yield None if self._world.is_lossless else until
            if frame is None:
                self._repeat()
            elif (found := self._accept(frame)) is not None:
                stream, came = found
                for column in came:
                    if column.values is not None:
                        part = array[column.block * size : (column.block + 1) * size]
                        part[:] = column.values[: len(part)]
                if any(column.following != END for column in came):
                    self._contribute(array, left, stream, [min(column.following, NO_BLOCK) for column in came])

    def barrier(self) -> Steps:
        """Wait for all workers: the first block of a stream is asked of all, even if it is empty."""
        return self.allreduce(np.zeros(0, np.float32))

    def unasked(self, frame: bytes) -> None:
        """Drop a result that was on its way twice."""
        self._counts["stale"] += 1

    def statistics(self) -> dict[str, int]:
        """Return what was counted."""
        return dict(self._counts)

    def _contribute(
        self, array: Array, left: Sequence[deque[int]], stream: int, blocks: Sequence[int], *, is_first: bool = False
    ) -> None:
        """Send a block of each column; without values where this worker's is zero: so it has the last result.

        Where nothing is lost, only the first blocks are sent without values.
        """
        size, first, columns = self._layout.size, stream * len(blocks), []
        for own, block in zip(left[first : first + len(blocks)], blocks, strict=True):
            column = Column(block)
            if own and own[0] == block:
                column.values = array[block * size : (block + 1) * size]
                own.popleft()
            column.following = own[0] if own else END
            columns.append(column)
        frame = b""
        if is_first or not self._world.is_lossless or any(column.values is not None for column in columns):
            body = self._layout.body(CONTRIBUTION, self._link.host, stream, self._numbers[stream], columns)
            frame = self._layout.to(stream % self._world.servers, body)
            self._link.send(frame)
        self._pending[stream] = Pending(frame, self._link.now())

    def _accept(self, frame: bytes) -> tuple[int, list[Column]] | None:
        """Return stream and columns of a result that is waited for."""
        if (found := self._layout.read(frame)) is None:
            return None
        (kind, _, stream, number), columns = found
        if kind != RESULT or stream not in self._pending or number != self._numbers[stream]:
            self._counts["stale"] += 1
            return None
        pending = self._pending.pop(stream)
        self._rounds.answered(self._link.now() - pending.sent_at, was_repeated=pending.was_repeated)
        self._numbers[stream] += 1
        self._counts["rounds"] += 1
        return stream, columns

    def _repeat(self) -> None:
        """Send what has waited for too long again."""
        now = self._link.now()
        late = [stream for stream, one in self._pending.items() if one.sent_at + self._rounds.timeout_s <= now]
        for stream in late:
            pending = self._pending.pop(stream)
            pending.sent_at, pending.was_repeated = now, True
            self._pending[stream] = pending
            self._link.send(pending.frame)
            self._counts["repeats"] += 1
        if late:
            self._rounds.late()


def blocks_with_values(array: Array, size: int) -> npt.NDArray[np.bool_]:
    """Return which blocks of an array are not zero; an empty array has one block."""
    whole = len(array) // size
    filled: npt.NDArray[np.bool_] = np.any(array[: whole * size].reshape(whole, size), axis=1)
    rest = array[whole * size :]
    return np.append(filled, np.any(rest)) if len(rest) or not whole else filled


class Stream:
    """A slot of an aggregator: the round that it collects, and the answer of the round before."""

    def __init__(self, columns: int, workers: int) -> None:
        self._everybody = (1 << workers) - 1
        self._next = [[END] * columns for _ in range(workers)]
        """The next block of each worker in each column, as it has said last."""
        self.number, self.answer = 0, b""
        self.owing = self._everybody
        """Bitmap of the workers whose frames of this round are to come."""
        self.columns = [Column() for _ in range(columns)]
        """Sums of this round."""

    def add(self, worker: int, columns: Sequence[Column]) -> None:
        """Add a worker's frame."""
        self.owing &= ~(1 << worker)
        self._next[worker] = [column.following for column in columns]
        for sums, came in zip(self.columns, columns, strict=True):
            sums.block = came.block
            if came.values is not None:
                sums.values = came.values if sums.values is None else sums.values + came.values

    def result(self) -> list[Column]:
        """Return the sums of this round, and the least next blocks of all workers."""
        for sums, following in zip(self.columns, zip(*self._next, strict=True), strict=True):
            sums.following = min(following)
        return self.columns

    def go_on(self, answer: bytes, *, is_lossless: bool) -> None:
        """Begin the next round: where nothing is lost, it needs those workers alone that have a block of it."""
        asked = [column.following for column in self.columns]
        self.number, self.answer = self.number + 1, answer
        self.columns = [Column() for _ in asked]
        self.owing = self._everybody
        if is_lossless and any(block != END for block in asked):
            have = (any(a == b != END for a, b in zip(own, asked, strict=True)) for own in self._next)
            self.owing = sum(1 << worker for worker, has in enumerate(have) if has)


def server(world: World, link: HostLink) -> Steps:
    """Add blocks, and answer each round of a stream with the sums and the next blocks that any worker has."""
    layout = Layout(world, link.host, range(world.workers))
    streams = defaultdict[int, Stream](lambda: Stream(layout.columns, world.workers))
    while True:
        frame = yield None
        if frame is None or (found := layout.read(frame)) is None:
            continue
        (kind, worker, number_of_stream, number), columns = found
        stream = streams[number_of_stream]
        if kind != CONTRIBUTION or worker >= world.workers:
            continue
        if number + 1 == stream.number:  # its answer was lost
            link.send(layout.to(worker, stream.answer))
        if number != stream.number or not stream.owing & 1 << worker:
            continue
        stream.add(worker, columns)
        if not stream.owing:
            answer = layout.body(RESULT, 0, number_of_stream, number, stream.result())
            for other in range(world.workers):
                link.send(layout.to(other, answer))
            stream.go_on(answer, is_lossless=world.is_lossless)
