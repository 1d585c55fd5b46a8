"""A job over trees of switches: what each switch reserves for it, and the branches that each one gets.

Both steps are pure functions over what is known of all switches, so that a job that cannot be served is refused before
anything is written to any of them.

`reserve` takes slots and multicast groups, when the job is made.  Each switch numbers its own slots; those that it has
for a job's trees lie side by side, in the order of the trees.  `Forest.lay_out` gives every switch its members and the
switch above, when all workers have said hello.  A switch has 32 bits, one for each of its members: those are
workers that joined at it, and switches below.  So a bit is a place at one switch, and no rank; ranks beyond those of
the workers name the switches, one for each tree that a switch is not the root of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from switchsum.protocol.errors import NoCapacity, UsageError
from switchsum.protocol.frame import MAX_WORKERS, padding_bytes
from switchsum.protocol.wire import Address

from ..jobs.slots import SlotRange, first_fit
from .branch import Above, Branch, Place

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
class Site:
    """A switch, as far as a job over trees depends on it."""

    address: Address
    ports: Mapping[str, int]
    """The port that leads to each switch beside it."""
    lanes_per_frame: int
    """Of the program that it runs."""
    total_slots: int
    growth_bytes: int = 0xFFFF
    """Most bytes by which its frames may grow; 65535: no limit."""
    taken: tuple[SlotRange, ...] = ()
    """Slots of other jobs."""
    groups: frozenset[int] = frozenset()
    """Multicast groups of other jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A worker as its hello came: where, and from which address."""

    host: str
    switch: str
    port: int
    address: Address
    cookie: int
    record: bytes = b""
    """Metadata of its admission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """What one switch has for the trees of a job that pass it, by the tree's number."""

    slots: dict[int, SlotRange] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)


