"""Routes through a topology: along one spanning tree, so that no frame goes round in a circle.

The switches forward Ethernet frames by table entries and have no spanning-tree protocol.  In a topology with loops,
such as leaf and spine, a broadcast would circle for ever.  So the tree is computed beforehand, from the switch that
adds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

from .shapes import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route of a switch: to a host or to another switch."""

    to: int | str
    """The destination: a host, by the index of its link; or a switch, by its name."""
    link: int
    """Index of the link over which the switch sends frames for it."""


def center(topology: Topology) -> str:
    """Return the switch with the shortest distance to its farthest host; among equals the first.

    Raises ValueError if no switch reaches every host.
    """
    switches = [switch for switch in topology.switches if _reach(topology, switch) < math.inf]
    if not switches:
        raise ValueError("no switch reaches every host")
    return min(switches, key=lambda switch: _reach(topology, switch))


def spanning_tree(topology: Topology, root: str) -> frozenset[int]:
    """Return the links between switches that make a tree from `root`: to each the widest path, of equals the shortest.

    All other links between switches would close loops, or lead to switches that `root` does not reach.
    """
    # Dijkstra's algorithm for widest paths: a path is as wide as its narrowest link, and the widest is taken first.
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
    """Return for each switch its routes to all hosts and to all other switches that the tree reaches."""
    # From each target along the tree: the link over which the search reaches a switch is that switch's route back.
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
    """Return the distance from a switch to its farthest host, in links."""
    distance, waiting = {start: 0}, [start]
    for node in waiting:
        if node in topology.hosts:
            continue  # a host with two links does not forward frames
        for link in _links_of(topology, node):
            far = _far(topology, link, node)
            if far not in distance:
                distance[far] = distance[node] + 1
                waiting.append(far)
    return max((distance.get(host, math.inf) for host in topology.hosts), default=0)


def _trunks(topology: Topology, switch: str) -> Iterator[tuple[int, str, float]]:
    """Yield the links from a switch to other switches: index, name of the other switch, Mbit/s."""
    for index in _links_of(topology, switch):
        far, rate = _far(topology, index, switch), topology.links[index].rate_mbit
        if far in topology.switches:
            yield index, far, math.inf if rate is None else rate


def _links_of(topology: Topology, node: str) -> Iterator[int]:
    return (index for index, link in enumerate(topology.links) if node in link.ends)


def _far(topology: Topology, index: int, node: str) -> str:
    first, second = topology.links[index].ends
    return second if first == node else first
