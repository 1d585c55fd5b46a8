"""The seam between the data plane and its ports: addresses of frames in, addresses of frames out, in batches.

    while running:
        batch = ports.poll()
        if batch.count:
            ... run the program over batch.addresses, batch.lengths, batch.ports ...
            ports.transmit(out_ports, out_addresses, out_lengths)
            ports.done()
        else:
            ports.wait(timeout_s)

`PortSet` (port_set.py) is this object; it is made of port groups, one for each kind of link.  One thread drives it;
other threads may read the counters.  Frames are not copied on the way in.  They lie in the memory of the port that
received them: a row of a ring, or shared memory that a worker can still write.  Code that parses a header therefore
copies it first, and never reads the same byte of a frame twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.errors import TransportError
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.records import Int64, Record, Table, dtype_of, table

from ..program.v1model import DROP_PORT
from ..queues.queues import PORTS, Queues
from ..state.clock import Clock
from ..state.liveness import Liveness

Addresses = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]
PortCounters = npt.NDArray[np.int64]

CPU_PORT: Final = 255
MAX_FRAME_BYTES: Final = 10_240
"""Longest frame of any port.  A shared-memory worker says how long its frames may be, up to this."""


class PortCounter(IntEnum):
    """Columns of the port counters."""

    RX_FRAMES = 0
    RX_BYTES = 1
    RX_DROPS = 2
    """Frames that arrived and could not be used: longer than a row, or with a descriptor that names no row."""
    TX_FRAMES = 3
    TX_BYTES = 4
    TX_DROPS = 5
    """Frames that could not leave: the queue was full, the link down, or there is no such port."""


class BatchRecord(Record):
    """A `Batch` as kernels see it: the addresses of its columns."""

    addresses: Int64
    lengths: Int64
    ports: Int64
    capacity: Int64
    """How many frames the columns have room for."""
    count: Int64
    """How many frames there are."""


BATCH: Final = dtype_of(BatchRecord)


class Batch:
    """Frames that have arrived, as columns; the first `count` rows of each are in use."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        """Most frames that one poll returns."""
        self.count = 0
        """Frames in this batch."""
        self.addresses: Addresses = np.zeros(capacity, np.uint64)
        """Address of each frame's first byte (Ethernet header)."""
        self.lengths: Words = np.zeros(capacity, np.uint32)
        """Bytes of each frame."""
        self.ports: Words = np.zeros(capacity, np.uint32)
        """Number of the port on which each frame arrived."""
        self.record: Table[BatchRecord] = table(np.zeros(1, BATCH))
        columns = self.addresses, self.lengths, self.ports
        self.record[:] = (*(address_of(column) for column in columns), capacity, 0)
        self.address = address_of(self.record.view(np.int64))
        """Address of `record`, whose count is `count` only while an operation runs."""

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

    def frames(self) -> tuple[Words, Addresses, Words]:
        """Return the ports, addresses and lengths of the frames."""
        return self.ports[: self.count], self.addresses[: self.count], self.lengths[: self.count]


def rows(ports: Words, addresses: Addresses, lengths: Words) -> Iterator[tuple[int, int, int]]:
    """Return port, address and length of each frame, as Python's integers."""
    return zip(ports.tolist(), addresses.tolist(), lengths.tolist(), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortInfo:
    """The description of one port."""

    number: int
    """0 to 511, without the reserved ones."""
    kind: str
    """`shm`, `packet`, `udp` or `memory`."""
    name: str
    """Name of the interface, address of the socket, or process that is connected."""


class PortTable:
    """The port numbers that are in use and the counters of all ports; all groups of a switch share it."""

    def __init__(
        self,
        reserved: Collection[int] = (CPU_PORT, DROP_PORT),
        queues: Queues | None = None,
        clock: Clock | None = None,
        status: Liveness | None = None,
    ) -> None:
        """Keep the numbers `reserved` free of ports."""
        self.status = status or Liveness(range(PORTS))
        """Which ports are up: those that are open, and whose link is not down."""
        self.clock = clock or Clock()
        """The switch's time."""
        self.queues = queues or Queues()
        """State of the queues in which frames wait for their port."""
        self._reserved = frozenset(reserved)
        self.counters: PortCounters = np.zeros((PORTS, len(PortCounter)), np.int64)
        """`[PORTS, len(PortCounter)]`; if a number is used again, its counters go on."""
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
        self.status.set(number, up=True)
        return number

    def give_back(self, number: int) -> None:
        """Free a number."""
        del self._ports[number]
        self.status.set(number, up=False)

    def ports(self) -> list[PortInfo]:
        """Return the ports that are up, by number."""
        return sorted(self._ports.values(), key=lambda port: port.number)


class PortGroup(ABC):
    """All ports of one kind."""

    def __init__(self, table: PortTable) -> None:
        self.table = table
        """Port numbers and counters, shared with the other groups."""
        self.owned = np.zeros(PORTS, np.bool_)
        """True for each port number that is a port of this group."""

    @abstractmethod
    def collect(self, batch: Batch) -> None:
        """Append frames that have arrived to `batch`, as many as fit; their memory is not used again before `done`."""

    def done(self) -> None:  # noqa: B027  (most groups have nothing to do here)
        """Give back the memory of the frames collected since the last call."""

    @abstractmethod
    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Send copies of frames to ports of this group, in order; drop and count those for which there is no room."""

    def enqueue(self, ports: Words, queues: Words, addresses: Addresses, lengths: Words) -> None:
        """Send frames as `transmit` does; a frame that has to wait does so in the queue that `queues` names."""
        self.transmit(ports, addresses, lengths)

    @abstractmethod
    def descriptors(self) -> list[int]:
        """Return the file descriptors that become readable when `collect` or `service` has something to do."""

    def prepare_sleep(self) -> bool:
        """Ask the peers to wake the switch from now on; return False if frames have arrived already."""
        return True

    def awake(self) -> None:  # noqa: B027
        """Undo `prepare_sleep`."""

    def service(self) -> None:  # noqa: B027
        """Open and close ports; called from time to time and after every sleep, between `done` and `collect`."""

    @abstractmethod
    def close(self) -> None:
        """Close every port of the group."""
