"""What the trees of several jobs put on the links and switches of a network, and what that leaves to one more job.

Jobs of which nothing is known are alike: each sends as fast as its hosts can, so they share a link fairly.  A link
gives each of them the same rate, and what a slower one leaves goes to the others (max-min fairness).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from switchsum.topologies import Network
from switchsum_controller.trees.forest import AggregationTree, switches_of

Pair = frozenset[str]
"""The two ends of a link. Cables between the same two nodes are one link here, since a tree names nodes."""
Placed = tuple[float, Sequence[AggregationTree]]
"""A job: how fast its hosts can send, in Mbit/s, and its trees."""
Burden = tuple[float, float, float]
"""How busy the way of a tree is: its busiest link, its links together, its switches together. Less is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """What some jobs would send over links and switches, in Mbit/s, if each of them sent as fast as its hosts can."""

    links: Mapping[Pair, tuple[float, ...]] = field(default_factory=dict)
    """By the ends of a link, the rate of each job that uses it."""
    switches: Mapping[str, float] = field(default_factory=dict)
    """By name, the rates of the trees that pass a switch."""

    @staticmethod
    def of(jobs: Iterable[Placed]) -> Loads:
        """Return what jobs come to."""
        links: dict[Pair, tuple[float, ...]] = {}
        switches: dict[str, float] = {}
        for rate_mbit, trees in jobs:
            for pair, part in parts_of(trees).items():
                links[pair] = (*links.get(pair, ()), rate_mbit * part)
            for tree, part in zip(trees, shares_of(trees), strict=True):
                for name in switches_of(tree):
                    switches[name] = switches.get(name, 0.0) + rate_mbit * part
        return Loads(links=links, switches=switches)

    def left(self, network: Network) -> Network:
        """Return the network as one more job finds it: of each link it may take its fair part."""
        free = free_mbit(network)
        return _without(network, {pair: free[pair] - fair_part(free[pair], by) for pair, by in self.links.items()})

    def spared(self, network: Network) -> Network:
        """Return the network with what these rates leave, so that one more job takes nothing from the others."""
        return _without(network, {pair: sum(rates) for pair, rates in self.links.items()})

    def burden(self, pairs: Collection[Pair], switches: Collection[str], free: Mapping[Pair, float]) -> Burden:
        """Return how busy a tree's links and switches are; `free` is what links have free, in Mbit/s."""
        busy = [sum(self.links.get(pair, ())) / free[pair] for pair in pairs if free[pair] > 0]
        return (
            round(max(busy, default=0.0), 6),
            round(sum(busy), 6),
            round(sum(self.switches.get(name, 0.0) for name in switches), 6),
        )


def _without(network: Network, taken: Mapping[Pair, float]) -> Network:
    """Return a network of whose links so much is reserved, too, in Mbit/s."""
    free = free_mbit(network)
    gone = {pair: min(1.0, mbit / free[pair]) for pair, mbit in taken.items() if free[pair] > 0}
    cables = (
        replace(cable, reserved_mbit=cable.reserved_mbit + gone.get(frozenset(cable.ends), 0.0) * cable.free_mbit)
        for cable in network.cables
    )
    return replace(network, cables=tuple(cables)) if gone else network


def free_mbit(network: Network) -> dict[Pair, float]:
    """Return what each link has free, in Mbit/s, all cables between its ends together."""
    found: dict[Pair, float] = {}
    for cable in network.cables:
        pair = frozenset(cable.ends)
        found[pair] = found.get(pair, 0.0) + cable.free_mbit
    return found


def fair_part(mbit: float, others: Sequence[float]) -> float:
    """Return what is left for one more sender on a link, of which others want these rates: all get the same at most."""
    left = mbit
    for count, wanted in zip(range(len(others), 0, -1), sorted(others), strict=True):
        if wanted >= (part := left / (count + 1)):
            return part
        left -= wanted
    return left


def shares_of(trees: Sequence[AggregationTree]) -> list[float]:
    """Return the part of a job's values that each of its trees carries."""
    total = sum(tree.rate_mbit for tree in trees)
    return [tree.rate_mbit / total for tree in trees]


def parts_of(trees: Sequence[AggregationTree]) -> dict[Pair, float]:
    """Return the part of a job's values that each link carries each way; those of the hosts are among them."""
    found: dict[Pair, float] = {}
    for tree, part in zip(trees, shares_of(trees), strict=True):
        for pair in map(frozenset, tree.parents.items()):
            found[pair] = found.get(pair, 0.0) + part
    return found


def wanted_mbit(network: Network, hosts: Sequence[str]) -> float:
    """Return how fast a job could send if no link between switches limited it: as its slowest host can."""
    found = dict.fromkeys(hosts, 0.0)
    for cable in network.cables:
        for end in cable.ends:
            if end in found:
                found[end] += cable.free_mbit
    return min(found.values(), default=0.0)


def busiest(network: Network, jobs: Sequence[Placed]) -> list[float]:
    """Return how much is wanted of each link that some job uses, as part of what it has free, the most first."""
    free, loads = free_mbit(network), Loads.of(jobs)
    return sorted((round(sum(rates) / free[pair], 9) for pair, rates in loads.links.items()), reverse=True)


def fair_rates(network: Network, jobs: Sequence[Placed]) -> list[float]:
    """Return the rate of each job, in Mbit/s, while all send at the same time: all get the same until a link is full.

    Then those that use it stay at that rate, and the others get more.
    """
    left = free_mbit(network)
    parts = [parts_of(trees) for _, trees in jobs]
    rates, growing = [0.0] * len(jobs), set(range(len(jobs)))
    while growing:
        used: dict[Pair, float] = {}
        for job in sorted(growing):
            for pair, part in parts[job].items():
                used[pair] = used.get(pair, 0.0) + part
        steps = {pair: left[pair] / part for pair, part in used.items()}
        step = min([*steps.values(), *(jobs[job][0] - rates[job] for job in growing)])
        for job in growing:
            rates[job] += step
        for pair, part in used.items():
            left[pair] -= step * part
        full = {pair for pair, most in steps.items() if math.isclose(most, step, rel_tol=1e-9, abs_tol=1e-9)}
        growing = {
            job
            for job in growing
            if not full & parts[job].keys() and not math.isclose(rates[job], jobs[job][0], rel_tol=1e-9)
        }
    return rates
