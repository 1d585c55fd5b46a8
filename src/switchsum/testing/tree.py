"""A tree of switches in place of one, on the virtual network, laid out by the controller: `protocol.tree_rules`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from switchsum.testing.cluster import ClusterConfig
from switchsum_controller.jobs.slots import SlotRange
from switchsum_controller.trees.branch import Branch
from switchsum_controller.trees.forest import (
    AggregationSwitch,
    AggregationTree,
    AttachedWorker,
    Forest,
    Reserved,
    switches_of,
)
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, Replies
from switchsum_protocol.tree_rules import TreeMember, TreeSwitch, Upstream

_FIRST_PORT: Final = 0x1000
"""Ports to other switches are numbered from here, beyond those of workers."""
_SLOTS_BETWEEN: Final = 11
"""Switches that have no workers number the job's slots otherwise than the leaves do, by so many."""
_ROOT: Final = "root"


class Tree:
    """A root, perhaps inner switches, and leaves with equally many workers each, as a `Pipeline` for a `Cluster`.

    What passes between switches is under way for no time.  Of those frames a share is lost and a share comes twice.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        leaves: int,
        inner: int = 0,
        loss: float = 0.0,
        duplication: float = 0.0,
        seed: int = 0,
    ) -> None:
        if config.workers % leaves or (inner and leaves % inner):
            raise ValueError(f"{config.workers} workers, {leaves} leaves, {inner} inner switches: not evenly shared")
        self.passed_up = 0
        """Frames that leaves have sent to the switch above them."""
        self._workers = config.workers // leaves
        self._loss, self._duplication, self._random = loss, duplication, Random(seed)
        self._tree = _shape(config, leaves, inner)
        names = switches_of(self._tree)
        self._ports = {name: {far: _FIRST_PORT + at for at, far in enumerate(names)} for name in names}
        self.switches = self._lay_out(config, names)
        """Switches by name: root, inner0 and so on, leaf0 and so on."""
        self.root = self.switches[_ROOT]
        self.leaves = [self.switches[f"leaf{at}"] for at in range(leaves)]

    def process(self, port: int, frame: bytes) -> Replies:
        """Process a worker's frame, and whatever it makes the switches send to one another."""
        far = list(self._ports)
        replies: Replies = []
        under_way = deque([(f"leaf{(port - 1) // self._workers}", port, frame)])
        while under_way:
            name, came_at, taken = under_way.popleft()
            for out, sent in self.switches[name].process(came_at, taken):
                if out < _FIRST_PORT:
                    replies.append((out, sent))
                    continue
                to = far[out - _FIRST_PORT]
                self.passed_up += name.startswith("leaf")
                under_way += [(to, self._ports[to][name], sent)] * self._copies()
        return replies

    def _copies(self) -> int:
        return int(self._random.random() >= self._loss) + int(self._random.random() < self._duplication)

    def _lay_out(self, config: ClusterConfig, names: list[str]) -> dict[str, TreeSwitch]:
        """Return the switches with their entries; workers know all leaves by one address."""
        lanes = config.lanes_per_frame
        described = {
            name: AggregationSwitch(
                address=SWITCH_ADDRESS,
                ports=self._ports[name],
                lanes_per_frame=lanes,
            )
            for name in names
        }
        members = [config.member(rank) for rank in range(config.workers)]
        workers = [
            AttachedWorker(
                switch=self._tree.parents[f"worker{one.rank}"],
                port=one.port,
                address=one.address,
                cookie=one.cookie,
            )
            for one in members
        ]
        first = {name: config.first_slot + (0 if name.startswith("leaf") else _SLOTS_BETWEEN) for name in names}
        reserved = reserve([self._tree], first, dict.fromkeys(names, 2))
        forest = Forest(job=config.job, trees=[self._tree], reserved=reserved, switches=described)
        laid_out = forest.branches(workers, epoch=config.epoch, draw_cookie=lambda: self._random.getrandbits(64))
        switches = {name: TreeSwitch(lanes_per_frame=lanes, address=SWITCH_ADDRESS) for name in names}
        for name, branches in laid_out.items():
            for branch in branches:
                carry_out(switches[name], branch)
        return switches


def reserve(
    trees: Sequence[AggregationTree], first_slots: Mapping[str, int], first_groups: Mapping[str, int]
) -> dict[str, Reserved]:
    """Give each switch its slots of the trees that pass it, side by side, and a multicast group for each of them."""
    found: dict[str, Reserved] = {}
    for number, tree in enumerate(trees):
        for switch in switches_of(tree):
            one = found.setdefault(switch, Reserved())
            first = first_slots[switch] + sum(slots.count for slots in one.slots.values())
            one.groups[number] = first_groups[switch] + len(one.groups)
            one.slots[number] = SlotRange(first=first, count=tree.slots)
    return found


def carry_out(switch: TreeSwitch, branch: Branch) -> None:
    """Give a switch its part in a tree."""
    common: dict[str, Any] = {"job": branch.job, "tree": branch.tree, "epoch": branch.epoch}
    common |= {"first_slot": branch.slots.first, "slot_count": branch.slots.count}
    for place in branch.places:
        switch.admit(
            TreeMember(
                rank=place.rank,
                cookie=place.cookie,
                address=place.address,
                port=place.port,
                workers=len(branch.places),
                place=place.bit,
                is_switch=place.is_switch,
                **common,
            )
        )
    if branch.above is not None:
        switch.attach(
            Upstream(
                rank=branch.above.rank,
                cookie=branch.above.cookie,
                address=branch.above.address,
                port=branch.above.port,
                members=len(branch.places),
                first_slot_above=branch.above.first_slot,
                padding=branch.above.padding,
                **common,
            )
        )


def _shape(config: ClusterConfig, leaves: int, inner: int) -> AggregationTree:
    workers = config.workers // leaves
    parents = {f"worker{rank}": f"leaf{rank // workers}" for rank in range(config.workers)}
    for leaf in range(leaves):
        parents[f"leaf{leaf}"] = f"inner{leaf * inner // leaves}" if inner else _ROOT
    parents |= {f"inner{at}": _ROOT for at in range(inner)}
    levels = 3 if inner else 2
    return AggregationTree(root=_ROOT, rate_mbit=1.0, slots=config.window_slots, levels=levels, parents=parents)
