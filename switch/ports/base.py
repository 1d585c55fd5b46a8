"""The seam between the data plane and its ports: addresses of frames in, addresses of frames out, in batches.

    while running:
        batch = ports.poll()
        if batch.count:
            ... run the program over batch.addresses, batch.lengths, batch.ports ...
            ports.transmit(out_ports, out_addresses, out_lengths)
            ports.done()
        else:
            ports.wait(timeout_s)

`PortSet` (port_set.py) is that object; it is made of port groups, one for each kind of link.  One thread drives it;
others may read the counters.  Frames lie in memory of whoever received them and may change under the reader's hands
when a worker misbehaves: whoever parses a header copies it out first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import TransportError
from switchsum.switch.queues import PORTS, Queues

Addresses = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]
Counters = npt.NDArray[np.int64]

CPU_PORT: Final = 255
DROP_PORT: Final = 511
"""Where v1model sends what it drops."""
MAX_FRAME_BYTES: Final = 9216
"""Longest frame that interfaces and UDP ports take; shared memory takes what the worker asks for, up to this."""


class Counter(IntEnum):
    """Columns of the port counters."""

    RX_FRAMES = 0
    RX_BYTES = 1
    RX_DROPS = 2
    """Came in and were unusable: longer than a row, or a descriptor that points nowhere."""
    TX_FRAMES = 3
    TX_BYTES = 4
    TX_DROPS = 5
    """Were to go out and found the queue full, the link down, or no such port."""


class Batch:
    """Frames that have come, as columns; the data plane reads the first `count` entries of each."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        """The most frames that one poll returns."""
        self.count = 0
        """Frames in this batch."""
        self.addresses: Addresses = np.zeros(capacity, np.uint64)
        """Address of each frame's first byte (Ethernet header)."""
        self.lengths: Words = np.zeros(capacity, np.uint32)
        """Bytes of each frame."""
        self.ports: Words = np.zeros(capacity, np.uint32)
        """Number of the port on which each came."""

    def append(self, port: int, address: int, length: int) -> None:
        """Add one frame; there must be room."""
        self.ports[self.count], self.addresses[self.count], self.lengths[self.count] = port, address, length
        self.count += 1

    def extend(self, port: int, addresses: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32]) -> None:
        """Add frames of one port; there must be room."""
        end = self.count + len(addresses)
        self.ports[self.count : end] = port
        self.addresses[self.count : end] = addresses
        self.lengths[self.count : end] = lengths
        self.count = end


@dataclass(frozen=True, slots=True, kw_only=True)
class PortInfo:
    """One port, for people and for P4Runtime's clients."""

    number: int
    """0 to 511, but for the reserved ones."""
    kind: str
    """`shm`, `packet`, `udp` or `memory`."""
    name: str
    """Interface, socket address, or process that is connected."""


class PortTable:
    """Which port numbers are in use, and their counters; one for all groups of a switch."""

    def __init__(self, reserved: Collection[int] = (CPU_PORT, DROP_PORT), queues: Queues | None = None) -> None:
        """Keep the numbers `reserved` free of ports."""
        self.queues = queues or Queues()
        """What frames wait in where a port does not take them at once."""
        self._reserved = frozenset(reserved)
        self.counters: Counters = np.zeros((PORTS, len(Counter)), np.int64)
        """`[PORTS, len(Counter)]`; a number that is used again goes on counting."""
        self._ports: dict[int, PortInfo] = {}

    def take(self, kind: str, name: str, number: int | None = None) -> int:
        """Reserve `number`, or the lowest free one from 1 on, and return it; raises TransportError."""
        if number is None:
            free = (n for n in range(1, PORTS) if n not in self._ports and n not in self._reserved)
            number = next(free, PORTS)
        if number in self._ports:
            raise TransportError(f"port {number} is already {self._ports[number].name}")
        if number in self._reserved:
            raise TransportError(f"port number {number} is the CPU port's or means drop")
        if not 0 <= number < PORTS:
            raise TransportError(f"no port can have the number {number}")
        self._ports[number] = PortInfo(number=number, kind=kind, name=name)
        return number

    def give_back(self, number: int) -> None:
        """Free a number."""
        del self._ports[number]

    def ports(self) -> list[PortInfo]:
        """Return the ports that are up, by number."""
        return sorted(self._ports.values(), key=lambda port: port.number)


class PortGroup(ABC):
    """All ports of one kind."""

    def __init__(self, table: PortTable) -> None:
        self.table = table
        """Port numbers and counters, shared with the other groups."""
        self.owned = np.zeros(PORTS, np.bool_)
        """Which numbers are ports of this group."""

    @abstractmethod
    def collect(self, batch: Batch) -> None:
        """Append frames that have come to `batch`, at most as many as fit; their memory stays as it is until `done`."""

    def done(self) -> None:  # noqa: B027  (most groups have nothing to do here)
        """Give back the memory of the frames collected since the last call."""

    @abstractmethod
    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Send frames to ports of this group, in order, copying them; drop and count what finds no room."""

    def enqueue(self, ports: Words, queues: Words, addresses: Addresses, lengths: Words) -> None:
        """Send frames as `transmit` does, each by way of one of its port's queues, where the group has any."""
        self.transmit(ports, addresses, lengths)

    @abstractmethod
    def descriptors(self) -> list[int]:
        """Return the file descriptors that become readable when `collect` or `service` has something to do."""

    def prepare_sleep(self) -> bool:
        """Ask to be woken through the descriptors from now on; False when frames have come already."""
        return True

    def awake(self) -> None:  # noqa: B027
        """Take `prepare_sleep` back."""

    def service(self) -> None:  # noqa: B027
        """Let ports appear and disappear; called now and then and after every sleep, between `done` and `collect`."""

    @abstractmethod
    def close(self) -> None:
        """Close every port of the group."""
