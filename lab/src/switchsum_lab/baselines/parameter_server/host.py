"""Parameter servers on hosts: each block is pushed to its server, and all get the sum; the switch only forwards.

Blocks are dealt to the servers in turn.  A server adds floats, and sends the sum to all workers when the last of them
has pushed.  README.md lists what differs from servers in use.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from switchsum_lab.protocols import forwarding
from switchsum_lab.protocols.seam import HEADERS_BYTES, Array, HostLink, Steps, World
from switchsum_lab.protocols.timing import RoundTrips

LANES: Final = 256
ANY_LANES: Final = True
ANY_JOBS: Final = True
ANY_SERVERS: Final = True
LEVELS: Final = 2
WINDOW_VALUES: Final = 64 * 256
"""Values in flight.  No paper says it; fewer frames stall where some are lost (README.md)."""
PASSED: Final = 3
"""Answers to later blocks after which a block is pushed again, as TCP's duplicate acknowledgements (RFC 5681)."""
PROGRAM: Final = forwarding.FORWARDING
entries: Final = forwarding.entries
PORT: Final = 0xBEC0
HEADER: Final = struct.Struct("!BBHI")
"""Kind, worker, nothing, sequence number of the block over all arrays."""
PUSH: Final = 0
SUM: Final = 1
VALUES_AT: Final = HEADERS_BYTES + HEADER.size


def servers(world: World) -> int:
    """Return how many servers there are: with as many as workers, their links are no bottleneck."""
    return world.workers


def peer(world: World, link: HostLink) -> Worker:
    """Return a worker."""
    return Worker(world, link)


class Worker:
    """One worker: a window of blocks that slides over the array."""

    def __init__(self, world: World, link: HostLink) -> None:
        self._world, self._link = world, link
        self._length = VALUES_AT + 4 * world.lanes
        self._rounds = RoundTrips(world.least_timeout_s, in_flight=world.slots)
        self._next = 0
        """Sequence number of the next array's first block."""
        self._sent: dict[int, tuple[bytes, float, bool]] = {}
        """Frame, when it was sent, and whether it was repeated; the longest unanswered one first."""
        size = HEADER.size + 4 * world.lanes
        self._passed: dict[int, int] = {}
        """How many blocks that were pushed later to the same server have been answered."""
        self._heads = [
            forwarding.head(world, PORT, link.host, world.workers + number, size) for number in range(world.servers)
        ]
        self._counts = {"repeats": 0}

    def allreduce(self, array: Array) -> Steps:
        """Sum an array: no block is pushed before the one that lies a window behind has its sum."""
        lanes = self._world.lanes
        count = max(1, -(-len(array) // lanes))
        first, self._next = self._next, self._next + count
        done, base, following = set[int](), 0, 0
        while base < count:
            while following < min(count, base + self._world.slots):
                self._push(first + following, array[following * lanes : (following + 1) * lanes])
                following += 1
            frame = yield next(iter(self._sent.values()))[1] + self._rounds.timeout_s
            if frame is None:
                self._repeat()
            elif (sequence := self._accept(frame)) is not None:
                block = sequence - first
                part = array[block * lanes : (block + 1) * lanes]
                part[:] = np.frombuffer(frame, np.float32, len(part), VALUES_AT)
                done.add(block)
                while base in done:
                    done.remove(base)
                    base += 1

    def barrier(self) -> Steps:
        """Wait for all workers: the sum of nothing."""
        return self.allreduce(np.zeros(0, np.float32))

    def unasked(self, frame: bytes) -> None:
        """Drop a sum that was on its way twice."""

    def statistics(self) -> dict[str, int]:
        """Return what was counted."""
        return dict(self._counts)

    def _push(self, sequence: int, values: Array) -> None:
        head = self._heads[sequence % self._world.servers] + HEADER.pack(PUSH, self._link.host, 0, sequence)
        frame = (head + values.tobytes()).ljust(self._length, b"\0")
        self._link.send(frame)
        self._sent[sequence] = frame, self._link.now(), False

    def _accept(self, frame: bytes) -> int | None:
        """Return the sequence number of a sum that is waited for."""
        if not forwarding.is_to(frame, PORT, self._length):
            return None
        kind, _, _, sequence = HEADER.unpack_from(frame, HEADERS_BYTES)
        if kind != SUM or sequence not in self._sent:
            return None
        _, at, was_repeated = self._sent[sequence]
        if not was_repeated:
            self._pass(sequence)
        del self._sent[sequence]
        self._passed.pop(sequence, None)
        self._rounds.answered(self._link.now() - at, was_repeated=was_repeated)
        return int(sequence)

    def _pass(self, answered: int) -> None:
        """Push again what three later blocks of the same server have passed: TCP and RDMA find a loss so, too."""
        lost, servers = [], self._world.servers
        for sequence in self._sent:
            if sequence == answered:
                break
            if sequence % servers == answered % servers:
                self._passed[sequence] = self._passed.get(sequence, 0) + 1
                if self._passed[sequence] == PASSED:
                    lost.append(sequence)
        self._send_again(lost)

    def _repeat(self) -> None:
        """Push what has waited for too long again."""
        now = self._link.now()
        late = [one for one, (_, at, _) in self._sent.items() if at + self._rounds.timeout_s <= now]
        self._send_again(late)
        if late:
            self._rounds.late()

    def _send_again(self, sequences: list[int]) -> None:
        for sequence in sequences:
            frame, _, _ = self._sent.pop(sequence)
            self._passed.pop(sequence, None)
            self._link.send(frame)
            self._sent[sequence] = frame, self._link.now(), True
            self._counts["repeats"] += 1


def server(world: World, link: HostLink) -> Steps:
    """Add what workers push, and send each sum to all of them."""
    everybody, size = (1 << world.workers) - 1, HEADER.size + 4 * world.lanes
    heads = [forwarding.head(world, PORT, link.host, worker, size) for worker in range(world.workers)]
    sums: dict[int, tuple[int, Array]] = {}
    """By sequence number: who has pushed, and the sum."""
    while True:
        frame = yield None
        if frame is None or not forwarding.is_to(frame, PORT, VALUES_AT + 4 * world.lanes):
            continue
        kind, worker, _, sequence = HEADER.unpack_from(frame, HEADERS_BYTES)
        if kind != PUSH or worker >= world.workers:
            continue
        values = np.frombuffer(frame, np.float32, world.lanes, VALUES_AT)
        seen, total = sums.get(sequence, (0, np.zeros(world.lanes, np.float32)))
        is_new = not seen & 1 << worker
        if is_new:
            seen, total = seen | 1 << worker, total + values
            sums[sequence] = seen, total
        if seen != everybody:
            continue
        answer = HEADER.pack(SUM, 0, 0, sequence) + total.tobytes()
        for other in range(world.workers) if is_new else (worker,):  # to a repeat the sum goes alone
            link.send(heads[other] + answer)
        # Who pushes a block has the sums of all that lie more than a window behind.
        while (oldest := next(iter(sums))) < sequence - world.slots:
            del sums[oldest]
