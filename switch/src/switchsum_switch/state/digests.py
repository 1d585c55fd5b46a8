"""Digests: messages to the control plane that a program makes with `digest()`.

As in BMv2 a packet makes one digest at most, when ingress ends, of the values that its fields have then; of several
calls the last one counts.  A record is the values side by side, each in whole bytes and network byte order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from .lock import StateLock

CAPACITY: Final = 4096
"""Most records that wait to be taken; further ones are lost and counted."""
HEAD_BYTES: Final = 16
"""Bytes in front of the records: the number that wait, and the number that were lost, 64 bits each."""


class Digest:
    """The records of one kind of digest; native code appends to the same memory."""

    def __init__(self, name: str, widths: Sequence[int], lock: StateLock) -> None:
        self.name = name
        self.widths = tuple(widths)
        """Bits of each value."""
        self._lock = lock
        self.memory = np.zeros(HEAD_BYTES + CAPACITY * record_bytes(widths), np.uint8)
        self._head = self.memory[:HEAD_BYTES].view(np.uint64)

    @property
    def waiting(self) -> int:
        """How many records wait."""
        return int(self._head[0])

    @property
    def lost(self) -> int:
        """How many records were lost because nobody took those before them."""
        return int(self._head[1])

    def add(self, values: Sequence[int]) -> None:
        """Append a record, as native code does."""
        if self.waiting == CAPACITY:
            self._head[1] += np.uint64(1)
            return
        pairs = zip(values, self.widths, strict=True)
        record = b"".join(value.to_bytes(value_bytes(width), "big") for value, width in pairs)
        start = HEAD_BYTES + self.waiting * len(record)
        self.memory[start : start + len(record)] = np.frombuffer(record, np.uint8)
        self._head[0] += np.uint64(1)

    def take(self) -> list[tuple[int, ...]]:
        """Return the records that wait, the oldest first, and forget them."""
        size = record_bytes(self.widths)
        with self._lock:
            data = self.memory[HEAD_BYTES : HEAD_BYTES + self.waiting * size].tobytes()
            self._head[0] = 0
        return [self._values(data[start : start + size]) for start in range(0, len(data), size)]

    def _values(self, record: bytes) -> tuple[int, ...]:
        values, start = [], 0
        for width in self.widths:
            end = start + value_bytes(width)
            values.append(int.from_bytes(record[start:end], "big"))
            start = end
        return tuple(values)


def value_bytes(width: int) -> int:
    """Return the bytes of a value in a record."""
    return (width + 7) // 8


def record_bytes(widths: Sequence[int]) -> int:
    """Return the bytes of a record, which has at least one value."""
    return sum(map(value_bytes, widths))
