"""The switches of one controller, and the tree over which they add: which switch has which part of a job.

A controller of one switch has a fabric of one.  In a fabric of several each switch but the root names the one above it.
A job uses the switches where its members are, and those above them up to where all meet: that one is the job's root.
All switches reserve a job's slots and its multicast group under the same numbers.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MAX_WORKERS, MOST_WORKERS, padding_bytes
from switchsum_switch.wires.headers import Address

from ..jobs.job import Job
from ..jobs.machines import Incarnation
from ..jobs.registry import FIRST_GROUP, LAST_GROUP
from ..jobs.slots import SlotRange
from .branch import Above, Branch, BranchMember
from .forest import AggregationSwitch, AggregationTree, AttachedWorker, Forest, Reserved, switches_of

ONLY: Final = ""
"""Name of the switch of a controller that has one."""
MOST_TREES: Final = 8
"""Over which a job is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSwitch:
    """One switch, as the controller and the switches beside it find it."""

    p4runtime: str
    """Address of its P4Runtime server, host:port or unix:path."""
    address: Address | None = None
    """Address of its frames to other switches. None: the address that all switches have for workers."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports towards the other switches that it can reach, also if no tree uses them."""
    stations: Mapping[int, int] = field(default_factory=dict)
    """Ports of the Ethernet addresses that are known from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Switches by name, the root first, and the switch above each of the others."""

    switches: Mapping[str, FabricSwitch]
    parents: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Mapping[str, str]] = ()
    """The same of further trees, over which a job is added at the same time."""
    shares: Sequence[float] = (1.0,)
    """Shares of a job's slots, by tree."""
    link_bytes: int = 0
    """Bytes that may wait at a switch for all that come from other switches, as the kernel counts; 0: enough."""
    lanes_per_frame: int = 0
    """Lanes in a frame of the program that all switches run."""
    fallback: str = ""
    """The switch that adds what finds shared slots taken; empty: there is none, and no job shares slots."""
    shared_slots: int = 0
    """The first so many slots of all other switches are shared."""
    is_discovered: bool = False
    """The tree follows from the links that were found, and the controller goes on to look for them."""
    spreads_jobs: bool = False
    """A job that begins beside others gets a tree of its own, whose links and root the others use least."""

    @property
    def home(self) -> str:
        """The switch that keeps what is to be known of all jobs: the root."""
        return next(iter(self.switches))

    @property
    def _all_parents(self) -> Sequence[Mapping[str, str]]:
        return (self.parents, *self.others)

    @property
    def most_workers(self) -> int:
        """Most workers of a job: what the bitmaps of all switches have room for, beside the switches below."""
        adding = len(self.switches) - bool(self.fallback)
        return min(MOST_WORKERS, MAX_WORKERS * adding - max(map(len, self._all_parents)))

    @property
    def frames_per_slot(self) -> float:
        """How many frames other switches may have on their way to one switch at most, for each slot of a job.

        For a slot of a tree that is one from each switch below, or one from the switch above.
        """
        loads = dict.fromkeys(self.switches, 0.0)
        for parents, share in zip(self._all_parents, self.shares, strict=True):
            below = Counter(parents.values())
            for name in self.switches:
                loads[name] += share / sum(self.shares) * max(below[name], name in parents)
        return max(loads.values())

    def parents_for(self, live: Incarnation) -> Sequence[Mapping[str, str]]:
        """Return the switches above others in each tree: those that an incarnation has, else the fabric's."""
        return live.above if len(live.above) == len(self.shares) else self._all_parents

    def links(self) -> dict[str, dict[str, int]]:
        """Return the port of each switch towards each other one, where both know theirs."""
        return {
            name: {
                far: port
                for far, port in one.ports.items()
                if far in self.switches and name in self.switches[far].ports
            }
            for name, one in self.switches.items()
        }

    def used_links(self) -> set[frozenset[str]]:
        """Return the ends of each link of the fabric's own trees."""
        return {frozenset(pair) for parents in self._all_parents for pair in parents.items()}

    def trees_of(self, job: Job, live: Incarnation) -> list[AggregationTree]:
        """Return the trees of a job whose members were seen; raises UsageError for a switch that is not there."""
        all_parents = self.parents_for(live)
        for name in dict.fromkeys(member.switch for member in live.members):
            if name not in self.switches:
                raise UsageError(f"members are at switch {name!r}, which is not in the controller's --fleet file")
        if unknown := [name for one in all_parents for name in one.values() if name not in self.switches]:
            raise UsageError(
                f"job {job.name} needs switch {unknown[0]!r}, which is not in the controller's --fleet file"
            )
        slots = shared(job.slots.count, self.shares)
        return [_tree(parents, live, count) for parents, count in zip(all_parents, slots, strict=True) if count]

    def pairs_of(self, job: Job, live: Incarnation, link: int = 0) -> list[list[str]]:
        """Return each switch of a job that is below another one, that one, and beyond the first tree its number.

        Trees of a rail come behind those of the rails before it.
        """
        return [
            [name, tree.parents[name], *([str(number)] if number else [])]
            for number, tree in enumerate(self.trees_of(job, live), link * len(self.shares))
            for name in self.switches
            if name in tree.parents
        ]

    def places_at(self, job: Job, live: Incarnation, switch: str) -> list[int]:
        """Return the rank at each place of a switch's bitmaps, -1 for a switch below; nothing if all are ranks."""
        trees = self.trees_of(job, live)
        if all(len(switches_of(tree)) == 1 for tree in trees):
            return []
        here = [member.rank for member in live.members if member.switch == switch]
        below = [
            sum(above == switch and child in self.switches for child, above in tree.parents.items()) for tree in trees
        ]
        return here + [-1] * max(below)

    def slots_of_trees(self, job: Job, live: Incarnation) -> list[int]:
        """Return how many slots belong to each tree of a job; nothing if it has one.

        If a job has some of its own beside those that it shares, they are like two trees over the same switch.
        """
        if job.own_part is not None:
            return [job.own_part.count, self.slots_here(job.number, job.slots).count]
        trees = self.trees_of(job, live)
        return [tree.slots for tree in trees] if len(trees) > 1 else []

    def branches(
        self,
        job: Job,
        live: Incarnation,
        workers: Sequence[AttachedWorker],
        *,
        link: int = 0,
        own: Address,
        growth_bytes: int,
        record: bytes,
    ) -> dict[str, list[Branch]]:
        """Return each switch's part in each tree of a job; raises UsageError where a bitmap is too short.

        `workers` are the members by rank, on their `link` of this number.  `own` is the address that all switches have
        for workers.
        """
        trees = self.trees_of(job, live)
        if (link + 1) * len(trees) > MOST_TREES:
            raise UsageError(
                f"{live.members[0].link_count} links of a worker times {len(trees)} trees of a job are more than "
                f"{MOST_TREES}: use fewer links, or fewer trees"
            )
        ends = list(itertools.accumulate((tree.slots for tree in trees), initial=job.slots.first))
        ranges = [SlotRange(first=first, count=tree.slots) for first, tree in zip(ends, trees, strict=False)]
        reserved: dict[str, Reserved] = {}
        for number, tree in enumerate(trees):
            for name in switches_of(tree):
                one = reserved.setdefault(name, Reserved())
                one.slots[number], one.groups[number] = ranges[number], group_of(job.group, link * len(trees) + number)
        switches = {
            name: AggregationSwitch(
                address=self.switches[name].address or own,
                ports=self.switches[name].ports,
                lanes_per_frame=self.lanes_per_frame,
                growth_bytes=growth_bytes,
            )
            for name in reserved
        }
        number = [job.number, *job.link_numbers][link]
        forest = Forest(job=number, trees=trees, reserved=reserved, switches=switches)
        cookies = _cookies(live)
        found = forest.branches(workers, epoch=live.epoch, draw_cookie=cookies.__next__, record=record)
        if not job.shares_slots:
            return found
        if link or len(trees) > 1 or len(found) > 1:
            raise UsageError(
                f"job {job.name} shares slots, so that its workers have one link each, all to one switch, which is in "
                "one tree: give it slots of its own (--slots auto), or let the other switches only forward"
            )
        [(name, [branch])] = found.items()
        if job.own_part is None:
            return self._with_fallback(name, branch, job.slots, own, growth_bytes, next(cookies))
        shared = self._with_fallback(name, replace(branch, tree=1), job.slots, own, growth_bytes, next(cookies))
        return {**shared, name: [replace(branch, slots=job.own_part), *shared[name]]}

    def _with_fallback(
        self, name: str, branch: Branch, slots: SlotRange, own: Address, growth_bytes: int, cookie: int
    ) -> dict[str, list[Branch]]:
        """Return the parts of the switch of a job that shares slots, and of its fallback; raises UsageError.

        `slots` are those that the job has at the fallback, `cookie` is the switch's as a member of the fallback.
        """
        here, there = self.switches[name], self.switches.get(self.fallback)
        if there is None or name not in there.ports or self.fallback not in here.ports:
            raise UsageError(f"switch {name} does not reach an aggregator, which jobs that share slots need")
        rank = len(branch.places)
        if rank > MAX_WORKERS:
            raise UsageError(f"a job that shares slots has 1 to {MAX_WORKERS} workers, not {rank}")
        above = Above(
            address=there.address or own,
            port=here.ports[self.fallback],
            rank=rank,
            cookie=cookie,
            first_slot=slots.first,
            padding=padding_bytes(self.lanes_per_frame, growth_bytes),
        )
        passing = BranchMember(
            rank=rank,
            bit=0,
            address=here.address or own,
            port=there.ports[name],
            cookie=cookie,
            is_switch=True,
            record=branch.record,
        )
        behind = [replace(one, address=passing.address, port=passing.port) for one in branch.places]
        return {
            name: [replace(branch, fallback=above, slots=self.slots_here(branch.job, slots))],
            self.fallback: [replace(branch, places=(*behind, passing), slots=slots, is_fallback=True)],
        }

    def slots_here(self, number: int, slots: SlotRange) -> SlotRange:
        """Return which of the shared slots a job of a number uses, given those that it has at the fallback.

        Jobs that use a part of them have parts apart from one another, as long as there are so many parts.
        """
        count = min(slots.count, self.shared_slots)
        parts, spare = self.shared_slots // count, self.shared_slots - count
        first = number % parts * spare // (parts - 1) if parts > 1 else number * count % (spare + 1)
        return SlotRange(first=first, count=count)


