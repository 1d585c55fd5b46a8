"""Frames that wait because their interface did not take them at once."""

from __future__ import annotations

import ctypes
from collections import deque

from ..queues.queues import CAPACITY_FRAMES, Queues
from ..state.clock import Clock
from .base import Addresses, Words


class Backlog:
    """The queues of one port.  Frames of the last queue leave first; each queue is first in, first out."""

    def __init__(self, port: int, queues: Queues, clock: Clock) -> None:
        """Start with empty queues, and keep their state in `queues` up to date."""
        self._clock = clock
        self._cells = queues.cells[port]
        self._waiting: list[deque[tuple[bytes, int]]] = [deque() for _ in range(queues.count)]
        self.frames = 0
        """Frames that wait in all queues together."""

    def push(self, queues: Words, addresses: Addresses, lengths: Words) -> int:
        """Copy frames to their queues; return how many of them a queue was too full for."""
        now_us, dropped = self._clock.now_us(), 0
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
        """Return the frame that leaves next; there must be one."""
        return self._waiting[self._next()][0][0]

    def pop(self) -> None:
        """Remove the frame that leaves next."""
        queue = self._next()
        self._waiting[queue].popleft()
        self.frames -= 1
        self._tell(queue)

    def _next(self) -> int:
        return next(queue for queue in reversed(range(len(self._waiting))) if self._waiting[queue])

    def _tell(self, queue: int) -> None:
        waiting = self._waiting[queue]
        self._cells[queue] = (len(waiting), waiting[0][1] if waiting else 0)
