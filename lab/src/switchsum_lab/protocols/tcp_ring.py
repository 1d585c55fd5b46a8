"""A ring of hosts over TCP: each host streams to the next one, as gloo and NCCL do over sockets.

Parts go as in `baselines/ring`: N - 1 steps that add a part each, and N - 1 that hand the sums on.  A stream keeps its
order, so each host sends blocks on in the order in which they come, and needs no numbers of its own.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

import numpy as np

from . import forwarding
from .seam import HEADERS_BYTES, Array, HostLink, Steps, World
from .tcp import RANGES, Growth, Receiver, Sender

PORT: Final = 0xBEF2
DATA: Final = 0
ACKNOWLEDGED: Final = 1
HEADER: Final = struct.Struct("!BBHII12x")
"""Kind, ranges, nothing, number, transmission: with the headers before as long as TCP's with time stamps."""
RANGE: Final = struct.Struct("!II")
AT: Final = HEADERS_BYTES
VALUES_AT: Final = AT + HEADER.size
_LAST_ACKNOWLEDGEMENTS: Final = 3
"""A host here waits until its last block is acknowledged, which a socket does in the background."""


class Worker:
    """One host of the ring."""

    def __init__(self, world: World, link: HostLink, growth: Growth) -> None:
        self._world, self._link, self._size = world, link, world.workers
        self._sender, self._receiver = Sender(growth), Receiver()
        self._payloads: deque[bytes] = deque()
        """Of the segments from `_base` on, which may have to be sent again."""
        self._base = 0
        self._arrived: deque[bytes] = deque()
        self._to_next = self._head((link.host + 1) % self._size, 4 * world.lanes)
        self._back = [self._head((link.host - 1) % self._size, count * RANGE.size) for count in range(RANGES + 1)]

    def _head(self, host: int, size: int) -> bytes:
        return forwarding.head(self._world, PORT, self._link.host, host, HEADER.size + size)

    def allreduce(self, array: Array) -> Steps:
        """Sum an array: host r begins with part r, and has the sum of part r + 1 after N - 1 steps."""
        lanes, own, size = self._world.lanes, self._link.host, self._size
        each = -(-len(array) // (size * lanes)) * lanes
        parts = [array[rank * each : (rank + 1) * each] for rank in range(size)]
        steps = range(2 * (size - 1))
        for start in range(0, len(parts[own]), lanes):
            self._add(parts[own][start : start + lanes])
        coming = deque(
            (step, parts[(own - 1 - step) % size][start : start + lanes])
            for step in steps
            for start in range(0, len(parts[(own - 1 - step) % size]), lanes)
        )
        while coming or not self._sender.is_done:
            while coming and self._arrived:
                step, part = coming.popleft()
                values = np.frombuffer(self._arrived.popleft(), np.float32, len(part))
                if step < size - 1:
                    part += values
                else:
                    part[:] = values
                if step + 1 in steps:
                    self._add(part)
                elif not coming:
                    for _ in range(_LAST_ACKNOWLEDGEMENTS - 1):
                        self._acknowledge(0)
            self._transmit(self._sender.sendable(self._link.now()))
            if not coming and self._sender.is_done:
                return
            until = self._sender.until
            frame = yield until if until is not None else self._link.now() + 1.0
            if frame is not None:
                self.unasked(frame)
            else:
                self._transmit(self._sender.tick(self._link.now()))

    def barrier(self) -> Steps:
        """Wait for all hosts: a sum of a value for each."""
        return self.allreduce(np.zeros(self._size * self._world.lanes, np.float32))

    def unasked(self, frame: bytes) -> None:
        """Take a segment or an acknowledgement, also between collectives."""
        if not forwarding.is_to(frame, PORT, VALUES_AT):
            return
        kind, count, _, number, transmission = HEADER.unpack_from(frame, AT)
        if kind == DATA:
            self._arrived.extend(self._receiver.take(number, frame[VALUES_AT:]))
            self._acknowledge(transmission)
            return
        ranges = [RANGE.unpack_from(frame, VALUES_AT + place * RANGE.size) for place in range(count)]
        self._sender.answered(number, ranges, transmission, self._link.now())
        while self._base < number:
            self._payloads.popleft()
            self._base += 1

    def statistics(self) -> dict[str, int]:
        """Return what was counted."""
        return {"repeats": self._sender.repeats, "timeouts": self._sender.timeouts}

    def _add(self, values: Array) -> None:
        self._payloads.append(values.tobytes().ljust(4 * self._world.lanes, b"\0"))
        self._sender.added += 1

    def _acknowledge(self, transmission: int) -> None:
        ranges = self._receiver.ranges()
        head = HEADER.pack(ACKNOWLEDGED, len(ranges), 0, self._receiver.first, transmission)
        self._link.send(self._back[len(ranges)] + head + b"".join(RANGE.pack(*one) for one in ranges))

    def _transmit(self, segments: list[tuple[int, int]]) -> None:
        for number, transmission in segments:
            head = HEADER.pack(DATA, 0, 0, number, transmission)
            self._link.send(self._to_next + head + self._payloads[number - self._base])
