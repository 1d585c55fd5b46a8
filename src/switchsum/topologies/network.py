"""A network as data: switches, hosts and the cables between them.  Planner, simulation and Mininet have this one.

Standard library and relative imports only (see `__init__`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

NO_LIMIT: Final = math.inf
"""Rate of a cable of which none is said, in Mbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """A link, which carries frames both ways at the same time."""

    ends: tuple[str, str]
    """Names of the two nodes."""
    mbit: float = NO_LIMIT
    """Capacity of each direction in Mbit/s."""
    reserved_mbit: float = 0.0
    """Capacity that others have reserved in each direction, in Mbit/s."""
    up_mbit: float | None = None
    """Rate at which a host sends, in Mbit/s; None: `mbit`. Simulations know it, and plans of trees do not."""
    delay_ms: float | None = None
    """Delay of this cable in virtual time, in milliseconds; None: that of all cables."""

    @property
    def free_mbit(self) -> float:
        """What a job may take of each direction, in Mbit/s."""
        return self.mbit - self.reserved_mbit

    def far(self, node: str) -> str:
        """Return the other end."""
        return self.ends[1] if self.ends[0] == node else self.ends[0]

    def __str__(self) -> str:
        return f"{self.ends[0]} to {self.ends[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Switches, hosts, cables and jobs.  Whoever reads one from a file says what is wrong (`planning.topology`)."""

    switches: tuple[str, ...]
    hosts: tuple[str, ...]
    cables: tuple[Cable, ...]
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Address of each host that has one."""
    jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Hosts of each job."""

    def limited(self, mbit: float) -> Network:
        """Return the network in which cables without a limit have this capacity, in Mbit/s."""
        return replace(
            self,
            cables=tuple(replace(cable, mbit=mbit) if cable.mbit == NO_LIMIT else cable for cable in self.cables),
        )

    def neighbours(self) -> dict[str, list[tuple[int, str]]]:
        """Return the cables of each node, by their index, and the node at the other end of each."""
        found: dict[str, list[tuple[int, str]]] = {name: [] for name in (*self.switches, *self.hosts)}
        for index, cable in enumerate(self.cables):
            for end in dict.fromkeys(cable.ends):
                if end in found:
                    found[end].append((index, cable.far(end)))
        return found


def parts(nodes: Iterable[str], pairs: Iterable[Sequence[str]]) -> list[set[str]]:
    """Return the nodes that these pairs connect, a set for each part of the network."""
    near: dict[str, list[str]] = {name: [] for name in nodes}
    for one, far in pairs:
        if one in near and far in near:
            near[one].append(far)
            near[far].append(one)
    found: list[set[str]] = []
    seen: set[str] = set()
    for name in near:
        if name in seen:
            continue
        part, waiting = {name}, [name]
        for here in waiting:  # grows while it is read
            waiting += [far for far in dict.fromkeys(near[here]) if far not in part]
            part.update(near[here])
        seen |= part
        found.append(part)
    return found
