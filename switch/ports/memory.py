"""Ports without wires: tests put frames in and look at what comes out."""

from __future__ import annotations

import ctypes
from collections import deque

import numpy as np

from switchsum.switch.ports.base import Addresses, Batch, Counter, PortGroup, PortTable, Words


class MemoryPorts(PortGroup):
    """Ports whose wires are two queues."""

    def __init__(self, table: PortTable, numbers: list[int]) -> None:
        """Have the ports `numbers`."""
        super().__init__(table)
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._lent: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
        self.sent: list[tuple[int, bytes]] = []
        """What has gone out: port and frame, in order."""
        for number in numbers:
            self.owned[table.take("memory", "memory", number)] = True

    def inject(self, port: int, frame: bytes) -> None:
        """Let a frame come in on `port`."""
        self._waiting.append((port, frame))

    def collect(self, batch: Batch) -> None:
        """Append injected frames."""
        while self._waiting and batch.count < batch.capacity:
            port, frame = self._waiting.popleft()
            memory = np.frombuffer(bytearray(frame), np.uint8)
            self._lent.append(memory)
            batch.append(port, memory.ctypes.data, len(frame))
            self.table.counters[port, [Counter.RX_FRAMES, Counter.RX_BYTES]] += (1, len(frame))

    def done(self) -> None:
        """Forget collected frames."""
        self._lent.clear()

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Append frames to `sent`."""
        for port, address, length in zip(ports.tolist(), addresses.tolist(), lengths.tolist(), strict=True):
            self.sent.append((port, ctypes.string_at(address, length)))
            self.table.counters[port, [Counter.TX_FRAMES, Counter.TX_BYTES]] += (1, length)

    def descriptors(self) -> list[int]:
        """Return none: who injects frames polls."""
        return []

    def prepare_sleep(self) -> bool:
        """Tell whether nothing waits."""
        return not self._waiting

    def close(self) -> None:
        """Give the numbers back."""
        for number in np.flatnonzero(self.owned).tolist():
            self.table.give_back(number)
        self.owned[:] = False
