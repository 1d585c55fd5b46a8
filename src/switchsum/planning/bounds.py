"""Bounds the rate of an allreduce over trees, and finds the cheapest tree exactly: linear programs and cuts.

Take any packing of trees.  From the first terminal to each other one, it has a flow as large as the packing's rate.
All these flows share the links' capacities.  So no packing is faster than the largest rate at which such flows exist
(the bidirected cut relaxation of Steiner trees).  Larger networks get the weaker bound by cuts: the least maximum flow
from the first terminal to any other.

`hosts_alone` is the rate where no switch adds: that of the best allgather, twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy  # its parts are imported when they are used: they take half a second

from .paths import Core, Floats, Search, Tree

MOST_BRANCHES: Final = 2000
"""Nodes of the branch-and-bound search for one tree.  A limit in time would give another answer on a slow machine."""
_LARGEST: Final = 1 << 30
"""Flows are integers of 32 bits: capacities are scaled to sum up to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A rate that no packing of trees exceeds."""

    mbit: float
    by: str
    """`linear program` or `cuts`."""


class _Flows:
    """The rows that say: from the first terminal a flow reaches each of the others, within what the arcs offer.

    Columns: the offer of each arc, then the flow of each arc for each terminal, and the rate as the last one.
    """

    def __init__(self, core: Core) -> None:
        links = np.arange(len(core.tails))
        # No arc leaves a host but the first terminal, which is one only if there is no terminal that is a switch.
        self.root = min(core.terminals)
        back = links[(core.heads < core.switch_count) | (core.heads == self.root)]
        out = links[core.heads != self.root] if self.root >= core.switch_count else links
        self.link = np.concatenate([out, back])
        self.source = np.concatenate([core.tails[out], core.heads[back]])
        self.target = np.concatenate([core.heads[out], core.tails[back]])
        self.arcs, self.others = len(self.link), [node for node in core.terminals if node != self.root]
        self.columns = self.arcs * (1 + len(self.others)) + 1
        self.links, self.nodes = len(links), len(core.names)

    def conservation(self) -> Any:
        """Return rows that are 0: for each terminal and node, what goes in less what goes out and what stays."""
        rows, columns, values = [], [], []
        count, arcs = self.nodes, np.arange(self.arcs)
        for number, terminal in enumerate(self.others):
            first = self.arcs * (1 + number)
            rows += [number * count + self.target, number * count + self.source]
            columns += [first + arcs, first + arcs]
            values += [np.ones(self.arcs), -np.ones(self.arcs)]
            rows.append(np.array([number * count + terminal, number * count + self.root]))
            columns.append(np.full(2, self.columns - 1))
            values.append(np.array([-1.0, 1.0]))
        return self._matrix(rows, columns, values, count * len(self.others))

    def within_offers(self) -> Any:
        """Return rows that are at most 0: the flow of each arc less what it offers."""
        arcs, many = np.arange(self.arcs), len(self.others)
        rows = np.arange(self.arcs * many)
        return self._matrix(
            [rows, rows],
            [self.arcs + rows, np.tile(arcs, many)],
            [np.ones(len(rows)), -np.ones(len(rows))],
            len(rows),
        )

    def offers(self) -> Any:
        """Return a row for each link: what its two arcs offer together."""
        return self._matrix([self.link], [np.arange(self.arcs)], [np.ones(self.arcs)], self.links)

    def leaving(self) -> Any:
        """Return one row, at most 0, which says that a host sends each value to one switch alone."""
        own = np.flatnonzero(self.source == self.root)
        columns = np.append(own, self.columns - 1)
        return self._matrix([np.zeros(len(columns), int)], [columns], [np.append(np.ones(len(own)), -1.0)], 1)

    def _matrix(self, rows: list[Any], columns: list[Any], values: list[Any], height: int) -> Any:
        place = (np.concatenate(rows), np.concatenate(columns))
        return scipy.sparse.csr_array(
            scipy.sparse.coo_array((np.concatenate(values), place), shape=(height, self.columns))
        )


def bound_of(core: Core) -> Bound:
    """Return a bound of the rate: by the linear program where the network is small enough, else by cuts."""
    if len(core.terminals) == 1:
        return Bound(mbit=core.access_mbit, by="cuts")
    if not core.is_small:
        return Bound(mbit=least_cut(core), by="cuts")
    flows = _Flows(core)
    upper = [flows.within_offers(), flows.offers()]
    limits = [np.zeros(upper[0].shape[0]), core.free_mbit]
    if flows.root >= core.switch_count:
        upper.append(flows.leaving())
        limits.append(np.zeros(1))
    costs = np.zeros(flows.columns)
    costs[-1] = -1.0
    most = [(0.0, None)] * (flows.columns - 1) + [(0.0, None if math.isinf(core.access_mbit) else core.access_mbit)]
    equal = flows.conservation()
    found = scipy.optimize.linprog(
        costs,
        A_ub=scipy.sparse.vstack(upper, format="csr"),
        b_ub=np.concatenate(limits),
        A_eq=equal,
        b_eq=np.zeros(equal.shape[0]),
        bounds=most,
        method="highs",
    )
    return Bound(mbit=float(-found.fun), by="linear program")


def least_cut(core: Core) -> float:
    """Return the least of the maximum flows between the first terminal and each other one, in Mbit/s."""
    if len(core.terminals) == 1:
        return core.access_mbit
    root = core.terminals[0]
    scale = min(1000.0, _LARGEST / float(core.free_mbit.sum()))
    capacity = np.ceil(core.free_mbit * scale).astype(np.int32)
    back = (core.heads < core.switch_count) | (core.heads == root)
    both = (np.concatenate([core.tails, core.heads[back]]), np.concatenate([core.heads, core.tails[back]]))
    size = len(core.names)
    graph = scipy.sparse.csr_array(
        (np.concatenate([capacity, capacity[back]]), both), shape=(size, size), dtype=np.int32
    )
    graph.sum_duplicates()
    flows = (
        float(scipy.sparse.csgraph.maximum_flow(graph, root, terminal).flow_value) / scale
        for terminal in core.terminals[1:]
    )
    return min([core.access_mbit, *flows])


def hosts_alone(core: Core) -> float:
    """Return the rate in Mbit/s of the fastest allreduce in which hosts add and switches forward.

    It is a reduce-scatter and an allgather, each with equal parts of N hosts.  Take a set of nodes that lacks a host.
    The links that leave it have to carry the parts of all hosts in it.  So a host gives its part away at most at the
    rate `capacity that leaves / hosts inside`, for the set with the least of these.  Trees of the hosts reach that rate
    (Zhao et al., ForestColl, 2024).  Maximum flows from all hosts to each one find the set, by Dinkelbach's steps: a
    cut that is too small gives the next rate to try, until there is none.
    """
    weights = np.zeros(len(core.names))
    weights[list(core.terminals)] = [len(core.leaves.get(node, ".")) for node in core.terminals]
    hosts = float(weights.sum())
    rate = core.access_mbit / (hosts - 1)
    if len(core.terminals) > 1:
        rate = min(rate, 2 * float(core.free_mbit.sum()))
        for terminal in core.terminals:
            while (tighter := _tightest(core, weights, terminal, rate)) < rate * (1 - 1e-6):
                rate = tighter
    return rate * hosts / 2


def _tightest(core: Core, weights: Floats, terminal: int, rate: float) -> float:
    """Return `capacity that leaves / hosts inside` of the set that carries least of this rate towards a terminal."""
    source = size = len(core.names)
    inside = np.flatnonzero(weights)
    tails = np.concatenate([core.tails, core.heads, np.full(len(inside), source)])
    heads = np.concatenate([core.heads, core.tails, inside])
    capacity = np.concatenate([core.free_mbit, core.free_mbit, weights[inside] * rate])
    whole = np.round(capacity * (_LARGEST / float(capacity.sum()))).astype(np.int32)
    graph = scipy.sparse.csr_array((whole, (tails, heads)), shape=(size + 1, size + 1), dtype=np.int32)
    graph.sum_duplicates()
    left = graph - scipy.sparse.csgraph.maximum_flow(graph, source, terminal).flow
    left.eliminate_zeros()
    near = np.zeros(size + 1, dtype=bool)
    near[scipy.sparse.csgraph.breadth_first_order(left, source, return_predecessors=False)] = True
    links = slice(0, 2 * len(core.tails))
    leaving = float(capacity[links][near[tails[links]] & ~near[heads[links]]].sum())
    held = float(weights[near[:size]].sum())
    return leaving / held if held else math.inf


def cheapest(core: Core, prices: Floats) -> Tree | None:
    """Return the tree that costs least, by integer programming; None if the search did not end within its limit."""
    flows = _Flows(core)
    upper = [flows.within_offers(), flows.offers()]
    limits = [np.zeros(upper[0].shape[0]), np.ones(flows.links)]
    if flows.root >= core.switch_count:
        upper.append(flows.leaving())
        limits.append(np.zeros(1))
    equal = flows.conservation()
    costs = np.zeros(flows.columns)
    costs[: flows.arcs] = prices[flows.link]
    whole = np.zeros(flows.columns)
    whole[: flows.arcs] = 1
    lower = np.zeros(flows.columns)
    lower[-1] = 1.0
    found = scipy.optimize.milp(
        costs,
        integrality=whole,
        bounds=scipy.optimize.Bounds(lower, np.ones(flows.columns)),
        constraints=[
            scipy.optimize.LinearConstraint(scipy.sparse.vstack(upper, format="csr"), -np.inf, np.concatenate(limits)),
            scipy.optimize.LinearConstraint(equal, 0.0, 0.0),
        ],
        options={"node_limit": MOST_BRANCHES},
    )
    if found.status != 0:
        return None
    used = sorted({int(flows.link[arc]) for arc in np.flatnonzero(found.x[: flows.arcs] > 0.5)})
    trees = Search(core, prices, used).shortest([int(core.tails[used[0]])]) if used else []
    return trees[0] if trees else None
