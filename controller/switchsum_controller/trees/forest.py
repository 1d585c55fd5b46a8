"""A job over trees of switches: the branches that each switch gets.

This is a pure function of what is known of all switches.  So a job that cannot be served is refused before anything is
written to a switch.

`Forest.branches` gives every switch its members and the switch above, when all workers have said hello.  Each switch
may number its slots differently.  Its slots for a job's trees lie side by side, in the order of the trees.  A switch
has 32 bits, one for each of its members: workers that joined there, and switches below.  So a bit is a place at one
switch, and not a rank.  Ranks beyond those of the workers name switches: each switch has one for each tree in which it
is not the root.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MAX_WORKERS, padding_bytes
from switchsum_switch.wires.headers import Address

from ..jobs.slots import SlotRange
from .branch import Above, Branch, BranchMember

LAST_RANK: Final = 0xFFFE
"""65535 is the rank of a job's record."""
LAST_TREE: Final = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationTree:
    """One tree of a job, whose switches add."""

    root: str
    rate_mbit: float
    slots: int
    """Slots of the job that belong to this tree."""
    levels: int
    """Levels of switches."""
    parents: dict[str, str]
    """The parent of every host and switch but the root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationSwitch:
    """A switch of a tree, as far as a job depends on it."""

    address: Address
    ports: Mapping[str, int]
    """The port that leads to each switch beside it."""
    lanes_per_frame: int
    """Lanes in a frame of the program that it runs."""
    growth_bytes: int = 0xFFFF
    """Most bytes by which its frames may grow; 65535: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedWorker:
    """A worker as its hello came: where, and from which address."""

    switch: str
    port: int
    address: Address
    cookie: int
    record: bytes = b""
    """Metadata of its admission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """The slots and groups of one switch for the trees of a job that pass it, by the tree's number."""

    slots: dict[int, SlotRange] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)


def switches_of(tree: AggregationTree) -> list[str]:
    """Return the switches of a tree, each behind the one above it."""
    order = [tree.root]
    parents = set(tree.parents.values())
    for switch in order:
        order += sorted(child for child, parent in tree.parents.items() if parent == switch and child in parents)
    return order


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """The trees of one job, where their slots are, and the switches that add."""

    job: int
    trees: Sequence[AggregationTree]
    reserved: Mapping[str, Reserved]
    switches: Mapping[str, AggregationSwitch]

    def branches(
        self, workers: Sequence[AttachedWorker], *, epoch: int, draw_cookie: Callable[[], int], record: bytes = b""
    ) -> dict[str, list[Branch]]:
        """Return the part of each switch in each tree; `workers` are the workers by rank, where their hellos came.

        In each tree a switch comes behind the one above it.  Raises UsageError where a bitmap is too short.
        """
        found: dict[str, list[Branch]] = {switch: [] for switch in self.reserved}
        next_rank = len(workers)
        for number, tree in enumerate(self.trees):
            order = switches_of(tree)
            names = {switch: (next_rank + place, draw_cookie()) for place, switch in enumerate(order[1:])}
            next_rank += len(names)
            if next_rank > LAST_RANK + 1:
                raise UsageError(
                    f"the workers and the switches of their trees need {next_rank} ranks, but there are only "
                    f"{LAST_RANK + 1}"
                )
            for switch in order:
                reserved = self.reserved[switch]
                found[switch].append(
                    Branch(
                        job=self.job,
                        tree=number,
                        epoch=epoch,
                        slots=reserved.slots[number],
                        group=reserved.groups[number],
                        places=self._places(tree, switch, workers, names, record),
                        above=self._above(number, switch, names) if switch in names else None,
                        record=record,
                    )
                )
        return found

    def _places(
        self,
        tree: AggregationTree,
        switch: str,
        workers: Sequence[AttachedWorker],
        names: Mapping[str, tuple[int, int]],
        record: bytes,
    ) -> tuple[BranchMember, ...]:
        """Return the members of a switch, its workers before the switches below."""
        here = [(rank, worker) for rank, worker in enumerate(workers) if worker.switch == switch]
        below = [child for child in names if tree.parents[child] == switch]
        if len(here) + len(below) > MAX_WORKERS:
            raise UsageError(
                f"switch {switch} has {len(here)} workers and {len(below)} switches below, but a bitmap has only "
                f"{MAX_WORKERS} bits: give the job fewer ranks there, or another switch"
            )
        places = [
            BranchMember(rank=rank, bit=bit, address=one.address, port=one.port, cookie=one.cookie, record=one.record)
            for bit, (rank, one) in enumerate(here)
        ]
        ports = self.switches[switch].ports
        for bit, child in enumerate(below, len(places)):
            rank, cookie = names[child]
            address = self.switches[child].address
            places.append(
                BranchMember(
                    rank=rank,
                    bit=bit,
                    address=address,
                    port=ports[child],
                    cookie=cookie,
                    is_switch=True,
                    record=record,
                )
            )
        return tuple(places)

    def _above(self, number: int, switch: str, names: Mapping[str, tuple[int, int]]) -> Above:
        parent = self.trees[number].parents[switch]
        above = self.switches[parent]
        rank, cookie = names[switch]
        return Above(
            address=above.address,
            port=self.switches[switch].ports[parent],
            rank=rank,
            cookie=cookie,
            first_slot=self.reserved[parent].slots[number].first,
            padding=padding_bytes(above.lanes_per_frame, above.growth_bytes),
        )
