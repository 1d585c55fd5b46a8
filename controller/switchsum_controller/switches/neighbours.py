"""Finds which port leads to which other switch, from LLDP frames that each port sends and another switch hears.

A switch says that it has heard the frame of a port, not by which of its own ports (`lldp`).  So a link between two
switches is known when each has heard one port of the other, and these two ports are its ends.  What does not fit that
is a fault, which is told in words and makes no link.  A port where a host is known gets no frames and makes no link: a
host at two switches could hand them on, and pass for a cable.  No clock here: callers pass the time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from switchsum_protocol.errors import LocalError
from switchsum_protocol.rpc import LinkFault

from ..trees.fabric import tree_from
from . import lldp
from .lldp import End

PROBED_PORTS: Final = range(64)
"""Ports that may lead to another switch: P4Runtime does not say which there are, and frames to others go nowhere."""
PERIOD_S: Final = 5.0
TTL_S: Final = 16
"""A link is gone when three frames of it were not heard (802.1AB has 30 s and four)."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FoundLink:
    """A link between two switches."""

    ends: tuple[End, End]

    def __str__(self) -> str:
        return f"{self.ends[0]} to {self.ends[1]}"


class Neighbours:
    """Keeps the LLDP frames that the switches of one controller hear from one another."""

    def __init__(self, switches: Sequence[str], key: bytes) -> None:
        """`key` is known to nobody else: frames without it are not believed."""
        self._switches, self._key = list(switches), key
        self.hosts: Mapping[str, Set[int]] = {}
        """Ports where hosts are known, by switch."""
        self._heard: dict[End, dict[str, float]] = {}
        """Switches that have heard a port, and until when that counts, by the port that has sent."""
        self._sent_s: float | None = None
        self._seen: tuple[list[FoundLink], list[LinkFault]] | None = None

    def is_due(self, now: float, period_s: float = PERIOD_S) -> bool:
        """Return whether it is time to send from all ports again, and note that it was done."""
        if self._sent_s is not None and now - self._sent_s < period_s:
            return False
        self._sent_s = now
        return True

    def frames(self, switch: str) -> list[tuple[int, bytes]]:
        """Return what is to leave each port of a switch that may lead to another one."""
        ports = [port for port in PROBED_PORTS if port not in self.hosts.get(switch, ())]
        return [(port, lldp.build(End(switch=switch, port=port), TTL_S, self._key)) for port in ports]

    def hear(self, switch: str, payload: bytes, now: float) -> None:
        """Note a packet-in of a switch; what is no frame of this controller is ignored."""
        claim = lldp.parse(payload, self._key)
        if claim is not None and claim[0].switch in self._switches:
            self._heard.setdefault(claim[0], {})[switch] = now + claim[1]

    def look(self, now: float) -> tuple[list[FoundLink], list[LinkFault]]:
        """Return the links of now, and what does not fit."""
        hearers = {
            end: sorted(switch for switch, until_s in by_switch.items() if until_s > now)
            for end, by_switch in sorted(self._heard.items())
        }
        faults: list[LinkFault] = []
        ways: dict[tuple[str, str], list[End]] = {}
        for end, switches in hearers.items():
            if switches and end.port in self.hosts.get(end.switch, ()):
                text = f"{' and '.join(switches)} hears {end}, where a host is: it hands frames on"
                faults.append(LinkFault(text=text, switches=[*switches, end.switch]))
            elif end.switch in switches:
                faults.append(LinkFault(text=f"{end} leads back to {end.switch} itself", switches=[end.switch]))
            elif len(switches) > 1:
                text = f"{' and '.join(switches)} both hear {end}: a cable has two ends"
                faults.append(LinkFault(text=text, switches=[*switches, end.switch]))
            elif switches:
                ways.setdefault((end.switch, switches[0]), []).append(end)
        links = []
        for (near, far), there in ways.items():
            back = ways.get((far, near), [])
            if len(there) == len(back) == 1:
                if near < far:
                    links.append(FoundLink(ends=(there[0], back[0])))
            elif not back:
                text = (
                    f"{far} hears {_ports(there)}, and {near} hears no port of {far}: a link works one way, or a host "
                    "hands frames on"
                )
                faults.append(LinkFault(text=text, switches=[near, far]))
            elif near < far:
                text = (
                    f"{_ports(there)} lead to {far}, {_ports(back)} to {near}: a port has one peer, and which is whose "
                    "is not known where two switches have several links; leave one of them"
                )
                faults.append(LinkFault(text=text, switches=[near, far]))
        return sorted(links), faults

    def news(self, now: float) -> list[str]:
        """Return what has changed since this was asked last, a line for each thing; nothing the first time."""
        before, (links, faults) = self._seen, self.look(now)
        self._seen = links, faults
        if before is None or not before[0]:  # the first look, or links that the first frames have not shown yet
            return []
        return [
            *(f"the link from {link} is gone" for link in before[0] if link not in links),
            *(f"there is a link from {link}" for link in links if link not in before[0]),
            *(fault.text for fault in faults if fault not in before[1]),
        ]


def _ports(ends: Sequence[End]) -> str:
    numbers = " and ".join(str(end.port) for end in ends)
    return f"{'port' if len(ends) == 1 else 'ports'} {numbers} of {ends[0].switch}"


def is_bare(given: Any) -> bool:
    """Return whether a fleet's file names several switches and says nothing of how they are connected."""
    switches = given.get("switches") if isinstance(given, dict) else None
    return (
        isinstance(switches, dict)
        and len(switches) > 1
        and "trees" not in given
        and all(
            isinstance(one, dict) and not one.keys() & {"above", "udp", "port", "ports"} for one in switches.values()
        )
    )


def with_tree(given: Mapping[str, Any], links: Iterable[FoundLink]) -> dict[str, Any]:
    """Return a bare fleet's file with a tree over the links: as low as there is one, its root where most links end.

    Raises LocalError, which names them, for switches that no link reaches.
    """
    names = list(given["switches"])
    ports: dict[str, dict[str, int]] = {name: {} for name in names}
    for link in links:
        for near, far in (link.ends, link.ends[::-1]):
            ports[near.switch][far.switch] = near.port
    trees = {root: tree_from(root, ports) for root in names}
    if apart := [name for name in names if name not in trees[names[0]][0]]:
        raise LocalError(f"no link connects {', '.join(apart)} with {names[0]}: see `switchsum topology discover`")
    root = min(names, key=lambda name: (trees[name][1], -len(ports[name]), names.index(name)))
    above = trees[root][0]
    switches = {
        name: {**given["switches"][name], "ports": ports[name]} | ({"above": above[name]} if name != root else {})
        for name in names
    }
    return {**given, "switches": switches}


def to_yaml(given: Mapping[str, Any], links: Iterable[FoundLink], mbit: float) -> str:
    """Write a topology as `switchsum topology check` reads it; stations of the fleet are its hosts."""
    hosts = {
        mac: (name, port) for name, one in given["switches"].items() for mac, port in one.get("stations", {}).items()
    }
    lines = [
        "# Found by switchsum topology discover.  LLDP does not tell capacities: mbit is that of all links.",
        f"switches: {json.dumps(list(given['switches']))}",
        f"hosts: {json.dumps(list(hosts))}",
        f"mbit: {mbit:g}",
        "links:",
        *(f"  - {{between: {json.dumps([end.switch for end in link.ends])}}}  # {link}" for link in links),
        *(f"  - {{between: {json.dumps([mac, name])}}}  # port {port}" for mac, (name, port) in hosts.items()),
    ]
    return "\n".join(lines) + "\n"
