"""The sending half of one StreamChannel: a queue that gRPC's thread empties."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, Final

from .refusal import Refused

MAX_PENDING: Final = 4096
"""Most messages that may wait for a slow client; further packet-ins to it are dropped."""


class Stream:
    """The messages that wait for one client."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.dropped = 0
        """Packet-ins that were dropped since the queue was full."""

    def send(self, message: Any) -> None:
        """Queue a StreamMessageResponse."""
        self._queue.put(message)

    def offer(self, message: Any) -> None:
        """Queue a message, or drop it if the client is too slow."""
        if self._queue.qsize() < MAX_PENDING:
            self._queue.put(message)
        else:
            self.dropped += 1

    def close(self, reason: Refused | None = None) -> None:
        """End the stream after the messages that are queued, with an error if there is a reason."""
        self._queue.put(reason)

    def __iter__(self) -> Iterator[Any]:
        """Yield messages until the stream is closed; raises the reason for which it was closed."""
        while (message := self._queue.get()) is not None:
            if isinstance(message, Refused):
                raise message
            yield message
