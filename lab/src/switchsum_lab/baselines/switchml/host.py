"""SwitchML's worker (NSDI 2021), written from its paper; program.p4 is its switch.  README.md lists what differs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from switchsum_controller.tables.entries import Entry, Group, Replica
from switchsum_lab.protocols.seam import HEADERS_BYTES, SWITCH, Array, HostLink, Steps, World
from switchsum_lab.protocols.timing import RoundTrips
from switchsum_lab.protocols.values import Blocks, address_in, rows
from switchsum_switch.wires.headers import Address, lower_headers

LANES: Final = 256
OTHER_LANES: Final = (32, 64)
"""Builds of the program beside that: what SwitchML sends, and public programs for BMv2."""
PORT: Final = 0xBEE0
SLOTS: Final = 512
"""Of each pool."""
WINDOW_VALUES: Final = 128 * 32
"""Values in flight: the paper's 128 slots of 32 values at 10 Gbit/s."""
LEAST_ROUNDS: Final = 2.0
"""Shortest time-out, in mean round trips: with shorter ones, repeats for slots that wait for a rank filled queues."""
CONTRIBUTION: Final = 0x00
RESULT: Final = 0x10
"""First byte of the header: the packet's type and four bits of nothing."""
HEADER: Final = struct.Struct("!BBIHBx")
"""Type, job, number of the block (tsi), pool index (version and slot), exponent."""
AT: Final = HEADERS_BYTES
LANES_AT: Final = AT + HEADER.size
RESULTS: Final = 1
"""The multicast group."""


def entries(world: World) -> Iterator[Entry | Group]:
    """Admit each worker with its bit, and address each copy of a result."""
    for rank in range(world.workers):
        address = world.address(rank)
        yield Entry(
            table="SwitchIngress.receiver",
            match={"ingress_port": world.port(rank), "source": address.ip, "udp_source": address.port},
            action="SwitchIngress.member",
            params={"worker": 1 << rank, "workers": world.workers},
        )
        yield Entry(
            table="SwitchEgress.sender",
            match={"instance": rank + 1},
            action="SwitchEgress.address",
            params={"mac": address.mac, "ip": address.ip, "port": address.port},
        )
    members = frozenset(Replica(port=world.port(rank), instance=rank + 1) for rank in range(world.workers))
    yield Group(group=RESULTS, replicas=members)


def peer(world: World, link: HostLink) -> Worker:
    """Return a worker."""
    return Worker(world, link)


@dataclass(slots=True)
class Pending:
    """A contribution whose result has not come."""

    block: int
    """In its array; negative: the packet has no values, only the exponent of the first block."""
    tsi: int
    sent_at: float
    was_repeated: bool = False


class Worker:
    """One worker: a packet of its own in each slot, which is sent again until its result comes."""

    def __init__(self, world: World, link: HostLink) -> None:
        self._world, self._link = world, link
        self._slots = min(world.slots, SLOTS)
        self._versions = [0] * self._slots
        self._scales = [0] * self._slots
        """Exponent with which the block in each slot was scaled."""
        self._rounds = RoundTrips(world.least_timeout_s, LEAST_ROUNDS, in_flight=world.slots)
        self._next_tsi = 0
        self._pending: dict[int, Pending] = {}
        """By slot, the longest unanswered one first."""
        length = LANES_AT + 4 * world.lanes
        self._rows, self._frames, self._addresses = rows(self._slots, length)
        destination = Address(mac=SWITCH.mac, ip=SWITCH.ip, port=PORT)
        head = lower_headers(world.address(link.host), destination, length - AT)
        for frame in self._frames:
            frame[:AT] = head
        self._counts = {"rounds": 0, "repeats": 0, "stale": 0}

    def allreduce(self, array: Array) -> Steps:
        """Sum an array: block i goes through slot i modulo the number of slots."""
        blocks = Blocks(array, lanes=self._world.lanes, workers=self._world.workers)
        first_tsi, self._next_tsi = self._next_tsi, self._next_tsi + blocks.count + self._slots
        for slot in range(min(self._slots, blocks.count)):
            # The first packet of a slot has only the exponent of its first block.
            self._contribute(blocks, slot, slot - self._slots, first_tsi, 0)
        while self._pending:
            frame = yield next(iter(self._pending.values())).sent_at + self._rounds.timeout_s
            if frame is None:
                self._repeat()
            elif (found := self._accept(frame)) is not None:
                slot, block, exponent, scale = found
                if block >= 0:
                    blocks.unpack(block, scale, address_in(frame, LANES_AT))
                if block + self._slots < blocks.count:
                    self._contribute(blocks, slot, block + self._slots, first_tsi, exponent)

    def barrier(self) -> Steps:
        """Wait for all workers: the sum of nothing."""
        return self.allreduce(np.zeros(0, np.float32))

    def unasked(self, frame: bytes) -> None:
        """Drop a result that was on its way twice."""
        self._counts["stale"] += 1

    def statistics(self) -> dict[str, int]:
        """Return what was counted."""
        return dict(self._counts)

    def _contribute(self, blocks: Blocks, slot: int, block: int, first_tsi: int, exponent: int) -> None:
        """Send a block through a slot, whose next block's exponent it brings along."""
        following = block + self._slots
        own = blocks.exponent(following) if following < blocks.count else 0
        tsi = (first_tsi + following) & 0xFFFF_FFFF
        pool = self._versions[slot] << 15 | slot
        HEADER.pack_into(self._frames[slot], AT, CONTRIBUTION, 0, tsi, pool, own)
        if block >= 0:
            blocks.pack(block, exponent, self._addresses[slot] + LANES_AT)
            self._scales[slot] = exponent
        self._link.send(self._frames[slot])
        self._pending[slot] = Pending(block, tsi, self._link.now())

    def _accept(self, frame: bytes) -> tuple[int, int, int, int] | None:
        """Return slot, block, the next block's exponent and the block's own of a result that is waited for."""
        if len(frame) != self._rows.shape[1] or frame[AT] != RESULT:
            return None
        _, _, tsi, pool, exponent = HEADER.unpack_from(frame, AT)
        slot = pool & 0x7FFF
        pending = self._pending.get(slot)
        if pending is None or pending.tsi != tsi or pool >> 15 != self._versions[slot]:
            self._counts["stale"] += 1
            return None
        del self._pending[slot]
        self._rounds.answered(self._link.now() - pending.sent_at, was_repeated=pending.was_repeated)
        self._versions[slot] ^= 1
        self._counts["rounds"] += 1
        return slot, pending.block, exponent, self._scales[slot]

    def _repeat(self) -> None:
        """Send what has waited for too long again."""
        now = self._link.now()
        late = [slot for slot, one in self._pending.items() if one.sent_at + self._rounds.timeout_s <= now]
        for slot in late:
            pending = self._pending.pop(slot)
            pending.sent_at, pending.was_repeated = now, True
            self._pending[slot] = pending
            self._link.send(self._frames[slot])
            self._counts["repeats"] += 1
        if late:
            self._rounds.late()
