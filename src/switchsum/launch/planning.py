"""The tree of a `switchsum run --topology`: which switches of a network add, and where the workers stand.

Workers stand where the network has hosts: one a host, in order, or, if there are more of them, equally many on
each.  It needs what comes with the extra `trees`, so that nothing imports it that has one switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from switchsum.controller import trees
from switchsum.controller.forest import switches_of
from switchsum.controller.topology import Network
from switchsum.launch.tree import TreePlan
from switchsum.native.messages import receive_bytes
from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import MAX_WORKERS


def plan(network: Network, workers: int) -> TreePlan:
    """Plan the tree of a job; raises LocalError, which says why, if the network has none for it."""
    standing = places(network.hosts, workers)
    hosts = tuple(dict.fromkeys(standing))
    link_bytes = receive_bytes()
    if len(hosts) == 1:
        near = [end for cable in network.cables if hosts[0] in cable.ends for end in cable.ends if end != hosts[0]]
        check_room((near[0],) * workers, {})
        return TreePlan(parents={}, root=near[0], leaves=(near[0],) * workers, link_bytes=link_bytes)
    best = max(trees.plan(network, hosts).trees, key=lambda tree: tree.rate_mbit)
    above = {name: best.parents[name] for name in switches_of(best)[1:]}
    leaves = tuple(best.parents[host] for host in standing)
    check_room(leaves, above)
    return TreePlan(parents=above, root=best.root, leaves=leaves, link_bytes=link_bytes)


def check_room(leaves: Sequence[str], above: Mapping[str, str]) -> None:
    """Refuse more members at a switch than its bitmaps have bits; raises UsageError, before anything is started."""
    workers, switches = Counter(leaves), Counter(above.values())
    for name in workers | switches:
        if workers[name] + switches[name] > MAX_WORKERS:
            raise UsageError(
                f"switch {name} would have {workers[name]} workers and {switches[name]} switches below, and its "
                f"bitmaps have {MAX_WORKERS} bits: fewer -n, or a --topology with more leaves"
            )


def places(hosts: Sequence[str], workers: int) -> list[str]:
    """Return the host of each rank."""
    if workers <= len(hosts):
        return list(hosts[:workers])
    return [hosts[rank * len(hosts) // workers] for rank in range(workers)]
