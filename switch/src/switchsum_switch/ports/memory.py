"""Ports without links, for tests: a test injects frames and reads the frames that left."""

from __future__ import annotations

import ctypes
from collections import deque

import numpy as np

from .base import Addresses, Batch, PortCounter, PortGroup, PortTable, Words, rows


class MemoryPorts(PortGroup):
    """Ports whose frames come from a queue and go to a list."""

    def __init__(self, table: PortTable, numbers: list[int]) -> None:
        """Open the ports `numbers`."""
        super().__init__(table)
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._lent: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
        self.sent: list[tuple[int, bytes]] = []
        """The frames that have left: port and frame, in order."""
        for number in numbers:
            self.owned[table.take("memory", "memory", number)] = True

    def inject(self, port: int, frame: bytes) -> None:
        """Queue a frame that is to arrive on `port`."""
        self._waiting.append((port, frame))

    def collect(self, batch: Batch) -> None:
        """Append injected frames to the batch."""
        while self._waiting and batch.count < batch.capacity:
            port, frame = self._waiting.popleft()
            memory = np.frombuffer(bytearray(frame), np.uint8)
            self._lent.append(memory)
            batch.append(port, memory.ctypes.data, len(frame))
            self.table.counters[port, [PortCounter.RX_FRAMES, PortCounter.RX_BYTES]] += (1, len(frame))

    def done(self) -> None:
        """Free the frames that were collected."""
        self._lent.clear()

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Append frames to `sent`."""
        for port, address, length in rows(ports, addresses, lengths):
            self.sent.append((port, ctypes.string_at(address, length)))
            self.table.counters[port, [PortCounter.TX_FRAMES, PortCounter.TX_BYTES]] += (1, length)

    def descriptors(self) -> list[int]:
        """Return no descriptors: the test polls."""
        return []

    def prepare_sleep(self) -> bool:
        """Return whether no frame waits."""
        return not self._waiting

    def close(self) -> None:
        """Give the port numbers back."""
        for number in np.flatnonzero(self.owned).tolist():
            self.table.give_back(number)
        self.owned[:] = False
