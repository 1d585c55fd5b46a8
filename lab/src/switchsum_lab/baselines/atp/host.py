"""ATP's worker and parameter server (NSDI 2021), written from its paper; program.p4 is its switch."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_controller.tables.entries import Entry, Group, Replica
from switchsum_lab.protocols.seam import HEADERS_BYTES, SWITCH, Array, HostLink, Steps, World
from switchsum_lab.protocols.timing import RoundTrips
from switchsum_lab.protocols.values import FixedPoint, address_in, rows
from switchsum_protocol.errors import UsageError
from switchsum_switch.wires.headers import Address, lower_headers

LANES: Final = 64
OTHER_LANES: Final = (32,)
ANY_JOBS: Final = True
LEVELS: Final = 2
PORT: Final = 0xBEE7
CELLS: Final = 20_000
SCALE: Final = 1e6
"""ATP's factor from floats to integers."""
HEADER: Final = struct.Struct("!IBBHI")
"""Bitmap, number of workers, flags, cell, job and sequence number.

In an answer the bitmap is 0, or the cell that the next block of this place has, plus one.
"""
NUMBERS: Final = 1 << 24
"""Sequence numbers of a job; its own number lies above them."""
ANSWER: Final = 0x80
REPEAT: Final = 0x40
COLLIDED: Final = 0x20
MARKED: Final = 0x10
MOVES: Final = 0x01
"""In the server's notes: a packet has found its cell taken by another owner, and is no repeat."""
AT: Final = HEADERS_BYTES
LANES_AT: Final = AT + HEADER.size
WINDOW_VALUES: Final = 200 * LANES
"""Values in flight at first and at most: the paper's 200 packets, which a round trip of 100 Gbit/s holds."""
GROWTH_BYTES: Final = 1500
"""By so much an answer without a mark lets the window grow."""
LEAST_ROUNDS: Final = 2.0
"""Shortest time-out, in mean round trips."""


def servers(world: World) -> int:
    """Return how many parameter servers a job has."""
    return 1


def entries(world: World) -> Iterator[Entry | Group]:
    """Lead packets to the job's server, and its answers to all workers of the job."""
    server, group = world.workers, 1 + world.job
    yield Entry(
        table="SwitchIngress.server",
        match={"destination": world.address(server).mac},
        action="SwitchIngress.forward",
        params={"port": world.port(server)},
    )
    yield Entry(
        table="SwitchIngress.job",
        match={"source": world.address(server).mac},
        action="SwitchIngress.answer",
        params={"workers": group},
    )
    members = frozenset(Replica(port=world.port(rank), instance=rank) for rank in range(world.workers))
    yield Group(group=group, replicas=members)


def peer(world: World, link: HostLink) -> Worker:
    """Return a worker."""
    return Worker(world, link)


def sequence_of(job: int, number: int) -> int:
    """Return what packets have for a job and the number of a block, counted over all arrays."""
    return job * NUMBERS + number % NUMBERS


class Cells:
    """The cells of a job: a hash for each place in the window, no two of them the same."""

    def __init__(self, world: World) -> None:
        self._job, self._taken = world.job, set[int]()
        self._tries = [0] * min(2 * world.slots, CELLS)
        self._cells = [self._hash(place) for place in range(len(self._tries))]

    def __len__(self) -> int:
        """Return how many places there are."""
        return len(self._cells)

    def of(self, number: int) -> int:
        """Return the cell of a block, by its number over all arrays."""
        return self._cells[number % NUMBERS % len(self)]

    def move(self, number: int, cell: int) -> None:
        """Let the place of a block have another cell from its next block on."""
        self._cells[number % NUMBERS % len(self)] = cell

    def another(self, number: int) -> int:
        """Choose another cell for the place of a block that found its cell taken; the same one if there is none."""
        place = number % NUMBERS % len(self)
        before = self._cells[place]
        if len(self._taken) < CELLS:
            self._cells[place] = self._hash(place)
            self._taken.discard(before)
        return self._cells[place]

    def _hash(self, place: int) -> int:
        while True:
            self._tries[place] += 1
            # A CRC is linear: jobs whose windows move alike would meet everywhere, or nowhere.
            key = struct.pack("!HHI", self._job, place, self._tries[place])
            cell = int.from_bytes(blake2b(key, digest_size=4).digest()) % CELLS
            if cell not in self._taken:
                self._taken.add(cell)
                return cell


