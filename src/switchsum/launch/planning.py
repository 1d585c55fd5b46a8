"""The trees of a `switchsum run --topology`: which switches of a network add, and where the workers stand.

Workers stand where the network has hosts: one a host, in order, or, if there are more of them, equally many on
each.  It needs what comes with the extra `trees`, so that nothing imports it that has one switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from switchsum.controller import trees as packing
from switchsum.controller.forest import AggregationTree, switches_of
from switchsum.controller.topology import Network
from switchsum.launch.tree import TreePlan
from switchsum.native.messages import receive_bytes
from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import MAX_WORKERS


def plan(network: Network, workers: int, *, has_wires: bool = False) -> TreePlan:
    """Plan the trees of a job; raises LocalError, which says why, if the network has none for it.

    With `has_wires` each worker has a host to itself, for a host's link is then a wire with the host's rate.
    """
    if has_wires and workers > len(network.hosts):
        raise UsageError(
            f"--links veth has one worker on each host, and the topology has {len(network.hosts)} hosts for "
            f"{workers} workers: --links shm or udp, or a --topology with more hosts"
        )
    standing = places(network.hosts, workers)
    hosts = tuple(dict.fromkeys(standing))
    notes: list[str] = []
    if len(hosts) == 1:
        near = [end for cable in network.cables if hosts[0] in cable.ends for end in cable.ends if end != hosts[0]]
        leaf_of, chosen = {hosts[0]: near[0]}, [_alone(near[0], hosts[0])]
    else:
        found = packing.plan(network, hosts)
        leaf_of = {host: found.trees[0].parents[host] for host in hosts}
        # A worker is at one switch: a tree that has its host at another one does not serve it.
        if any(tree.parents[host] != leaf for tree in found.trees for host, leaf in leaf_of.items()):
            before, found = found, packing.plan(_at_one_switch(network, leaf_of), hosts)
            if (lost := before.rate_mbit - found.rate_mbit) > 0:
                notes.append(
                    f"a worker is at one switch: its host's links to others would carry {lost:.6g} Mbit/s more"
                )
        chosen = list(found.trees)
        notes += [found.left_out] if found.left_out else []
    trees = tuple(({name: one.parents[name] for name in switches_of(one)[1:]}, one.rate_mbit) for one in chosen)
    leaves = tuple(leaf_of[host] for host in standing)
    for above, _ in trees:
        check_room(leaves, above)
    pairs = dict.fromkeys(tuple(sorted(pair)) for above, _ in trees for pair in above.items())
    return TreePlan(
        switches=tuple(dict.fromkeys(name for tree in chosen for name in switches_of(tree))),
        trees=trees,
        leaves=leaves,
        rates_mbit=tuple(_free_mbit(network, host, leaf_of[host]) for host in standing),
        trunks_mbit={(one, far): _free_mbit(network, one, far) for one, far in pairs},
        link_bytes=receive_bytes(),
        notes=tuple(notes),
    )


def _at_one_switch(network: Network, leaf_of: Mapping[str, str]) -> Network:
    """Return the network without the links of the hosts to other switches than these."""
    hosts = {*leaf_of}
    kept = (
        cable for cable in network.cables if all(leaf_of[host] in cable.ends for host in hosts.intersection(cable.ends))
    )
    return replace(network, cables=tuple(kept))


def _alone(switch: str, host: str) -> AggregationTree:
    """Return the tree of a single host, over which nothing has to be packed."""
    return AggregationTree(root=switch, rate_mbit=1.0, slots=1, levels=1, parents={host: switch})


def _free_mbit(network: Network, one: str, far: str) -> float:
    """Return what is free between two nodes, of all links that they have."""
    return sum(cable.free_mbit for cable in network.cables if {*cable.ends} == {one, far})


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
