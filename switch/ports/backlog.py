"""Frames that a port did not take at once."""

from __future__ import annotations

import ctypes
import time
from collections import deque

from switchsum.switch.ports.base import Addresses, Words
from switchsum.switch.queues import CAPACITY_FRAMES, Queues


class Backlog:
    """The queues of one port; the last goes first, each in the order in which frames came."""

    def __init__(self, port: int, queues: Queues) -> None:
        """Tell `queues` how the port's are."""
        self._cells = queues.cells[port]
        self._waiting: list[deque[tuple[bytes, int]]] = [deque() for _ in range(queues.count)]
        self.frames = 0
        """Frames that wait, in all queues."""

    def push(self, queues: Words, addresses: Addresses, lengths: Words) -> int:
        """Copy frames into the queues that they belong to; return how many found no room."""
        now_us, dropped = time.monotonic_ns() // 1000, 0
        for queue, address, length in zip(queues.tolist(), addresses.tolist(), lengths.tolist(), strict=True):
            waiting = self._waiting[queue]
            if len(waiting) < CAPACITY_FRAMES:
                waiting.append((ctypes.string_at(address, length), now_us))
                self.frames += 1
                self._tell(queue)
            else:
                dropped += 1
        return dropped

    def first(self) -> bytes:
        """Return the frame that is to leave next; there must be one."""
        return self._waiting[self._next()][0][0]

    def pop(self) -> None:
        """Forget the first frame."""
        queue = self._next()
        self._waiting[queue].popleft()
        self.frames -= 1
        self._tell(queue)

    def _next(self) -> int:
        return next(queue for queue in reversed(range(len(self._waiting))) if self._waiting[queue])

    def _tell(self, queue: int) -> None:
        waiting = self._waiting[queue]
        self._cells[queue] = (len(waiting), waiting[0][1] if waiting else 0)
