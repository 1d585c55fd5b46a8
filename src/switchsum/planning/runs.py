"""The trees of a `switchsum run --topology`: which switches of a network add, and where the workers stand.

Workers stand where the network has hosts: one a host, in order, or, if there are more of them, equally many on
each.  It needs what comes with the extra `trees`, so that nothing imports it that has one switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from switchsum.launch.link_options import Links
from switchsum.launch.tree import Rail, TreePlan
from switchsum.planning import trees as packing
from switchsum.topologies import Network
from switchsum_controller.trees.forest import AggregationTree, switches_of
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MAX_WORKERS, MOST_LINKS
from switchsum_switch.wires.messages import receive_bytes


def plan(network: Network, workers: int, kind: Links) -> TreePlan:
    """Plan the trees of a job; raises LocalError, which says why, if the network has none for it.

    On wires each worker has a host to itself, for a host's link is then a wire with the host's rate.  On shared memory
    each has one link.
    """
    if kind is Links.VETH and workers > len(network.hosts):
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
        if kind is not Links.SHM and (planned := on_rails(network, standing, found.trees, found.left_out)) is not None:
            return planned
        leaf_of = {host: found.trees[0].parents[host] for host in hosts}
        # A worker is at one switch: a tree that has its host at another one does not serve it.
        if any(tree.parents[host] != leaf for tree in found.trees for host, leaf in leaf_of.items()):
            before, found = found, packing.plan(at_one_switch(network, leaf_of), hosts)
            if (lost := before.rate_mbit - found.rate_mbit) > 0:
                why = "not on shared memory" if kind is Links.SHM else "not over these trees"
                notes.append(
                    f"a worker is at one switch: its host's links to others would carry {lost:.6g} Mbit/s more, {why}"
                )
        chosen = list(found.trees)
        notes += [found.left_out] if found.left_out else []
    trees = tuple((_between_switches(one), one.rate_mbit) for one in chosen)
    rail = _rail(network, standing, leaf_of, 0.0)
    for above, _ in trees:
        check_bitmaps(rail.leaves, above)
    return _planned(network, chosen, trees, [rail], notes)


def on_rails(
    network: Network, standing: Sequence[str], trees: Sequence[AggregationTree], left_out: str
) -> TreePlan | None:
    """Return a plan in which each tree has a link of each host to itself; None where trees are not so.

    One switch is above another one in all of them or in none: workers and controller know one tree for all rails.
    """
    if not 1 < len(trees) <= MOST_LINKS or any(
        len({tree.parents[host] for tree in trees}) < len(trees) for host in standing
    ):
        return None
    above: dict[str, str] = {}
    rails = []
    for tree in trees:
        parents = _between_switches(tree)
        if any(above.setdefault(name, parent) != parent for name, parent in parents.items()):
            return None
        rails.append(_rail(network, standing, tree.parents, tree.rate_mbit))
        check_bitmaps(rails[-1].leaves, parents)
    if any(tree.root in above for tree in trees):
        return None
    return _planned(network, trees, ((above, 1.0),), rails, [left_out] if left_out else [])


def _between_switches(tree: AggregationTree) -> dict[str, str]:
    """Return the switch above each one of a tree, without its hosts."""
    return {name: tree.parents[name] for name in switches_of(tree)[1:]}


def _rail(network: Network, standing: Sequence[str], leaf_of: Mapping[str, str], share_mbit: float) -> Rail:
    return Rail(
        leaves=tuple(leaf_of[host] for host in standing),
        rates_mbit=tuple(_free_mbit(network, host, leaf_of[host]) for host in standing),
        share_mbit=share_mbit,
    )


def _planned(
    network: Network,
    chosen: Sequence[AggregationTree],
    trees: tuple[tuple[Mapping[str, str], float], ...],
    rails: Sequence[Rail],
    notes: Sequence[str],
) -> TreePlan:
    pairs = dict.fromkeys(tuple(sorted(pair)) for above, _ in trees for pair in above.items())
    return TreePlan(
        switches=tuple(dict.fromkeys(name for tree in chosen for name in switches_of(tree))),
        trees=trees,
        rails=tuple(rails),
        trunks_mbit={(one, far): _free_mbit(network, one, far) for one, far in pairs},
        link_bytes=receive_bytes(),
        notes=tuple(notes),
    )


def at_one_switch(network: Network, leaf_of: Mapping[str, str]) -> Network:
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


def check_bitmaps(leaves: Sequence[str], above: Mapping[str, str]) -> None:
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
