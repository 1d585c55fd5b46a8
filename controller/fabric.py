"""The switches of one controller, and the tree over which they add: which switch has which part of a job.

A controller of one switch has a fabric of one.  In a fabric of several each switch but the root names the one above it.
A job uses the switches where its members are, and those above them up to where all meet: that one is the job's root.
All switches reserve a job's slots and its multicast group under the same numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from switchsum.native.addresses import check_form
from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import MAX_WORKERS, MOST_WORKERS
from switchsum.protocol.wire import Address, parse_ip, parse_mac

from .branch import Branch
from .forest import AggregationTree, Forest, Reserved, Seat, Site, switches_of
from .job import Job
from .jobs import FIRST_GROUP, LAST_GROUP
from .machines import Incarnation
from .slots import SlotRange

ONLY: Final = ""
"""Name of the switch of a controller that has one."""
UDP_PORT: Final = 1
"""Number of the embedded switch's port that is a UDP socket, where it has no interfaces."""
LAST_PORT: Final = 510
MOST_TREES: Final = 8
"""Over which a job is added."""
_KEYS: Final = {"p4runtime", "udp", "port", "ports", "stations", "above"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSwitch:
    """One switch, as the controller and the switches beside it find it."""

    p4runtime: str
    """Address of its P4Runtime server, host:port or unix:path."""
    address: Address | None = None
    """From where other switches get its frames; None: from the address that all switches have for workers."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Its port towards each switch that it can reach, whether a tree goes there or not."""
    stations: Mapping[int, int] = field(default_factory=dict)
    """Its port towards each Ethernet address that is known from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Switches by name, the root first, and the switch above each of the others."""

    switches: Mapping[str, FabricSwitch]
    parents: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Mapping[str, str]] = ()
    """The same of further trees, over which a job is added at the same time."""
    shares: Sequence[float] = (1.0,)
    """In which proportion a job's slots belong to the trees."""
    link_bytes: int = 0
    """Bytes that may wait at a switch for all that come from other switches, as the kernel counts; 0: enough."""
    lanes_per_frame: int = 0
    """Of the program that all switches run."""
    is_discovered: bool = False
    """The tree follows from the links that were found, and the controller goes on to look for them."""

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
        return min(MOST_WORKERS, MAX_WORKERS * len(self.switches) - max(map(len, self._all_parents)))

    @property
    def most_children(self) -> int:
        """Most switches that are below one switch."""
        counts = [Counter(parents.values()) for parents in self._all_parents]
        return max((count for of_tree in counts for count in of_tree.values()), default=0)

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
                raise UsageError(f"members are at switch {name!r}, which the controller does not have (--fleet)")
        if unknown := [name for one in all_parents for name in one.values() if name not in self.switches]:
            raise UsageError(f"job {job.name} is added at {unknown[0]!r}, which the controller does not have (--fleet)")
        slots = shared(job.slots.count, self.shares)
        return [_tree(parents, live, count) for parents, count in zip(all_parents, slots, strict=True) if count]

    def pairs_of(self, job: Job, live: Incarnation) -> list[list[str]]:
        """Return each switch of a job that is below another one, that one, and beyond the first tree its number."""
        return [
            [name, tree.parents[name], *([str(number)] if number else [])]
            for number, tree in enumerate(self.trees_of(job, live))
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
        """Return how many slots belong to each tree of a job; nothing if it has one."""
        trees = self.trees_of(job, live)
        return [tree.slots for tree in trees] if len(trees) > 1 else []

    def branches(
        self,
        job: Job,
        live: Incarnation,
        seats: Sequence[Seat],
        *,
        own: Address,
        growth_bytes: int,
        record: bytes,
    ) -> dict[str, list[Branch]]:
        """Return each switch's part in each tree of a job; raises UsageError where a bitmap is too short.

        `seats` are the members by rank, `own` is the address that all switches have for workers.
        """
        trees = self.trees_of(job, live)
        ends = list(itertools.accumulate((tree.slots for tree in trees), initial=job.slots.first))
        ranges = [SlotRange(first=first, count=tree.slots) for first, tree in zip(ends, trees, strict=False)]
        reserved: dict[str, Reserved] = {}
        for number, tree in enumerate(trees):
            for name in switches_of(tree):
                one = reserved.setdefault(name, Reserved())
                one.slots[number], one.groups[number] = ranges[number], group_of(job.group, number)
        sites = {
            name: Site(
                address=self.switches[name].address or own,
                ports=self.switches[name].ports,
                lanes_per_frame=self.lanes_per_frame,
                total_slots=job.slots.end,
                growth_bytes=growth_bytes,
            )
            for name in reserved
        }
        forest = Forest(job=job.number, trees=trees, reserved=reserved, sites=sites)
        return forest.branches(seats, epoch=live.epoch, draw_cookie=_cookies(live).__next__, record=record)


def shared(slots: int, shares: Sequence[float]) -> list[int]:
    """Share slots in proportion, at least one for each tree, the first ones where there are too few."""
    exact = [slots * share / sum(shares) for share in shares]
    counts = [max(1, int(one)) for one in exact]
    while sum(counts) > slots:
        counts[max(range(len(counts)), key=lambda at: (counts[at], at))] -= 1
    while sum(counts) < slots:
        counts[max(range(len(counts)), key=lambda at: exact[at] - counts[at])] += 1
    return counts


def group_of(group: int, tree: int) -> int:
    """Return the multicast group of a job's tree, given that of its first one: the last groups, which no job has."""
    return group if tree == 0 else LAST_GROUP - (group - FIRST_GROUP) * (MOST_TREES - 1) - (tree - 1)


def _tree(parents: Mapping[str, str], live: Incarnation, slots: int) -> AggregationTree:
    """Return one tree of a job, with its members' ranks below their switches."""
    all_ways = ways_up(parents, live)
    found = {name: parents[name] for way in all_ways for name in way[:-1]}
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
        raise UsageError(f"no tree connects switches {' and '.join(way[0] for way in ways)} (--fleet)")
    return [way[: way.index(root) + 1] for way in ways]


def _way_up(parents: Mapping[str, str], name: str) -> list[str]:
    way = [name]
    while (above := parents.get(way[-1])) is not None:
        way.append(above)
    return way


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


def load(path: Path, lanes_per_frame: int) -> Fabric:
    """Read a fabric from a JSON file, as docs/controller.md describes it; raises UsageError."""
    try:
        return parse(path.read_text(encoding="utf-8"), lanes_per_frame)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path} cannot be read: {reason}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def parse(text: str, lanes_per_frame: int) -> Fabric:
    """Read a fabric from JSON; raises UsageError."""
    try:
        top = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is no JSON: {error}") from error
    given = top.get("switches") if isinstance(top, dict) else None
    if not isinstance(given, dict) or not given or not all(isinstance(one, dict) for one in given.values()):
        raise UsageError('it is no {"switches": {NAME: {"p4runtime": ADDRESS, "udp": HOST:PORT, "above": NAME}}}')
    link_bytes = top.get("link_bytes", 0)
    if not _is_natural(link_bytes):
        raise UsageError(f"link_bytes is a number of bytes, not {link_bytes!r}")
    all_parents, shares = _read_trees(top, given)
    switches = {}
    first = all_parents[0]
    # Sockets reach one another, whatever the trees are.
    by_udp = {name for name, one in given.items() if one.get("udp") is not None and one.get("ports") is None}
    for name in sorted(given, key=lambda name: (name in first or name not in {*first.values()}, [*given].index(name))):
        near = {far for parents in all_parents for far, above in parents.items() if above == name}
        near |= {parents[name] for parents in all_parents if name in parents}
        ports = given[name].get("ports")
        reaches = by_udp if name in by_udp else {*ports} if isinstance(ports, dict) else set()
        order = [far for far in given if far != name and (far in near or far in reaches)]
        switches[name] = _read_switch(name, given[name], [far for far in order if far in near], order)
    _check_apart(switches)
    return Fabric(
        switches=switches,
        parents=first,
        others=all_parents[1:],
        shares=shares,
        link_bytes=link_bytes,
        lanes_per_frame=lanes_per_frame,
    )