def shared(slots: int, shares: Sequence[float]) -> list[int]:
    """Share slots in proportion, at least one for each tree, the first ones where there are too few."""
    exact = [slots * share / sum(shares) for share in shares]
    counts = [max(1, int(one)) for one in exact]
    while sum(counts) > slots:
        counts[max(range(len(counts)), key=lambda at: (counts[at], at))] -= 1
    while sum(counts) < slots:
        counts[max(range(len(counts)), key=lambda at: exact[at] - counts[at])] += 1
    return counts


def pruned(parents: Mapping[str, str], live: Incarnation) -> dict[str, str]:
    """Return what a job needs of a tree: the ways from its members' switches to the first one that all have."""
    return {name: parents[name] for way in ways_up(parents, live) for name in way[:-1]}


def group_of(group: int, tree: int) -> int:
    """Return the multicast group of a job's tree, given that of its first one: the last groups, which no job has."""
    return group if tree == 0 else LAST_GROUP - (group - FIRST_GROUP) * (MOST_TREES - 1) - (tree - 1)


def _tree(parents: Mapping[str, str], live: Incarnation, slots: int) -> AggregationTree:
    """Return one tree of a job, with its members' ranks below their switches."""
    all_ways = ways_up(parents, live)
    found = pruned(parents, live)
    found |= {f"rank {member.rank}": member.switch for member in live.members}
    root, levels = all_ways[0][-1], max(map(len, all_ways))
    return AggregationTree(root=root, rate_mbit=0.0, slots=slots, levels=levels, parents=found)


