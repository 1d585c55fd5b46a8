"""The sending half of one StreamChannel: a queue that the RPC's thread drains."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, Final

from switchsum.switch.p4runtime.refusal import Refused

MAX_PENDING: Final = 4096
"""Messages that wait for a slow client before packet-ins to it are dropped."""


class Stream:
    """What one client is still to be told."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.dropped = 0
        """Packet-ins that found the queue full."""

    def send(self, message: Any) -> None:
        """Queue a StreamMessageResponse."""
        self._queue.put(message)

    def offer(self, message: Any) -> None:
        """Queue a message that may be lost where the client does not keep up."""
        if self._queue.qsize() < MAX_PENDING:
            self._queue.put(message)
        else:
            self.dropped += 1

    def close(self, reason: Refused | None = None) -> None:
        """End the stream after what is queued, with an error or without."""
        self._queue.put(reason)

    def __iter__(self) -> Iterator[Any]:
        """Yield messages as they come until the stream is closed; raises the reason it was closed for."""
        while (message := self._queue.get()) is not None:
            if isinstance(message, Refused):
                raise message
            yield message
