"""Routes through a network: along one spanning tree, so that no frame goes round in a circle.

The switches forward Ethernet frames by table entries and have no spanning-tree protocol.  In a network with loops, such
as leaf and spine, a broadcast would circle for ever.  So the tree is computed beforehand, from the switch that adds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from .network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route of a switch: to a host or to another switch."""

    to: int | str
    """The destination: a host, by the index of its cable; or a switch, by its name."""
    link: int
    """Index of the cable over which the switch sends frames for it."""


def center(network: Network, hosts: Sequence[str] | None = None) -> str:
    """Return the switch with the shortest distance to the farthest of these hosts, or of all; among equals the first.

    Raises ValueError if no switch reaches all of them.
    """
    near, switches = network.neighbours(), {*network.switches}
    leaves = [{far for _, far in near[host] if far in switches} for host in (network.hosts if hosts is None else hosts)]
    reach = {}
    for switch in network.switches:
        ways = ways_to(network, switch)
        lengths = [min((len(ways[leaf]) for leaf in own if leaf in ways), default=0) for own in leaves]
        if 0 not in lengths:
            reach[switch] = max(lengths, default=0)
    if not reach:
        raise ValueError("no switch reaches every host")
    return min(reach, key=reach.__getitem__)


def ways_to(network: Network, root: str) -> dict[str, list[str]]:
    """Return a shortest way over switches from each one to `root`, both ends included; hosts do not forward."""
    near, switches = network.neighbours(), {*network.switches}
    ways, waiting = {root: [root]}, [root]
    for here in waiting:  # grows while it is read
        for _, far in near[here]:
            if far in switches and far not in ways:
                ways[far] = [far, *ways[here]]
                waiting.append(far)
    return ways


def spanning_tree(network: Network, root: str) -> dict[str, tuple[str, int]]:
    """Return the switch above each one that `root` reaches, and the cable to it, by its index.

    To each switch leads the widest path, and of equals the shortest.  All other cables between switches would close
    loops.
    """
    # Dijkstra's algorithm for widest paths: a path is as wide as its narrowest link, and the widest is taken first.
    near, switches = network.neighbours(), {*network.switches}
    tree: dict[str, tuple[str, int]] = {}
    waiting = [(-math.inf, 0, -1, root, root)]
    while waiting:
        width, hops, link, switch, above = heapq.heappop(waiting)
        if switch in tree:
            continue
        tree[switch] = above, link
        for onward, far in near[switch]:
            if far in switches and far not in tree:
                heapq.heappush(waiting, (max(width, -network.cables[onward].mbit), hops + 1, onward, far, switch))
    del tree[root]
    return tree


def routes(network: Network, tree: dict[str, tuple[str, int]]) -> dict[str, list[Route]]:
    """Return for each switch its routes to all hosts and to all other switches that the tree reaches."""
    # From each target along the tree: the cable over which the search reaches a switch is that switch's route back.
    near, hosts, links = network.neighbours(), {*network.hosts}, {link for _, link in tree.values()}
    found: dict[str, list[Route]] = {switch: [] for switch in network.switches}
    for target in network.switches:
        attached = [link for link, far in near[target] if far in hosts]
        found[target] += [Route(to=link, link=link) for link in attached]
        places: list[int | str] = [*attached, target]
        waiting, seen = [target], {target}
        for switch in waiting:  # grows while it is read
            for link, far in near[switch]:
                if link in links and far not in seen:
                    seen.add(far)
                    waiting.append(far)
                    found[far] += [Route(to=place, link=link) for place in places]
    return found