def reserve(
    trees: Sequence[AggregationTree], sites: Mapping[str, Site], *, first_group: int, last_group: int
) -> dict[str, Reserved]:
    """Find slots and groups on every switch of the trees.

    Raises UsageError for a switch that is not there, runs another program or has no port to the next one, and
    NoCapacity for one that has too few slots or groups left.
    """
    if not 1 <= len(trees) <= LAST_TREE + 1:
        raise UsageError(f"a job has 1 to {LAST_TREE + 1} trees, not {len(trees)}")
    passing: dict[str, list[int]] = {}
    for number, tree in enumerate(trees):
        for switch in switches_of(tree):
            passing.setdefault(switch, []).append(number)
    _check_sites(trees, list(passing), sites)
    found = {}
    for switch, numbers in passing.items():
        site, count = sites[switch], sum(trees[number].slots for number in numbers)
        slots = first_fit(site.taken, count, site.total_slots)
        if slots is None:
            free = site.total_slots - sum(taken.count for taken in site.taken)
            raise NoCapacity(f"switch {switch}: no {count} slots in a row are free ({free} are free in all; --slots)")
        groups = [group for group in range(first_group, last_group + 1) if group not in site.groups][: len(numbers)]
        if len(groups) < len(numbers):
            raise NoCapacity(f"switch {switch}: it has no {len(numbers)} multicast groups left")
        reserved, first = Reserved(groups=dict(zip(numbers, groups, strict=True))), slots.first
        for number in numbers:
            reserved.slots[number] = SlotRange(first=first, count=trees[number].slots)
            first += trees[number].slots
        found[switch] = reserved
    return found


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
    sites: Mapping[str, Site]

    def lay_out(
        self, seats: Sequence[Seat], *, epoch: int, draw_cookie: Callable[[], int], record: bytes = b""
    ) -> dict[str, list[Branch]]:
        """Return the part of each switch in each tree; `seats` are the workers by rank.

        In each tree a switch comes behind the one above it.  Raises UsageError for workers that the trees do not serve.
        """
        check_seats(self.trees, seats)
        return self.branches(seats, epoch=epoch, draw_cookie=draw_cookie, record=record)

    def branches(
        self, seats: Sequence[Seat], *, epoch: int, draw_cookie: Callable[[], int], record: bytes = b""
    ) -> dict[str, list[Branch]]:
        """Return the same for workers that are where their hellos came, whatever hosts the trees have.

        Raises UsageError where a bitmap is too short.
        """
        found: dict[str, list[Branch]] = {switch: [] for switch in self.reserved}
        next_rank = len(seats)
        for number, tree in enumerate(self.trees):
            order = switches_of(tree)
            names = {switch: (next_rank + place, draw_cookie()) for place, switch in enumerate(order[1:])}
            next_rank += len(names)
            if next_rank > LAST_RANK + 1:
                raise UsageError(
                    f"the workers and the switches of their trees need {next_rank} ranks, of {LAST_RANK + 1}"
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
                        places=self._places(tree, switch, seats, names, record),
                        above=self._above(number, switch, names) if switch in names else None,
                        record=record,
                    )
                )
        return found

    def _places(
        self,
        tree: AggregationTree,
        switch: str,
        seats: Sequence[Seat],
        names: Mapping[str, tuple[int, int]],
        record: bytes,
    ) -> tuple[Place, ...]:
        """Return the members of a switch, its workers before the switches below."""
        here = [(rank, seat) for rank, seat in enumerate(seats) if seat.switch == switch]
        below = [child for child in names if tree.parents[child] == switch]
        if len(here) + len(below) > MAX_WORKERS:
            raise UsageError(
                f"switch {switch} has {len(here)} workers and {len(below)} switches below: a slot's bitmap has "
                f"{MAX_WORKERS} bits"
            )
        places = [
            Place(rank=rank, bit=bit, address=one.address, port=one.port, cookie=one.cookie, record=one.record)
            for bit, (rank, one) in enumerate(here)
        ]
        ports = self.sites[switch].ports
        for bit, child in enumerate(below, len(places)):
            rank, cookie = names[child]
            address = self.sites[child].address
            places.append(
                Place(
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
        site = self.sites[parent]
        rank, cookie = names[switch]
        return Above(
            address=site.address,
            port=self.sites[switch].ports[parent],
            rank=rank,
            cookie=cookie,
            first_slot=self.reserved[parent].slots[number].first,
            padding=padding_bytes(site.lanes_per_frame, site.growth_bytes),
        )


def check_seats(trees: Sequence[AggregationTree], seats: Sequence[Seat]) -> None:
    """Raise UsageError unless every worker joined where all trees have its host, and no two have one address."""
    hosts_of: dict[int, str] = {}
    addresses = Counter((seat.address.ip, seat.address.port) for seat in seats)
    for rank, seat in enumerate(seats):
        other = hosts_of.setdefault(seat.address.ip, seat.host)
        if other != seat.host:
            raise UsageError(f"{other} and {seat.host} have the same address, {seat.address}")
        if addresses[seat.address.ip, seat.address.port] > 1:
            raise UsageError(f"rank {rank} on {seat.host} has an address that another rank has, {seat.address}")
        for number, tree in enumerate(trees):
            leaf = tree.parents.get(seat.host)
            if leaf is None:
                raise UsageError(f"rank {rank} runs on {seat.host}, which tree {number} of the job does not reach")
            if leaf != seat.switch:
                raise UsageError(
                    f"rank {rank} on {seat.host} said hello to switch {seat.switch}, and tree {number} has its host at "
                    f"{leaf}: the topology is not that of the network"
                )
    taken = {seat.host for seat in seats}
    for number, tree in enumerate(trees):
        idle = sorted(tree.parents.keys() - set(tree.parents.values()) - taken)
        if idle:
            raise UsageError(f"tree {number} has hosts on which no rank runs, {', '.join(idle)}: it waits for them")


def _check_sites(trees: Sequence[AggregationTree], passing: Sequence[str], sites: Mapping[str, Site]) -> None:
    """Raise UsageError unless all switches are there, run one program and know their ports to one another."""
    missing = [switch for switch in passing if switch not in sites]
    if missing:
        raise UsageError(
            f"the job's trees need switch {missing[0]}, which the controller is not connected with (--switch)"
        )
    lanes = {switch: sites[switch].lanes_per_frame for switch in passing}
    for switch, count in lanes.items():
        if count != lanes[passing[0]]:
            raise UsageError(
                f"switch {passing[0]} adds {lanes[passing[0]]} lanes a frame and switch {switch} {count}: "
                "a job's switches run the same program (--lanes)"
            )
    inner = set(passing)
    for tree in trees:
        for child, parent in tree.parents.items():
            for one, far in ((child, parent), (parent, child)):
                if child in inner and far not in sites[one].ports:
                    raise UsageError(f"no port of switch {one} is known to lead to {far}")
