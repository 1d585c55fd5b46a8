"""The switches of one controller, and the tree over which they add: which switch has which part of a job.

A controller of one switch has a fabric of one.  In a fabric of several each switch but the root names the one above it.
A job uses the switches where its members are, and those above them up to where all meet: that one is the job's root.
All switches reserve a job's slots and its multicast group under the same numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import MAX_WORKERS, MOST_WORKERS
from switchsum.protocol.wire import Address, parse_ip, parse_mac

from .branch import Branch
from .forest import AggregationTree, Forest, Reserved, Seat, Site, switches_of
from .job import Job
from .machines import Incarnation

ONLY: Final = ""
"""Name of the switch of a controller that has one."""
UDP_PORT: Final = 1
"""Number of the embedded switch's port that is a UDP socket, where it has no interfaces."""
LAST_PORT: Final = 510
_KEYS: Final = {"p4runtime", "udp", "port", "ports", "stations", "above"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSwitch:
    """One switch, as the controller and the switches beside it find it."""

    p4runtime: str
    """Address of its P4Runtime server, host:port or unix:path."""
    address: Address | None = None
    """From where other switches get its frames; None: from the address that all switches have for workers."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Its port towards each switch beside it in the tree."""
    stations: Mapping[int, int] = field(default_factory=dict)
    """Its port towards each Ethernet address that is known from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Switches by name, the root first, and the switch above each of the others."""

    switches: Mapping[str, FabricSwitch]
    parents: Mapping[str, str] = field(default_factory=dict)
    link_bytes: int = 0
    """Bytes that may wait at a switch for all that come from other switches, as the kernel counts; 0: enough."""
    lanes_per_frame: int = 0
    """Of the program that all switches run."""

    @property
    def home(self) -> str:
        """The switch that keeps what is to be known of all jobs: the root."""
        return next(iter(self.switches))

    @property
    def most_workers(self) -> int:
        """Most workers of a job: what the bitmaps of all switches have room for, beside the switches below."""
        return min(MOST_WORKERS, MAX_WORKERS * len(self.switches) - len(self.parents))

    @property
    def most_children(self) -> int:
        """Most switches that are below one switch."""
        above = list(self.parents.values())
        return max((above.count(name) for name in set(above)), default=0)

    def tree_of(self, job: Job, live: Incarnation) -> AggregationTree:
        """Return the tree of a job whose members were seen; raises UsageError for a switch that is not there."""
        ways = []
        for name in dict.fromkeys(member.switch for member in live.members):
            if name not in self.switches:
                raise UsageError(f"members are at switch {name!r}, which the controller does not have (--fleet)")
            ways.append(self._way_up(name))
        # All ways end at the fabric's root; the job's root is the first switch that all have.
        root = next(name for name in ways[0] if all(name in way for way in ways))
        parents = {}
        for way in ways:
            for name in way[: way.index(root)]:
                parents[name] = self.parents[name]
        parents |= {f"rank {member.rank}": member.switch for member in live.members}
        levels = 1 + max(way.index(root) for way in ways)
        return AggregationTree(root=root, rate_mbit=0.0, slots=job.slots.count, levels=levels, parents=parents)

    def pairs_of(self, job: Job, live: Incarnation) -> list[list[str]]:
        """Return each switch of a job that is below another one, and that one."""
        parents = self.tree_of(job, live).parents
        return [[name, parents[name]] for name in self.switches if name in parents]

    def places_at(self, job: Job, live: Incarnation, switch: str) -> list[int]:
        """Return the rank at each place of a switch's bitmaps, -1 for a switch below; nothing if all are ranks."""
        tree = self.tree_of(job, live)
        if len(switches_of(tree)) == 1:
            return []
        here = [member.rank for member in live.members if member.switch == switch]
        return here + [-1] * sum(above == switch and child in self.switches for child, above in tree.parents.items())

    def _way_up(self, name: str) -> list[str]:
        way = [name]
        while (above := self.parents.get(way[-1])) is not None:
            way.append(above)
        return way

    def branches(
        self,
        job: Job,
        live: Incarnation,
        seats: Sequence[Seat],
        *,
        own: Address,
        growth_bytes: int,
        record: bytes,
    ) -> dict[str, Branch]:
        """Return each switch's part in a job; raises UsageError where a bitmap is too short.

        `seats` are the members by rank, `own` is the address that all switches have for workers.
        """
        tree = self.tree_of(job, live)
        names = switches_of(tree)
        sites = {
            name: Site(
                address=self.switches[name].address or own,
                ports=self.switches[name].ports,
                lanes_per_frame=self.lanes_per_frame,
                total_slots=job.slots.end,
                growth_bytes=growth_bytes,
            )
            for name in names
        }
        reserved = {name: Reserved(slots={0: job.slots}, groups={0: job.group}) for name in names}
        forest = Forest(job=job.number, trees=[tree], reserved=reserved, sites=sites)
        found = forest.branches(seats, epoch=live.epoch, draw_cookie=_cookies(live).__next__, record=record)
        return {name: branch for name, [branch] in found.items()}


def fabric_of_one(p4runtime: str) -> Fabric:
    """Return the fabric of a controller that has one switch."""
    return Fabric(switches={ONLY: FabricSwitch(p4runtime=p4runtime)})


def _cookies(live: Incarnation) -> Iterator[int]:
    """Yield cookies for the switches of a job: always the same ones, which no member can know."""
    secret = b"".join(member.cookie.to_bytes(8) for member in live.members) + live.epoch.to_bytes(2)
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
    except ValueError as error:
        raise UsageError(f"it is no JSON: {error}") from error
    given = top.get("switches") if isinstance(top, dict) else None
    if not isinstance(given, dict) or not given or not all(isinstance(one, dict) for one in given.values()):
        raise UsageError('it is no {"switches": {NAME: {"p4runtime": ADDRESS, "udp": HOST:PORT, "above": NAME}}}')
    link_bytes = top.get("link_bytes", 0)
    if not _is_natural(link_bytes):
        raise UsageError(f"link_bytes is a number of bytes, not {link_bytes!r}")
    parents = {name: one["above"] for name, one in given.items() if one.get("above") is not None}
    _check_parents(list(given), parents)
    switches = {}
    for name in sorted(given, key=lambda name: (name in parents, list(given).index(name))):
        near = [far for far, above in parents.items() if above == name]
        near += [parents[name]] if name in parents else []
        switches[name] = _read_switch(name, given[name], near)
    _check_apart(switches)
    return Fabric(switches=switches, parents=parents, link_bytes=link_bytes, lanes_per_frame=lanes_per_frame)


def _read_switch(name: str, given: Mapping[str, Any], near: Sequence[str]) -> FabricSwitch:
    for key in given:
        if key not in _KEYS:
            raise UsageError(f"switch {name}: unknown key {key!r}: a switch has {', '.join(sorted(_KEYS))}")
    if not isinstance(given.get("p4runtime"), str):
        raise UsageError(f"switch {name}: p4runtime is the address of its P4Runtime server")
    port, ports = given.get("port", UDP_PORT), given.get("ports")
    if not _is_port(port):
        raise UsageError(f"switch {name}: port is the number of its port towards other switches, not {port!r}")
    if ports is None:
        ports = dict.fromkeys(near, port)
    elif not isinstance(ports, dict) or not all(map(_is_port, ports.values())) or not set(near) <= ports.keys():
        raise UsageError(f"switch {name}: ports has a port's number for each switch beside it: {', '.join(near)}")
    address = None
    if near and (given.get("udp") is not None or given.get("ports") is None):
        host, _, number = str(given.get("udp")).rpartition(":")
        try:
            address = Address(mac=0, ip=parse_ip(host), port=int(number))
        except ValueError as error:
            raise UsageError(f"switch {name}: udp is IP:PORT, as other switches reach it: {error}") from error
    return FabricSwitch(
        p4runtime=given["p4runtime"],
        address=address,
        ports={far: ports[far] for far in near},
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
