"""A switch whose jobs share slots, and their fallback, on the virtual network: `protocol.shared_rules`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from switchsum.testing.clock import VirtualClock
from switchsum.testing.cluster import ClusterConfig
from switchsum_protocol.shared_rules import Fallback, SharedMember, SharedSwitch
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, Replies
from switchsum_protocol.tree_rules import TreeMember
from switchsum_switch.wires.headers import Address

_FALLBACK_ADDRESS: Final = Address(mac=0x02_00_00_00_00_02, ip=0x0A_00_00_02, port=21333)
_FIRST_THERE: Final = 100
_THERE: Final = 0x1000
"""Port of each of the two switches that leads to the other."""
_PORTS: Final = 64
"""Ports of each job."""


class Sharing:
    """Two switches.  What passes between them is under way for no time; a share is lost and a share comes twice."""

    def __init__(
        self, clock: VirtualClock, *, lanes_per_frame: int, loss: float = 0.0, duplication: float = 0.0, seed: int = 0
    ) -> None:
        self.here = SharedSwitch(lanes_per_frame=lanes_per_frame, address=SWITCH_ADDRESS)
        self.there = SharedSwitch(lanes_per_frame=lanes_per_frame, address=_FALLBACK_ADDRESS)
        self.is_there = True
        """Whether the fallback answers."""
        self._clock = clock
        self._loss, self._duplication, self._random = loss, duplication, Random(seed)
        self._jobs = 0
        self._next_slot = _FIRST_THERE

    def join(self, config: ClusterConfig) -> JobSide:
        """Write the entries of a job; return what its workers are connected to."""
        first_port, first_there, relay = self._jobs * _PORTS, self._next_slot, config.workers
        self._jobs += 1
        count = config.window_slots - config.own_slots
        self._next_slot += count
        cookie, tree = 0x5EED_0000 + config.job, int(config.own_slots > 0)
        self._admit_to_own(config, first_port)
        for rank in range(config.workers):
            for switch, address, port, first in (
                (self.here, config.address(rank), first_port + rank + 1, config.first_slot),
                (self.there, SWITCH_ADDRESS, _THERE, first_there),
            ):
                switch.admit(
                    SharedMember(
                        job=config.job,
                        tree=tree,
                        rank=rank,
                        epoch=config.epoch,
                        cookie=config.cookie(rank),
                        address=address,
                        port=port,
                        workers=config.workers,
                        first_slot=first,
                        slot_count=count,
                        place=rank,
                        is_at_fallback=switch is self.there,
                    )
                )
        self.there.admit(
            TreeMember(
                job=config.job,
                tree=tree,
                rank=relay,
                epoch=config.epoch,
                cookie=cookie,
                address=SWITCH_ADDRESS,
                port=_THERE,
                workers=config.workers,
                first_slot=first_there,
                slot_count=count,
                place=0,
                is_switch=True,
            )
        )
        self.here.share(
            Fallback(
                job=config.job,
                tree=tree,
                epoch=config.epoch,
                rank=relay,
                cookie=cookie,
                address=_FALLBACK_ADDRESS,
                port=_THERE,
                first_slot=config.first_slot,
                first_slot_there=first_there,
                slot_count=count,
            )
        )
        return JobSide(self, first_port)

    def _admit_to_own(self, config: ClusterConfig, first_port: int) -> None:
        """Admit workers to the slots that the job does not share, which are its first tree if there are any."""
        for rank in range(config.workers if config.own_slots else 0):
            member = replace(config.member(rank), port=first_port + rank + 1)
            self.here.admit(replace(member, first_slot=config.own_first_slot, slot_count=config.own_slots))

    def steal(self) -> None:
        """Let some slot be taken for an orphan, whose owner goes on."""
        if owners := list(self.here.owners.values()):
            self._random.choice(owners).is_over = True

    def process(self, port: int, frame: bytes) -> Replies:
        """Process a worker's frame, and whatever it makes the switches send to one another."""
        self.here.now_us = self.there.now_us = int(self._clock.now_s * 1e6)
        replies: Replies = []
        under_way = deque([(self.here, port, frame)])
        while under_way:
            switch, came_at, taken = under_way.popleft()
            for out, sent in switch.process(came_at, taken):
                if out != _THERE:
                    replies.append((out, sent))
                elif self.is_there:
                    far = self.there if switch is self.here else self.here
                    under_way += [(far, _THERE, sent)] * self._copies()
        return replies

    def _copies(self) -> int:
        return int(self._random.random() >= self._loss) + int(self._random.random() < self._duplication)


@dataclass(frozen=True, slots=True)
class JobSide:
    """What one job's workers see of it: ports from 1 on, as on a switch of their own."""

    sharing: Sharing
    first_port: int

    def process(self, port: int, frame: bytes) -> Replies:
        """Process a frame of a worker of this job."""
        replies = self.sharing.process(self.first_port + port, frame)
        return [(out - self.first_port, sent) for out, sent in replies]
