"""The CPU port: a frame that the program sends there becomes a packet-in, and a packet-out arrives through it."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from ..ports.base import CPU_PORT, Addresses, Batch, PortCounter, PortGroup, PortTable, Words

MAX_WAITING: Final = 4096
"""Packet-outs that may wait for the data plane; further ones are dropped and counted."""


class CpuPort(PortGroup):
    """The port whose peer is the P4Runtime server in this process."""

    def __init__(self, table: PortTable, packet_in: Callable[[bytes], None], number: int = CPU_PORT) -> None:
        """Give frames that leave through the port to `packet_in`; `table` keeps its number free of other ports."""
        super().__init__(table)
        self.number = number
        self._packet_in = packet_in
        self._waiting: deque[bytes] = deque()
        self._lent: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
        self.owned[number] = True

    def packet_out(self, frame: bytes) -> None:
        """Queue a frame that is to arrive at the port; any thread may call it, and must then wake the data plane."""
        if frame and len(self._waiting) < MAX_WAITING:
            self._waiting.append(frame)
        else:
            self.table.counters[self.number, PortCounter.RX_DROPS] += 1

    def collect(self, batch: Batch) -> None:
        """Append packet-outs to the batch."""
        while self._waiting and batch.count < batch.capacity:
            memory = np.frombuffer(self._waiting.popleft(), np.uint8)
            self._lent.append(memory)  # the batch has its address only: the memory must live until `done`
            batch.append(self.number, memory.ctypes.data, len(memory))
            self.table.counters[self.number, [PortCounter.RX_FRAMES, PortCounter.RX_BYTES]] += (1, len(memory))

    def done(self) -> None:
        """Free the packet-outs that were collected."""
        self._lent.clear()

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Pass frames to the P4Runtime server."""
        for address, length in zip(addresses.tolist(), lengths.tolist(), strict=True):
            self._packet_in(ctypes.string_at(address, length))
            self.table.counters[self.number, [PortCounter.TX_FRAMES, PortCounter.TX_BYTES]] += (1, length)

    def descriptors(self) -> list[int]:
        """Return no descriptors: the sender of a packet-out wakes the data plane itself."""
        return []

    def prepare_sleep(self) -> bool:
        """Tell whether no packet-out waits."""
        return not self._waiting

    def close(self) -> None:
        """Take no more frames."""
        self.owned[:] = False
