"""The compiled operations of a kind of ports: the loop calls them by their addresses, as a worker's loop does a link's.

The loop knows a group of ports by the address of its record alone, whatever its kind.  So the loop is compiled once,
and each kind once, for the loop and for Python.  Each operation takes the address of the group's record and returns a
number:

    collect      appends frames that have arrived to a batch; returns how many the batch has now
    release      (no result) gives the memory of the collected frames back
    transmit     sends the frames of an output; returns how many it leaves, whose places it writes to `held`

Ports in memory can be looked at without a system call, and have three more:

    look         looks for frames for a while, with a patience; returns 1 if some have arrived
    fall_asleep  asks to be woken; returns 0 if frames have arrived meanwhile
    awake        (no result) asks no longer
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import longs_at, words_at
from switchsum_switch.kernels.outlined import Outlined, prepare
from switchsum_switch.kernels.records import Int64, Record, Table, dtype_of, table

from ..queues.batch import OUTPUT, OutputRecord
from ..queues.queues import PORTS
from .base import BATCH, Addresses, Batch, BatchRecord, PortCounter, PortCounters, PortGroup, Words

Indices = npt.NDArray[np.int32]
_COUNTERS: Final = len(PortCounter)


class GroupRecord(Record):
    """What the loop knows of a group of ports."""

    # The operations' addresses; 0 where the kind has none.
    collect: Int64
    release: Int64
    transmit: Int64
    look: Int64
    fall_asleep: Int64
    awake: Int64
    owned: Int64
    """Address of `PortGroup.owned`."""
    counters: Int64
    """Address of the counters of all ports."""
    is_wire: Int64
    """See `Kind`."""
    takes_bodies: Int64
    own: Int64
    """Address of what only the group's own operations know."""


GROUP: Final = dtype_of(GroupRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The operations of a kind of ports, and what the loop has to know of it."""

    collect: Outlined
    transmit: Outlined
    release: Outlined | None = None
    look: Outlined | None = None
    fall_asleep: Outlined | None = None
    awake: Outlined | None = None
    is_wire: bool = False
    """Frames come over a wire, one at a time: how fast they come decides about naps (`pace.py`)."""
    takes_bodies: bool = False
    """Frames are sent as a head and a body that many of them share; other kinds need whole frames."""

    def operations(self) -> Iterator[tuple[str, Outlined]]:
        """Yield the operations that the kind has, by name."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Outlined):
                yield field.name, value


class Operations:
    """The operations of one group, for the loop by `address`, and for Python."""

    def __init__(self, kind: Kind, group: PortGroup, own: npt.NDArray[np.int64]) -> None:
        """Compile what is not compiled yet; `own` is what the operations know of the group, and is kept."""
        operations = dict(kind.operations())
        prepare(operations.values())
        self.kind = kind
        self._keep = own, group.owned, group.table.counters
        self._record: Table[GroupRecord] = table(np.zeros(1, GROUP))
        for name, operation in operations.items():
            self._record[name] = operation.address
        self._record["owned"], self._record["counters"] = address_of(group.owned), address_of(group.table.counters)
        self._record["is_wire"], self._record["takes_bodies"] = kind.is_wire, kind.takes_bodies
        self._record["own"] = address_of(own)
        self.address = address_of(self._record.view(np.int64))
        """Address of the group's record."""

    def collect(self, batch: Batch) -> None:
        """Append frames that have arrived to a batch."""
        batch.record["count"] = batch.count
        batch.count = self.kind.collect(self.address, batch.address)

    def release(self) -> None:
        """Give the memory of the collected frames back."""
        assert self.kind.release is not None
        self.kind.release(self.address)

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> Indices:
        """Send whole frames; return the places of those that are left."""
        columns = (
            np.ascontiguousarray(ports, np.uint32),
            np.ascontiguousarray(addresses, np.uint64),
            np.ascontiguousarray(lengths, np.uint32),
            np.zeros(len(ports), np.uint32),
            np.zeros(len(ports), np.uint64),
            np.empty(len(ports), np.int32),
        )
        record = np.zeros(1, OUTPUT)
        record[0] = (*(address_of(column) for column in columns), len(ports))
        left = self.kind.transmit(self.address, address_of(record.view(np.int64)))
        return columns[-1][:left]


class BatchColumns(NamedTuple):
    """The columns of a `Batch`."""

    addresses: Addresses
    lengths: Words
    ports: Words


class OutputColumns(NamedTuple):
    """The columns of an `Output`, as far as they are in use."""

    ports: Words
    addresses: Addresses
    lengths: Words
    heads: Words
    bodies: Addresses
    held: Indices


@inner
def batch_at(batch: int) -> BatchColumns:
    """Return the columns of the batch whose record is at an address."""
    here: BatchRecord = carray(pointer(batch), (1,), BATCH)[0]
    rows = here.capacity
    return BatchColumns(longs_at(here.addresses, rows), words_at(here.lengths, rows), words_at(here.ports, rows))


@inner
def output_at(output: int) -> OutputColumns:
    """Return the columns of the output whose record is at an address."""
    here: OutputRecord = carray(pointer(output), (1,), OUTPUT)[0]
    count = here.count
    return OutputColumns(
        words_at(here.ports, count),
        longs_at(here.addresses, count),
        words_at(here.lengths, count),
        words_at(here.heads, count),
        longs_at(here.bodies, count),
        carray(pointer(here.held), (count,), np.int32),
    )


@inner
def counters_at(address: int) -> PortCounters:
    """View the counters of all ports."""
    return carray(pointer(address), (PORTS, _COUNTERS), np.int64)  # type: ignore[no-any-return]
