"""How frames find their way through a topology: along one spanning tree, on which nothing circles."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

from .shapes import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a switch sends frames for one place."""

    to: int | str
    """Index of a host's link, for the host at its end; or the name of a switch."""
    link: int
    """Index of the link by which frames leave."""


def center(topology: Topology) -> str:
    """Return the switch from which the farthest host is nearest, of equal ones the first: it serves all best.

    Raises ValueError when no switch reaches every host.
    """
    switches = [switch for switch in topology.switches if _reach(topology, switch) < math.inf]
    if not switches:
        raise ValueError("no switch reaches every host")
    return min(switches, key=lambda switch: _reach(topology, switch))


def spanning_tree(topology: Topology, root: str) -> frozenset[int]:
    """Return the links between switches that make a tree from `root`: the widest path to each, of equals the shortest.

    Links that are missing here are loops, or lead to switches that `root` does not reach.
    """
    tree, reached = set(), {root}
    waiting = [(-width, 1, link, far) for link, far, width in _trunks(topology, root)]
    heapq.heapify(waiting)
    while waiting:
        width, hops, link, switch = heapq.heappop(waiting)
        if switch in reached:
            continue
        reached.add(switch)
        tree.add(link)
        for onward, far, rate in _trunks(topology, switch):
            heapq.heappush(waiting, (max(width, -rate), hops + 1, onward, far))
    return frozenset(tree)


def routes(topology: Topology, tree: frozenset[int]) -> dict[str, list[Route]]:
    """Return for each switch the way to every host's link and to every other switch that the tree reaches."""
    found: dict[str, list[Route]] = {switch: [] for switch in topology.switches}
    for target in topology.switches:
        attached = [index for index in _links_of(topology, target) if _far(topology, index, target) in topology.hosts]
        found[target] += [Route(to=link, link=link) for link in attached]
        places: list[int | str] = [*attached, target]
        waiting, seen = [target], {target}
        for switch in waiting:
            for link, far, _ in _trunks(topology, switch):
                if link in tree and far not in seen:
                    seen.add(far)
                    waiting.append(far)
                    found[far] += [Route(to=place, link=link) for place in places]
    return found


def _reach(topology: Topology, start: str) -> float:
    """Return how many links away from a switch the farthest host is."""
    distance, waiting = {start: 0}, [start]
    for node in waiting:
        if node in topology.hosts:
            continue  # a host with two links is no bridge
        for link in _links_of(topology, node):
            far = _far(topology, link, node)
            if far not in distance:
                distance[far] = distance[node] + 1
                waiting.append(far)
    return max((distance.get(host, math.inf) for host in topology.hosts), default=0)


def _trunks(topology: Topology, switch: str) -> Iterator[tuple[int, str, float]]:
    """Yield the links from a switch to others: index, name of the other one, Mbit/s."""
    for index in _links_of(topology, switch):
        far, rate = _far(topology, index, switch), topology.links[index].rate_mbit
        if far in topology.switches:
            yield index, far, math.inf if rate is None else rate


def _links_of(topology: Topology, node: str) -> Iterator[int]:
    return (index for index, link in enumerate(topology.links) if node in link.ends)


def _far(topology: Topology, index: int, node: str) -> str:
    first, second = topology.links[index].ends
    return second if first == node else first
