"""Where the ranks of a job are on a network: over which trees they add, and which link of each host leads to which.

Hosts with links to several switches have *rails*, as `switchsum run` has them (`planning.runs`), if each tree has a
link of each host to itself.  Other trees are planned for hosts that are at one switch each.

Some switches may only forward (`behind`): then all jobs are added at one switch that the others lead to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from switchsum import topologies
from switchsum.launch.tree import TreePlan
from switchsum.planning import runs, trees
from switchsum_controller.trees.forest import AggregationTree, switches_of
from switchsum_protocol.errors import UsageError
from switchsum_switch.wires.headers import Address

Cables = Mapping[str, topologies.Cable]
"""The cable of each host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The trees of a job, and the links of its hosts."""

    trees: Sequence[AggregationTree]
    """Trees over which the job's values are added; with rails, one tree for each rail."""
    parents: Sequence[Mapping[str, str]]
    """For each tree, the switch above each switch; with rails, one such mapping for all trees."""
    rails: Sequence[Cables]
    """Links of the hosts: each host has one, or several that lead to as many switches."""
    shares_mbit: Sequence[float] = ()
    """Rates over each rail, in Mbit/s. Empty: hosts have one link."""
    ways: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The way from each switch that only forwards to the one that adds, both ends included."""

    def leaf(self, rail: int, host: str) -> str:
        """Return the switch to which a host's link leads."""
        [leaf] = {*self.rails[rail][host].ends} - {host}
        return leaf

    def way(self, rail: int, host: str) -> Sequence[str]:
        """Return the switches from a host's link to the one that takes its contributions."""
        leaf = self.leaf(rail, host)
        return self.ways.get(leaf, [leaf])


def behind(planned: topologies.Network, hosts: Sequence[str], root: str) -> Placement:
    """Place hosts that are added at one switch, to which all other switches forward their frames.

    Raises UsageError if a host has several links, or none that leads there.
    """
    ways, leaves = topologies.ways_to(planned, root), _leaves(planned, hosts)
    if lost := [host for host, leaf in leaves.items() if leaf not in ways]:
        raise UsageError(f"host {lost[0]} does not reach {root}")
    rails = rails_of(planned, hosts, 1)
    tree = AggregationTree(
        root=root,
        rate_mbit=min(rates_bps(rails)) / 1e6,
        slots=1,
        levels=max(len(ways[leaf]) for leaf in leaves.values()),
        parents=dict.fromkeys(hosts, root),
    )
    return Placement(trees=[tree], parents=[{}], rails=rails, ways={name: ways[name] for name in ways if name != root})


def middle(planned: topologies.Network, hosts: Sequence[str]) -> str:
    """Return the switch from which the farthest host is the fewest links away; the first of several.

    Raises UsageError if a host has several links, or no switch reaches all hosts.
    """
    _leaves(planned, hosts)
    try:
        return topologies.center(planned, hosts)
    except ValueError as error:
        raise UsageError("no switch reaches all hosts") from error


def _leaves(planned: topologies.Network, hosts: Sequence[str]) -> dict[str, str]:
    """Return the switch of each host; raises UsageError if a host has several links."""
    near: dict[str, list[str]] = {host: [] for host in hosts}
    for cable in merged(planned):
        for one, far in (cable.ends, cable.ends[::-1]):
            if one in near:
                near[one].append(far)
    for host, found in near.items():
        if len(found) != 1:
            raise UsageError(f"host {host} has {len(found)} links, but one leads to the one switch that adds")
    return {host: leaf for host, [leaf] in near.items()}


def place(planned: topologies.Network, hosts: Sequence[str], slots: int) -> Placement:
    """Plan the trees of a job, over rails if hosts have them.

    Raises UsageError, and TopologyError where no tree serves these hosts.
    """
    [placed] = place_all(planned, [hosts], slots)
    return placed