def ways_up(parents: Mapping[str, str], live: Incarnation) -> list[list[str]]:
    """Return the way from each switch that has members to the job's root, the first switch that all ways have.

    Raises UsageError where they do not meet.
    """
    ways = [_way_up(parents, name) for name in dict.fromkeys(member.switch for member in live.members)]
    root = next((name for name in ways[0] if all(name in way for way in ways)), None)
    if root is None:
        raise UsageError(f"no tree in the --fleet file connects switches {' and '.join(way[0] for way in ways)}")
    return [way[: way.index(root) + 1] for way in ways]


def _way_up(parents: Mapping[str, str], name: str) -> list[str]:
    way = [name]
    while (above := parents.get(way[-1])) is not None:
        way.append(above)
    return way


def tree_from(root: str, ports: Mapping[str, Mapping[str, int]]) -> tuple[dict[str, str], int]:
    """Return the switch above each one (the root's is empty) on shortest ways, and the longest of these ways."""
    above, height, level = {root: ""}, -1, [root]
    while level:
        height, beyond = height + 1, []
        for name in level:
            for far in ports[name]:
                if far not in above:
                    above[far] = name
                    beyond.append(far)
        level = beyond
    return above, height


def fabric_of_one(p4runtime: str) -> Fabric:
    """Return the fabric of a controller that has one switch."""
    return Fabric(switches={ONLY: FabricSwitch(p4runtime=p4runtime)})


def _cookies(live: Incarnation) -> Iterator[int]:
    """Yield cookies for the switches of a job: always the same ones, which no member can know."""
    secret = b"".join(member.cookie.to_bytes(8) for member in live.members) + live.epoch.to_bytes(2)
    secret += live.moves.to_bytes(4)  # frames of trees that a job has left are nobody's
    for number in itertools.count():
        digest = hashlib.blake2b(number.to_bytes(4), digest_size=8, key=hashlib.sha256(secret).digest()).digest()
        yield int.from_bytes(digest) or 1