class Worker:
    """One worker: a window of packets, halved when answers bring marks."""

    def __init__(self, world: World, link: HostLink) -> None:
        self._world, self._link = world, link
        self._rounds = RoundTrips(world.least_timeout_s, LEAST_ROUNDS, in_flight=world.slots)
        self._window = float(world.slots)
        """Packets in flight."""
        self._halved_at = 0.0
        self._cells = Cells(world)
        self._next = 0
        """Number of the next array's first block."""
        self._sent: dict[int, tuple[float, bool]] = {}
        """When a block was sent, and whether it was repeated; the longest unanswered one first."""
        server, own = world.address(world.workers), world.address(link.host)
        self._rows, self._frames, self._addresses = rows(len(self._cells), LANES_AT + 4 * world.lanes)
        length = self._rows.shape[1] - AT
        head = lower_headers(own, Address(mac=server.mac, ip=server.ip, port=PORT), length)
        for frame in self._frames:
            frame[:AT] = head
        self._counts = {"repeats": 0, "marks": 0, "fallbacks": 0}

    def allreduce(self, array: Array) -> Steps:
        """Sum an array through a window of packets that slides over it."""
        if len(array) and float(np.abs(array).max()) * SCALE * self._world.workers >= 2**31:
            raise UsageError(f"ATP's integers hold up to {2**31 / SCALE / self._world.workers:g} of each worker")
        blocks = FixedPoint(array, lanes=self._world.lanes, scale=SCALE)
        first, self._next = self._next, self._next + blocks.count
        done, base, following = set[int](), 0, 0
        while base < blocks.count:
            while following < blocks.count and following - base < len(self._frames) and self._has_capacity():
                self._contribute(blocks, following, first + following)
                following += 1
            answer = yield next(iter(self._sent.values()))[0] + self._rounds.timeout_s
            if answer is None:
                self._repeat()
            elif (number := self._accept(answer, first + base)) is not None:
                block = number - first
                blocks.unpack(block, address_in(answer, LANES_AT))
                done.add(block)
                while base in done:
                    done.remove(base)
                    base += 1

    def barrier(self) -> Steps:
        """Wait for all workers: the sum of nothing."""
        return self.allreduce(np.zeros(0, np.float32))

    def unasked(self, frame: bytes) -> None:
        """Drop an answer that has come twice."""

    def statistics(self) -> dict[str, int]:
        """Return what was counted."""
        return dict(self._counts)

    def _has_capacity(self) -> bool:
        return len(self._sent) < min(int(self._window), self._world.slots)

    def _contribute(self, blocks: FixedPoint, block: int, number: int) -> None:
        row = number % len(self._frames)
        blocks.pack(block, self._addresses[row] + LANES_AT)
        self._send(number, 0)
        self._sent[number] = self._link.now(), False

    def _send(self, number: int, flags: int) -> None:
        frame, sequence = self._frames[number % len(self._frames)], sequence_of(self._world.job, number)
        bitmap = 1 << self._link.host
        HEADER.pack_into(frame, AT, bitmap, self._world.workers, flags, self._cells.of(number), sequence)
        self._link.send(frame)

    def _accept(self, frame: bytes, least: int) -> int | None:
        """Return the number of an answered block that is waited for; `least` is the least one that may be."""
        if len(frame) != self._rows.shape[1] or int.from_bytes(frame[36:38]) != PORT:
            return None
        moved, _, flags, _, sequence = HEADER.unpack_from(frame, AT)
        number = least + (sequence - least) % NUMBERS
        if not flags & ANSWER or number not in self._sent:
            return None
        at, was_repeated = self._sent.pop(number)
        self._counts["fallbacks"] += bool(flags & COLLIDED)
        if moved:
            self._cells.move(number, moved - 1)
        now = self._link.now()
        self._rounds.answered(now - at, was_repeated=was_repeated)
        self._again([one for one, (_, was_repeated) in self._sent.items() if one < number and not was_repeated])
        if not flags & MARKED:
            self._window = min(self._window + GROWTH_BYTES / len(frame), float(self._world.slots))
        elif at >= self._halved_at:  # once in a round trip
            self._counts["marks"] += 1
            self._window = max(1.0, self._window / 2)
            self._halved_at = now
        return int(number)

    def _repeat(self) -> None:
        """Send what has waited for too long again."""
        now = self._link.now()
        late = [one for one, (at, _) in self._sent.items() if at + self._rounds.timeout_s <= now]
        self._again(late)
        if late:
            self._rounds.late()

    def _again(self, numbers: Sequence[int]) -> None:
        """Send blocks again: what has waited for too long, or lacks its answer when that of a later one has come."""
        for number in numbers:
            del self._sent[number]
            self._send(number, REPEAT)
            self._sent[number] = self._link.now(), True
            self._counts["repeats"] += 1


def server(world: World, link: HostLink) -> Steps:
    """Add what the switch has not added, and answer with whole sums."""
    everybody = (1 << world.workers) - 1
    sums: dict[int, tuple[int, int, int, npt.NDArray[np.int32]]] = {}
    """By sequence number: who is in it, flags of its packets, the cell of the next block there plus one, the lanes."""
    cells = Cells(world)
    own = world.address(link.host)
    head = lower_headers(own, Address(mac=SWITCH.mac, ip=SWITCH.ip, port=PORT), HEADER.size + 4 * world.lanes)
    while True:
        frame = yield None
        if frame is None or len(frame) != LANES_AT + 4 * world.lanes or int.from_bytes(frame[36:38]) != PORT:
            continue
        bitmap, _, flags, cell, sequence = HEADER.unpack_from(frame, AT)
        if flags & ANSWER:
            continue
        seen, noted, moved, lanes = sums.get(sequence, (0, 0, 0, np.zeros(world.lanes, np.int32)))
        was_whole = seen == everybody
        noted |= flags & (MARKED | COLLIDED)
        if flags & COLLIDED and not flags & REPEAT:
            noted |= MOVES
        if not seen & bitmap:
            lanes = lanes + np.frombuffer(frame, ">i4", world.lanes, LANES_AT).astype(np.int32)
            seen |= bitmap
        sums[sequence] = seen, noted, moved, lanes
        if seen == everybody:
            if noted & MOVES and not was_whole:  # once, so that all workers are told the same
                moved = cells.another(sequence % NUMBERS) + 1
            said = ANSWER | noted & (MARKED | COLLIDED)
            body = HEADER.pack(moved, world.workers, said, cell, sequence) + lanes.astype(">i4").tobytes()
            link.send(head + body)
            sums[sequence] = seen, noted & COLLIDED, moved, lanes
            # Who sends a packet has all answers that lie two windows back.
            sums.pop(sequence_of(world.job, sequence - 4 * world.slots), None)