def place_all(planned: topologies.Network, jobs: Sequence[Sequence[str]], slots: int) -> list[Placement]:
    """Plan the trees of jobs that run at the same time, spread over links and roots; raises what `place` raises."""
    found = [one.trees for one in trees.plan_jobs(planned, jobs, slots=slots)]
    plans = [runs.on_rails(planned, hosts, own, "") for hosts, own in zip(jobs, found, strict=True)]
    leaf_of = {
        host: own[0].parents[host]
        for hosts, own, plan in zip(jobs, found, plans, strict=True)
        for host in hosts
        if plan is None
    }
    if any(tree.parents.get(host, leaf) != leaf for own in found for tree in own for host, leaf in leaf_of.items()):
        found = [one.trees for one in trees.plan_jobs(runs.at_one_switch(planned, leaf_of), jobs, slots=slots)]
    return [
        _over_trees(planned, hosts, own) if plan is None else _over_rails(planned, hosts, own, plan)
        for hosts, own, plan in zip(jobs, found, plans, strict=True)
    ]


def _over_rails(
    planned: topologies.Network, hosts: Sequence[str], found: Sequence[AggregationTree], plan: TreePlan
) -> Placement:
    """Return where a job is whose trees have a link of each host to themselves."""
    cables = merged(planned)
    return Placement(
        trees=found,
        parents=[plan.trees[0][0]],
        rails=[_cables_to(cables, hosts, dict(zip(hosts, rail.leaves, strict=True))) for rail in plan.rails],
        shares_mbit=[rail.share_mbit for rail in plan.rails],
    )


def _over_trees(planned: topologies.Network, hosts: Sequence[str], found: Sequence[AggregationTree]) -> Placement:
    """Return where a job is whose hosts are at one switch each."""
    above = [{name: tree.parents[name] for name in switches_of(tree)[1:]} for tree in found]
    leaf_of = {host: found[0].parents[host] for host in hosts}
    return Placement(trees=found, parents=above, rails=[_cables_to(merged(planned), hosts, leaf_of)])


def rails_of(planned: topologies.Network, hosts: Sequence[str], slots: int) -> Sequence[Cables]:
    """Return the cable of each host, for each rail; trees are planned only where a host has several."""
    near: dict[str, list[topologies.Cable]] = {host: [] for host in hosts}
    for cable in merged(planned):
        for end in cable.ends:
            if end in near:
                near[end].append(cable)
    for host, found in near.items():
        if not found:
            raise UsageError(f"host {host} has no link")
    if any(len(found) > 1 for found in near.values()):
        return place(planned, hosts, slots).rails
    return [{host: found[0] for host, found in near.items()}]


def rates_bps(rails: Sequence[Cables]) -> list[float]:
    """Return the rate of each rail: of its slowest link in its slower direction."""
    return [min(_slower_mbit(cable) for cable in cables.values()) * 1e6 for cables in rails]


def _slower_mbit(cable: topologies.Cable) -> float:
    return cable.free_mbit if cable.up_mbit is None else min(cable.free_mbit, cable.up_mbit)


def merged(planned: topologies.Network) -> list[topologies.Cable]:
    """Return the cables, those between the same two nodes as one."""
    found: dict[frozenset[str], topologies.Cable] = {}
    for cable in planned.cables:
        key = frozenset(cable.ends)
        before = found.get(key)
        mbit = cable.free_mbit + (before.mbit if before else 0.0)
        up_mbit = None if cable.up_mbit is None else cable.up_mbit + ((before.up_mbit or 0.0) if before else 0.0)
        delays = [one.delay_ms for one in (cable, before) if one is not None and one.delay_ms is not None]
        found[key] = topologies.Cable(
            ends=before.ends if before else cable.ends,
            mbit=mbit,
            up_mbit=up_mbit,
            delay_ms=max(delays, default=None),
        )
    return list(found.values())


def _cables_to(cables: Sequence[topologies.Cable], hosts: Sequence[str], leaf_of: Mapping[str, str]) -> Cables:
    by_ends = {frozenset(cable.ends): cable for cable in cables}
    return {host: by_ends[frozenset((host, leaf_of[host]))] for host in hosts}


def host_address(rank: int, link: int = 0) -> Address:
    """Return the address of a link of a rank's host."""
    mac, ip = 0x02_00_00_00_00_00 + (link << 24), 0x0A_00_00_00 + (link << 16)
    return Address(mac=mac + rank + 1, ip=ip + rank + 1, port=40_000)
