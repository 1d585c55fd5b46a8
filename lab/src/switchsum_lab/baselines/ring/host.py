"""A ring of hosts: N - 1 steps that add a part each, and N - 1 that hand the sums on; the switch only forwards.

Each host sends to the next one and receives from the one before.  Frames are acknowledged one by one.  Floats travel
as floats: nothing is quantised.
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
LEVELS: Final = 2
WINDOW_VALUES: Final = 64 * 256
"""Values in flight, as those of the parameter servers."""
entries: Final = forwarding.entries
PORT: Final = 0xBEF0
DATA: Final = 0
ACKNOWLEDGED: Final = 1
HEADER: Final = struct.Struct("!BBHII")
"""Kind, nothing, step, number of the collective, block of the part."""
AT: Final = HEADERS_BYTES
VALUES_AT: Final = AT + HEADER.size
Key = tuple[int, int]
"""Step and block."""


def peer(world: World, link: HostLink) -> Worker:
    """Return a worker."""
    return Worker(world, link)


class Worker:
    """One host of the ring."""

    def __init__(self, world: World, link: HostLink) -> None:
        self._world, self._link, self._size = world, link, world.workers
        self._rounds = RoundTrips(world.least_timeout_s, in_flight=world.slots)
        self._number = 0
        """Of the collective."""
        self._early: dict[tuple[int, int, int], bytes] = {}
        """Frames of collectives that this host has not begun."""
        self._pending: dict[Key, tuple[bytes, float, bool]] = {}
        """Frame, when it was sent, and whether it was repeated; the longest unacknowledged one first."""
        self._came: dict[int, set[int]] = {}
        """Blocks that have come, by step."""
        self._to_next = self._head((link.host + 1) % self._size, 4 * world.lanes)
        self._back = self._head((link.host - 1) % self._size, 0)
        self._counts = {"repeats": 0}

    def _head(self, host: int, size: int) -> bytes:
        return forwarding.head(self._world, PORT, self._link.host, host, HEADER.size + size)

    def allreduce(self, array: Array) -> Steps:
        """Sum an array: host r begins with part r, and has the sum of part r + 1 after N - 1 steps."""
        self._number += 1
        each = -(-len(array) // (self._size * self._world.lanes)) * self._world.lanes
        parts = [array[rank * each : (rank + 1) * each] for rank in range(self._size)]
        self._came = {step: set() for step in range(2 * (self._size - 1))}
        waiting = [(0, block) for block in range(self._blocks(parts[self._link.host]))]
        waiting.reverse()
        for key in [key for key in self._early if key[0] <= self._number]:
            number, step, block = key
            early = self._early.pop(key)
            if number == self._number:
                self._take(parts, step, block, early, waiting)
        while self._pending or waiting or not self._is_complete(parts):
            while waiting and len(self._pending) < self._world.slots:
                self._send(parts, *waiting.pop(), is_repeat=False)
            until = next(iter(self._pending.values()))[1] + self._rounds.timeout_s if self._pending else None
            frame = yield until if until is not None else self._link.now() + 1.0
            if frame is None:
                self._repeat()
            elif (found := self._parse(frame)) is not None:
                kind, step, number, block = found
                if kind == ACKNOWLEDGED:
                    self._acknowledged(number, step, block)
                elif number == self._number:
                    self._take(parts, step, block, frame, waiting)
                else:
                    self._other(frame, number, step, block)

    def barrier(self) -> Steps:
        """Wait for all hosts: a sum of a value for each."""
        return self.allreduce(np.zeros(self._size * self._world.lanes, np.float32))

    def unasked(self, frame: bytes) -> None:
        """Acknowledge a repeat, or keep what comes before this host begins its next collective."""
        if (found := self._parse(frame)) is not None and found[0] == DATA:
            self._other(frame, found[2], found[1], found[3])

    def statistics(self) -> dict[str, int]:
        """Return what was counted."""
        return dict(self._counts)

    def _blocks(self, part: Array) -> int:
        return -(-len(part) // self._world.lanes)

    def _is_complete(self, parts: list[Array]) -> bool:
        own, size = self._link.host, self._size
        return all(len(came) == self._blocks(parts[(own - 1 - step) % size]) for step, came in self._came.items())

    def _parse(self, frame: bytes) -> tuple[int, int, int, int] | None:
        """Return kind, step, collective and block of a frame of ours."""
        if not forwarding.is_to(frame, PORT, VALUES_AT):
            return None
        kind, _, step, number, block = HEADER.unpack_from(frame, AT)
        return kind, step, number, block

    def _other(self, frame: bytes, number: int, step: int, block: int) -> None:
        """Take a frame of another collective: a repeat of an earlier one, or a later one's."""
        if number > self._number:
            self._early[number, step, block] = frame
        else:
            self._acknowledge(number, step, block)

    def _acknowledge(self, number: int, step: int, block: int) -> None:
        self._link.send(self._back + HEADER.pack(ACKNOWLEDGED, 0, step, number, block))

    def _take(self, parts: list[Array], step: int, block: int, frame: bytes, waiting: list[Key]) -> None:
        """Add a block, or in later steps take it over; then it is to be sent on."""
        self._acknowledge(self._number, step, block)
        if block in self._came[step]:
            return
        self._came[step].add(block)
        start = block * self._world.lanes
        part = parts[(self._link.host - 1 - step) % self._size][start : start + self._world.lanes]
        values = np.frombuffer(frame, np.float32, len(part), VALUES_AT)
        if step < self._size - 1:
            part += values
        else:
            part[:] = values
        if step + 1 in self._came:
            waiting.insert(0, (step + 1, block))

    def _send(self, parts: list[Array], step: int, block: int, *, is_repeat: bool) -> None:
        start = block * self._world.lanes
        part = parts[(self._link.host - step) % self._size][start : start + self._world.lanes]
        head = self._to_next + HEADER.pack(DATA, 0, step, self._number, block)
        frame = (head + part.tobytes()).ljust(VALUES_AT + 4 * self._world.lanes, b"\0")
        self._link.send(frame)
        self._pending[step, block] = frame, self._link.now(), is_repeat

    def _acknowledged(self, number: int, step: int, block: int) -> None:
        found = self._pending.pop((step, block), None) if number == self._number else None
        if found is not None:
            self._rounds.answered(self._link.now() - found[1], was_repeated=found[2])

    def _repeat(self) -> None:
        """Send what has waited for too long again."""
        now = self._link.now()
        late = [key for key, (_, at, _) in self._pending.items() if at + self._rounds.timeout_s <= now]
        for key in late:
            frame = self._pending.pop(key)[0]
            self._link.send(frame)
            self._pending[key] = frame, now, True
            self._counts["repeats"] += 1
        if late:
            self._rounds.late()