def _read_trees(top: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[list[dict[str, str]], list[float]]:
    """Return the switches above others in each tree, and the shares of the trees; raises UsageError."""
    single = {name: one["above"] for name, one in given.items() if one.get("above") is not None}
    trees = top.get("trees", [{"above": single}])
    if not isinstance(trees, list) or not 1 <= len(trees) <= MOST_TREES or ("trees" in top and single):
        raise UsageError(f"trees is a list of 1 to {MOST_TREES}, and then no switch has an above of its own")
    shares = []
    for tree in trees:
        above, share = (tree.get("above"), tree.get("share", 1)) if isinstance(tree, dict) else (None, 1)
        if not isinstance(above, dict) or not isinstance(share, int | float) or not 0 < share < math.inf:
            raise UsageError(f'a tree is {{"above": {{NAME: NAME}}, "share": NUMBER}}, not {tree!r}')
        _check_parents(list(given) if "trees" not in top else list({**above, **dict.fromkeys(above.values())}), above)
        if unknown := [name for name in (*above, *above.values()) if name not in given]:
            raise UsageError(f"a tree has switch {unknown[0]!r}, which is not among the switches")
        shares.append(float(share))
    return [dict(tree["above"]) for tree in trees], shares


def _read_switch(name: str, given: Mapping[str, Any], near: Sequence[str], reaches: Sequence[str]) -> FabricSwitch:
    for key in given:
        if key not in _KEYS:
            raise UsageError(f"switch {name}: unknown key {key!r}: a switch has {', '.join(sorted(_KEYS))}")
    if not isinstance(given.get("p4runtime"), str):
        raise UsageError(f"switch {name}: p4runtime is the address of its P4Runtime server")
    try:
        check_form(given["p4runtime"])
    except UsageError as error:
        raise UsageError(f"switch {name}: p4runtime: {error}") from error
    port, ports = given.get("port", UDP_PORT), given.get("ports")
    if not _is_port(port):
        raise UsageError(f"switch {name}: port is the number of its port towards other switches, not {port!r}")
    if ports is None:
        ports = dict.fromkeys(reaches, port)
    elif not isinstance(ports, dict) or not all(map(_is_port, ports.values())) or not set(near) <= ports.keys():
        raise UsageError(f"switch {name}: ports has a port's number for each switch beside it: {', '.join(near)}")
    address = None
    if reaches and (given.get("udp") is not None or given.get("ports") is None):
        host, _, number = str(given.get("udp")).rpartition(":")
        try:
            address = Address(mac=0, ip=parse_ip(host), port=int(number))
        except ValueError as error:
            raise UsageError(f"switch {name}: udp is IP:PORT, as other switches reach it: {error}") from error
    return FabricSwitch(
        p4runtime=given["p4runtime"],
        address=address,
        ports={far: ports[far] for far in reaches},
        stations=_read_stations(name, given.get("stations", {})),
    )


def _read_stations(name: str, given: object) -> dict[int, int]:
    try:
        if isinstance(given, dict) and all(map(_is_port, given.values())):
            return {parse_mac(mac): port for mac, port in given.items()}
    except ValueError:
        pass
    raise UsageError(f"switch {name}: stations has a port's number for each Ethernet address, not {given!r}")


def _check_apart(switches: Mapping[str, FabricSwitch]) -> None:
    """Raise UsageError if two switches are one, or two switches are behind one port of another."""
    for what in ("p4runtime", "address"):
        owners: dict[object, str] = {}
        for name, switch in switches.items():
            place = getattr(switch, what)
            if place is not None and owners.setdefault(place, name) != name:
                raise UsageError(f"switches {owners[place]} and {name} have the same {what}, {place}")
    for name, switch in switches.items():
        # Without interfaces all other switches are behind the UDP socket, and are told apart by address.
        behind = [far for far in switch.ports if switch.address is None]
        ports = {switch.ports[far]: far for far in behind}
        if len(ports) < len(behind):
            raise UsageError(f"switch {name}: two of {', '.join(behind)} are behind one port")


def _check_parents(names: Sequence[str], parents: Mapping[str, Any]) -> None:
    """Raise UsageError unless all ways up end at one switch."""
    for name, above in parents.items():
        if above not in names:
            raise UsageError(f"switch {name}: there is no switch {above!r} above it")
    roots = [name for name in names if name not in parents]
    if len(roots) > 1:
        raise UsageError(f"{' and '.join(roots)} have no switch above: a tree has one root")
    for name in names:
        way = [name]
        while way[-1] in parents:
            way.append(parents[way[-1]])
            if way[-1] in way[:-1]:
                raise UsageError(f"switches are above one another in a circle: {', '.join(way)}")


def _is_port(value: Any) -> bool:
    return _is_natural(value) and value <= LAST_PORT


def _is_natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
