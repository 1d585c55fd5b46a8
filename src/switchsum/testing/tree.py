"""A tree of switches in place of one: leaves and a root that follow `protocol.tree_rules`, on the virtual network."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random
from typing import Final

from switchsum.protocol.slot_rules import SWITCH_ADDRESS, Replies
from switchsum.protocol.tree_rules import TreeMember, TreeSwitch, Upstream
from switchsum.protocol.wire import Address
from switchsum.testing.cluster import ClusterConfig

ROOT_ADDRESS: Final = Address(mac=0x02_00_00_00_00_02, ip=0x0A_00_00_02, port=SWITCH_ADDRESS.port)
_UP: Final = 0
"""A leaf's port to the root; workers' ports are numbered from 1, on all leaves together."""
_FIRST_RANK: Final = 0x1000
"""Of leaves as members of the root: beyond all workers."""
_SLOTS_BETWEEN: Final = 11
"""The root numbers the job's slots otherwise than the leaves do, by so many."""


class Tree:
    """A root and leaves with equally many workers each, as a `Pipeline` for a `Cluster`.

    What passes between switches is under way for no time.  Of those frames a share is lost and a share comes twice.
    """

    def __init__(
        self, config: ClusterConfig, *, leaves: int, loss: float = 0.0, duplication: float = 0.0, seed: int = 0
    ) -> None:
        if config.workers % leaves:
            raise ValueError(f"{config.workers} workers cannot be shared out evenly among {leaves} leaves")
        self.root = TreeSwitch(lanes_per_frame=config.lanes_per_frame, address=ROOT_ADDRESS)
        self.leaves = [
            TreeSwitch(lanes_per_frame=config.lanes_per_frame, address=SWITCH_ADDRESS) for _ in range(leaves)
        ]
        self.passed_up = 0
        """Frames that leaves have sent to the root."""
        self._workers = config.workers // leaves
        self._loss, self._duplication, self._random = loss, duplication, Random(seed)
        for place, leaf in enumerate(self.leaves):
            self._connect(config, place, leaf)

    def process(self, port: int, frame: bytes) -> Replies:
        """Process a worker's frame, and whatever it makes the switches send to one another."""
        at = (port - 1) // self._workers
        replies: Replies = []
        under_way = deque([(self.leaves[at], at, port, frame)])
        while under_way:
            switch, place, came_at, taken = under_way.popleft()
            for out, sent in switch.process(came_at, taken):
                if switch is not self.root and out != _UP:
                    replies.append((out, sent))
                    continue
                self.passed_up += switch is not self.root
                for _ in range(self._copies()):
                    if switch is self.root:
                        under_way.append((self.leaves[out], out, _UP, sent))
                    else:
                        under_way.append((self.root, -1, place, sent))
        return replies

    def _copies(self) -> int:
        return int(self._random.random() >= self._loss) + int(self._random.random() < self._duplication)

    def _connect(self, config: ClusterConfig, place: int, leaf: TreeSwitch) -> None:
        """Write the entries of a leaf and of its workers."""
        first = place * self._workers
        for rank in range(first, first + self._workers):
            one = config.member(rank)
            leaf.admit(
                TreeMember(
                    job=one.job,
                    rank=rank,
                    epoch=one.epoch,
                    cookie=one.cookie,
                    address=one.address,
                    port=one.port,
                    workers=self._workers,
                    first_slot=one.first_slot,
                    slot_count=one.slot_count,
                    place=rank - first,
                )
            )
        upstream = Upstream(
            job=config.job,
            epoch=config.epoch,
            rank=_FIRST_RANK + place,
            cookie=config.cookie(_FIRST_RANK + place),
            address=ROOT_ADDRESS,
            port=_UP,
            members=self._workers,
            first_slot=config.first_slot,
            first_slot_above=config.first_slot + _SLOTS_BETWEEN,
            slot_count=config.window_slots,
        )
        leaf.attach(upstream)
        self.root.admit(
            TreeMember(
                job=config.job,
                rank=upstream.rank,
                epoch=config.epoch,
                cookie=upstream.cookie,
                address=replace(SWITCH_ADDRESS, mac=SWITCH_ADDRESS.mac + 0x100 + place),
                port=place,
                workers=len(self.leaves),
                first_slot=upstream.first_slot_above,
                slot_count=upstream.slot_count,
                place=place,
                is_switch=True,
            )
        )
