"""The hosts of the least protocol: a worker sends a block, and sends it again until the sum comes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from switchsum_controller.tables.entries import Entry, Group, Replica
from switchsum_lab.protocols.seam import SWITCH, Array, HostLink, Steps, World

LANES: Final = 32
HEADER: Final = struct.Struct("!6s6sHBBI")
ETHERTYPE: Final = 0x88B5
TIMEOUT_S: Final = 0.01


def entries(world: World) -> Iterator[Entry | Group]:
    """Return what the switch gets: table entries, and here only a group of all workers' ports."""
    ports = frozenset(Replica(port=world.port(rank), instance=rank) for rank in range(world.workers))
    yield Group(group=1, replicas=ports)


def peer(world: World, link: HostLink) -> Worker:
    """Return the host of a worker."""
    return Worker(world, link)


class Worker:
    """One worker."""

    def __init__(self, world: World, link: HostLink) -> None:
        self.world, self.link = world, link
        self.round = self.repeats = 0

    def allreduce(self, array: Array) -> Steps:
        """Sum an array, a block after the other, as fixed point numbers."""
        for start in range(0, max(1, len(array)), LANES):
            block = array[start : start + LANES]
            lanes = np.zeros(LANES, ">i4")
            lanes[: len(block)] = np.rint(block * 65536)
            self.round += 1
            own, switch = self.world.address(self.link.host), SWITCH
            head = switch.mac.to_bytes(6), own.mac.to_bytes(6), ETHERTYPE
            frame = HEADER.pack(*head, self.link.host, self.world.workers, self.round) + lanes.tobytes()
            self.link.send(frame)
            while True:
                answer = yield self.link.now() + TIMEOUT_S
                if answer is None:
                    self.repeats += 1
                    self.link.send(frame)
                elif len(answer) == len(frame) and HEADER.unpack_from(answer)[5] == self.round:
                    break
            block[:] = np.frombuffer(answer, ">i4", offset=HEADER.size)[: len(block)] / 65536

    def barrier(self) -> Steps:
        """Wait for all workers."""
        return self.allreduce(np.zeros(0, np.float32))

    def unasked(self, frame: bytes) -> None:
        """Drop a sum that was on its way twice."""

    def statistics(self) -> dict[str, int]:
        """Return what it has counted."""
        return {"repeats": self.repeats}
