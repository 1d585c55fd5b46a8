"""The part of a network that a job's trees may use, as arrays; and trees in it that cost little.

A host with one link is left out of the arrays: its switch has to be in every tree, and its link's capacity bounds the
rate.  The rest is the core: switches, and hosts with several links.  Hosts do not forward, so they are leaves of every
tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import scipy  # its parts are imported when they are used: they take half a second

from switchsum.topologies import Network
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MAX_WORKERS

from .topology import TopologyError, unserved

MOST_CHILDREN: Final = MAX_WORKERS
"""Children of one switch: each has a bit in the slot's bitmap."""
MOST_LEVELS: Final = 3
"""Levels of switches, unless the caller says otherwise: 32 children each make 32,768 hosts."""

Tree = tuple[int, ...]
"""A tree, as the sorted indices of its links in the core."""
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The switches and hosts with several links that a job's trees may use."""

    names: tuple[str, ...]
    """Switches first, then hosts."""
    switch_count: int
    tails: Integers
    """One end of each link, as an index into names; always a switch."""
    heads: Integers
    """The other end: a switch or a host."""
    free_mbit: Floats
    """Free capacity of each link for this job, in Mbit/s."""
    terminals: tuple[int, ...]
    """Nodes that every tree has to reach."""
    leaves: dict[int, tuple[str, ...]]
    """Hosts with one link, by the switch that they hang on."""
    access_mbit: float
    """The least capacity of such a host's link: a bound of the rate; infinite if there is none."""

    @property
    def is_small(self) -> bool:
        """Whether linear programs with a flow for each terminal are within reach."""
        return len(self.names) <= 64 and len(self.terminals) * len(self.tails) <= 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A tree that hangs from its root."""

    root: int
    parents: dict[int, int]
    """Parent of each node of the core but the root."""
    levels: int
    """Levels of switches."""


def core_of(network: Network, hosts: Sequence[str]) -> Core:
    """Return what a job on these hosts may use; raises UsageError or TopologyError if no tree can serve it."""
    _check_hosts(network, hosts)
    wanted, switches = set(hosts), set(network.switches)
    usable = [
        cable
        for cable in network.cables
        if cable.free_mbit > 0 and switches & set(cable.ends) and set(cable.ends) <= switches | wanted
    ]
    near: dict[str, list[int]] = {host: [] for host in hosts}
    for number, cable in enumerate(usable):
        for end in cable.ends:
            if end in wanted:
                near[end].append(number)
    single = {found[0]: host for host, found in near.items() if len(found) == 1}
    names = (*network.switches, *(host for host in hosts if len(near[host]) > 1))
    index = {name: number for number, name in enumerate(names)}
    leaves: dict[int, list[str]] = {}
    for number, host in single.items():
        first, second = usable[number].ends
        leaves.setdefault(index[second if first == host else first], []).append(host)
    inner = [cable for number, cable in enumerate(usable) if number not in single]
    # A host is a head, so that arcs from tails to heads never leave it.
    ends = [cable.ends if cable.ends[0] in switches else cable.ends[::-1] for cable in inner]
    core = Core(
        names=names,
        switch_count=len(network.switches),
        tails=np.array([index[tail] for tail, _ in ends], dtype=np.int64),
        heads=np.array([index[head] for _, head in ends], dtype=np.int64),
        free_mbit=np.array([cable.free_mbit for cable in inner], dtype=np.float64),
        terminals=tuple(sorted({*leaves, *range(len(network.switches), len(names))})),
        leaves={switch: tuple(below) for switch, below in sorted(leaves.items())},
        access_mbit=min((usable[number].free_mbit for number in single), default=math.inf),
    )
    for switch, below in core.leaves.items():
        if len(below) > MOST_CHILDREN:
            raise TopologyError(
                f"{len(below)} hosts of the job have {names[switch]} as their only switch: "
                f"a switch has at most {MOST_CHILDREN} children, a bit for each in a slot's bitmap"
            )
    return core


def _check_hosts(network: Network, hosts: Sequence[str]) -> None:
    known = set(network.hosts)
    for host in hosts:
        if host not in known:
            raise UsageError(f"there is no host {host} in this topology")
    if len(set(hosts)) != len(hosts):
        raise UsageError("a job's list of hosts names a host twice: name each once")
    if len(hosts) < 2:
        raise UsageError("a tree needs at least two hosts")
    missing = unserved(network, hosts)
    if missing:
        raise TopologyError(f"no path with free capacity connects {', '.join(missing[:4])} with {hosts[0]}")


def shape_of(core: Core, tree: Tree, most_levels: int) -> Shape | str:
    """Hang a tree from the switch that makes it lowest; return why not if it breaks a limit."""
    near: dict[int, list[int]] = {}
    for link in tree:
        tail, head = int(core.tails[link]), int(core.heads[link])
        near.setdefault(tail, []).append(head)
        near.setdefault(head, []).append(tail)
    if not tree:
        near = {core.terminals[0]: []}
    degree = {node: len(found) + len(core.leaves.get(node, ())) for node, found in near.items()}
    crowded = max(degree, key=lambda node: (degree[node], -node))
    if degree[crowded] > MOST_CHILDREN + 1:
        return _crowded(core, crowded, degree[crowded] - 1)
    switches = [node for node in near if node < core.switch_count]
    longest = _farthest(near, _farthest(near, switches[0], core)[-1], core)
    centers = sorted({longest[(len(longest) - 1) // 2], longest[len(longest) // 2]})
    # The root has no parent, so it may have one neighbour less than others.
    roots = [node for node in [*centers, *sorted(switches)] if degree[node] <= MOST_CHILDREN]
    if not roots:
        return _crowded(core, crowded, degree[crowded])
    order, level = [roots[0]], {roots[0]: 1}
    parents: dict[int, int] = {}
    for node in order:
        for child in sorted(near[node]):
            if child != parents.get(node):
                parents[child], level[child] = node, level[node] + 1
                order.append(child)
    levels = max(level[node] for node in switches)
    if levels > most_levels:
        return f"a tree would have {levels} levels of switches, and at most {most_levels} are allowed (--levels)"
    return Shape(root=roots[0], parents=parents, levels=levels)


def _crowded(core: Core, node: int, children: int) -> str:
    return f"{core.names[node]} would have {children} children, and a slot's bitmap has {MOST_CHILDREN} bits"


def _farthest(near: dict[int, list[int]], start: int, core: Core) -> list[int]:
    """Return the path over switches from one to a farthest other."""
    before = {start: start}
    order = [start]
    for node in order:
        for far in sorted(near[node]):
            if far not in before and far < core.switch_count:
                before[far] = node
                order.append(far)
    path = [order[-1]]
    while path[-1] != start:
        path.append(before[path[-1]])
    return path[::-1]


class Search:
    """Finds trees that cost little, where each link has a price."""

    def __init__(self, core: Core, prices: Floats, links: Iterable[int] | None = None) -> None:
        """Prepare the search; without `links` over all of them."""
        self._core = core
        self._link: dict[tuple[int, int], int] = {}
        for link in range(len(core.tails)) if links is None else links:
            tail, head = int(core.tails[link]), int(core.heads[link])
            ways = [(tail, head)] if head >= core.switch_count else [(tail, head), (head, tail)]
            for way in ways:
                best = self._link.get(way)
                if best is None or prices[link] < prices[best]:
                    self._link[way] = link
        self._prices = prices

    @cached_property
    def _graph(self) -> Any:
        """The links as a matrix of prices; a network of one switch needs none, and does not import scipy's parts."""
        ways, size = list(self._link), len(self._core.names)
        costs = [float(self._prices[link]) for link in self._link.values()]
        return scipy.sparse.csr_array(
            (costs, ([way[0] for way in ways], [way[1] for way in ways])), shape=(size, size), dtype=np.float64
        )

    def shortest(self, roots: Sequence[int]) -> list[Tree]:
        """Return the tree of shortest paths from each root to all terminals."""
        if not self._link:
            return [()] if len(self._core.terminals) == 1 else []
        distances, before = scipy.sparse.csgraph.dijkstra(self._graph, indices=list(roots), return_predecessors=True)
        found = []
        for row, root in enumerate(roots):
            if np.isinf(distances[row, list(self._core.terminals)]).any():
                continue
            back, links, seen = before[row].tolist(), set(), {root}
            for terminal in self._core.terminals:
                node = terminal
                while node not in seen:
                    seen.add(node)
                    links.add(self._link[back[node], node])
                    node = back[node]
            found.append(self._trim(links))
        return found

    def grown(self, root: int) -> Tree | None:
        """Return a tree that takes in the nearest terminal until it has all, and keeps to 32 children where it can."""
        if not self._link:
            return self.shortest([root])[0] if len(self._core.terminals) == 1 else None
        core, links, inside = self._core, set[int](), {root}
        degree = {node: len(core.leaves.get(node, ())) for node in range(len(core.names))}
        waiting = [terminal for terminal in core.terminals if terminal != root]
        while waiting:
            # One neighbour of each is its parent: the root could have one more child than this leaves it.
            sources = [node for node in sorted(inside) if degree[node] < MOST_CHILDREN]
            if not sources:
                return None
            distances, before, _ = scipy.sparse.csgraph.dijkstra(
                self._graph, indices=sources, return_predecessors=True, min_only=True
            )
            node = min(waiting, key=lambda terminal: (distances[terminal], terminal))
            if math.isinf(distances[node]):
                return None
            while node not in inside:
                back = int(before[node])
                links.add(self._link[back, node])
                inside.add(node)
                degree[node] += 1
                degree[back] += 1
                node = back
                if node < 0:
                    return None
            waiting = [terminal for terminal in waiting if terminal not in inside]
        return self._trim(links)

    def _trim(self, links: set[int]) -> Tree:
        """Return a tree without branches that lead to no terminal."""
        core, terminals = self._core, set(self._core.terminals)
        ends: dict[int, set[int]] = {}
        for link in links:
            ends.setdefault(int(core.tails[link]), set()).add(link)
            ends.setdefault(int(core.heads[link]), set()).add(link)
        bare = [node for node, found in ends.items() if len(found) == 1 and node not in terminals]
        for node in bare:  # grows while it is read
            if len(ends[node]) != 1:
                continue
            (link,) = ends[node]
            links.discard(link)
            other = int(core.heads[link] if core.tails[link] == node else core.tails[link])
            ends[other].discard(link)
            if len(ends[other]) == 1 and other not in terminals:
                bare.append(other)
        return tuple(sorted(links))
