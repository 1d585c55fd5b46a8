"""The sending half of one StreamChannel: a queue that gRPC's thread empties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Lock
from typing import Any, Final

from .refusal import Refused

MAX_STREAMS: Final = 32
"""Most open streams of all clients together, also of those that have said nothing yet; each has two threads."""
MAX_PENDING: Final = 4096
"""Most messages that may wait for a slow client; further packet-ins and errors are dropped."""
MAX_PENDING_BYTES: Final = 64 << 20
"""The same in bytes: an error has a copy of the client's message.  As many of the longest frames are fewer bytes."""
MAX_UNREAD: Final = 2 * MAX_PENDING
"""Messages about arbitration, which are not dropped, have room for as many again.  A client that leaves more unread is
given up."""


class Stream:
    """The messages that wait for one client."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        """`cancel` ends the client's call at once, whether it reads or not; any thread may call it."""
        self._cancel = cancel
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._lock = Lock()
        self._bytes = 0
        """Bytes of the messages in the queue."""
        self.dropped = 0
        """Packet-ins and errors that were dropped since the queue was full."""

    def send(self, message: Any) -> None:
        """Queue a StreamMessageResponse; a client that reads none of them loses its stream."""
        if not self._put(message, MAX_UNREAD, None):
            self._cancel()

    def offer(self, message: Any) -> None:
        """Queue a message, or drop it if the client is too slow."""
        if not self._put(message, MAX_PENDING, MAX_PENDING_BYTES):
            self.dropped += 1

    def close(self, reason: Refused | None = None) -> None:
        """End the stream after the messages that are queued, with an error if there is a reason."""
        self._queue.put(reason)

    def __iter__(self) -> Iterator[Any]:
        """Yield messages until the stream is closed; raises the reason for which it was closed."""
        while (message := self._queue.get()) is not None:
            if isinstance(message, Refused):
                raise message
            with self._lock:
                self._bytes -= message.ByteSize()
            yield message

    def _put(self, message: Any, most: int, most_bytes: int | None) -> bool:
        with self._lock:
            if self._queue.qsize() >= most or (most_bytes is not None and self._bytes >= most_bytes):
                return False
            self._bytes += message.ByteSize()
            self._queue.put(message)
        return True
