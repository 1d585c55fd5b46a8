"""The CPU port: what the program sends there becomes packet-ins, and packet-outs come in through it."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from switchsum.switch.ports.base import CPU_PORT, Addresses, Batch, Counter, PortGroup, PortTable, Words

MAX_WAITING: Final = 4096
"""Packet-outs that wait for the data plane before more of them are dropped."""


class CpuPort(PortGroup):
    """The one port whose peer is the P4Runtime server in this process."""

    def __init__(self, table: PortTable, packet_in: Callable[[bytes], None], number: int = CPU_PORT) -> None:
        """Hand frames that go out to `packet_in`; `table` keeps the number free."""
        super().__init__(table)
        self.number = number
        self._packet_in = packet_in
        self._waiting: deque[bytes] = deque()
        self._lent: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
        self.owned[number] = True

    def packet_out(self, frame: bytes) -> None:
        """Let a frame come in; any thread may call it, and then wakes the data plane."""
        if frame and len(self._waiting) < MAX_WAITING:
            self._waiting.append(frame)
        else:
            self.table.counters[self.number, Counter.RX_DROPS] += 1

    def collect(self, batch: Batch) -> None:
        """Append packet-outs."""
        while self._waiting and batch.count < batch.capacity:
            memory = np.frombuffer(self._waiting.popleft(), np.uint8)
            self._lent.append(memory)
            batch.append(self.number, memory.ctypes.data, len(memory))
            self.table.counters[self.number, [Counter.RX_FRAMES, Counter.RX_BYTES]] += (1, len(memory))

    def done(self) -> None:
        """Forget collected packet-outs."""
        self._lent.clear()

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Pass frames to the P4Runtime server."""
        for address, length in zip(addresses.tolist(), lengths.tolist(), strict=True):
            self._packet_in(ctypes.string_at(address, length))
            self.table.counters[self.number, [Counter.TX_FRAMES, Counter.TX_BYTES]] += (1, length)

    def descriptors(self) -> list[int]:
        """Return none: who sends packets out wakes the data plane itself."""
        return []

    def prepare_sleep(self) -> bool:
        """Tell whether no packet-out waits."""
        return not self._waiting

    def close(self) -> None:
        """Be no port any more."""
        self.owned[:] = False
