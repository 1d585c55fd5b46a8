"""Aggregation trees, packed to the capacity of a network.

All links are full duplex, and each switch of a tree adds.  So a tree of rate x carries x Mbit/s of partial sums up and
x of results down on each of its links.  A packing is a set of trees whose rates together exceed no link's free
capacity.

1. Column generation packs as much rate as possible.  A linear program shares the capacity among the known trees.  Its
   dual prices say which links are dear, and trees that cost little at these prices join.
2. The fewest of these trees that reach 95 % of the rate are kept.

Both steps are Blink's (Wang et al., MLSys 2020).  Nothing depends on time or chance.

Jobs that run at the same time are planned together (`plan_jobs`).  Each is packed into what the others leave of the
links (`Loads.left`), and of trees that are equally fast it gets the one whose links and switches are used least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import scipy  # its parts are imported when they are used: they take half a second

from switchsum.topologies import Network
from switchsum_controller.trees.fabric import MOST_TREES
from switchsum_controller.trees.forest import AggregationTree
from switchsum_protocol.errors import UsageError

from .bounds import Bound, bound_of, cheapest, hosts_alone
from .loads import Burden, Loads, Pair, Placed, busiest, fair_rates, free_mbit, wanted_mbit
from .paths import MOST_LEVELS, Core, Floats, Search, Shape, Tree, core_of, shape_of
from .topology import TopologyError

ENOUGH: Final = 0.95
"""Part of the best rate that the fewest trees have to reach."""
MOST_ROUNDS: Final = 60
"""Rounds of column generation; small networks end long before."""
MOST_NEW: Final = 32
"""Trees that join in one round."""
MOST_CHOICES: Final = 48
"""Trees among which integer programming looks for the fewest: its time grows steeply with them."""
MOST_PASSES: Final = 4
"""How often all of several jobs are looked at again: each may do better once the others have been placed."""
_EXACT: Final = 1e-7
"""Relative error of rates that counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The trees of a job, and what is known of how good they are."""

    trees: tuple[AggregationTree, ...]
    """Largest rate first."""
    packed_mbit: float
    """Rate of all trees that were found together."""
    packed_trees: int
    """Number of trees of that packing."""
    best_single_mbit: float
    """Rate of the best single tree that was found."""
    bound: Bound
    hosts_alone_mbit: float
    """Highest rate of the hosts if no switch adds, in Mbit/s."""
    lost_mbit: float = 0.0
    """Rate that is lost because a job has MOST_TREES at most."""
    lost_trees: int = 0
    """Number of further trees that would reach it."""

    @property
    def rate_mbit(self) -> float:
        """Rate of an allreduce over the trees in Mbit/s of each host's values."""
        return sum(tree.rate_mbit for tree in self.trees)

    @property
    def left_out(self) -> str:
        """What is lost since a job has MOST_TREES at most, in words; empty: nothing."""
        if not self.lost_trees:
            return ""
        return (
            f"a job has at most {MOST_TREES} trees, and {len(self.trees) + self.lost_trees} would carry "
            f"{self.lost_mbit:.6g} Mbit/s more"
        )


def plan(
    network: Network,
    hosts: Sequence[str],
    *,
    slots: int = 256,
    most_levels: int = MOST_LEVELS,
    others: Loads = Loads(),  # noqa: B008 - frozen
) -> Plan:
    """Plan the trees of a job on these hosts, beside `others` that run at the same time.

    Raises UsageError for hosts that do not exist, and TopologyError, which says why, if no tree can serve the job.
    """
    packing = _pack(network, hosts, most_levels, others)
    return _planned(packing, packing.fewest(), slots)


def plan_jobs(
    network: Network, jobs: Sequence[Sequence[str]], *, slots: int = 256, most_levels: int = MOST_LEVELS
) -> list[Plan]:
    """Plan the trees of jobs that run at the same time, each given by its hosts, so that they spread over the network.

    One after the other the jobs get a tree each.  Then each of them is planned anew beside all others, over one tree or
    several, as long as the busiest links become less busy.  Rates are those of all jobs at once (`loads.fair_rates`).
    Raises what `plan` raises.
    """
    if len(jobs) == 1:
        return [plan(network, jobs[0], slots=slots, most_levels=most_levels)]
    wanted = [wanted_mbit(network, hosts) for hosts in jobs]

    def placed(plans: Sequence[Plan]) -> list[Placed]:
        return [(rate, one.trees) for rate, one in zip(wanted, plans, strict=False)]

    plans: list[Plan] = []
    for hosts in jobs:
        packing = _pack(network, hosts, most_levels, Loads.of(placed(plans)))
        plans.append(_planned(packing, packing.single(), slots))
    best = busiest(network, placed(plans))
    for _ in range(MOST_PASSES):
        before = best
        for number, hosts in enumerate(jobs):
            if best[0] <= 1:
                break  # each link carries all that is wanted of it
            for found in _beside(network, hosts, slots, most_levels, placed(plans), number):
                other = [*plans[:number], found, *plans[number + 1 :]]
                if (busy := busiest(network, placed(other))) < best:
                    plans, best = other, busy
        if best == before:
            break
    rates = fair_rates(network, placed(plans))
    return [_at_rate(one, rate) for one, rate in zip(plans, rates, strict=True)]


def _beside(
    network: Network, hosts: Sequence[str], slots: int, most_levels: int, placed: Sequence[Placed], number: int
) -> Iterator[Plan]:
    """Yield plans for the job of this number beside others: of its fair part of links, and of what the others leave."""
    packing = _pack(network, hosts, most_levels, Loads.of(_but(placed, number)))
    yield _planned(packing, packing.single(), slots)
    yield _planned(packing, packing.fewest(), slots)
    rates = fair_rates(network, placed)
    others = Loads.of(_but([(rate, trees) for rate, (_, trees) in zip(rates, placed, strict=True)], number))
    try:
        packing = _pack(others.spared(network), hosts, most_levels, Loads())
    except TopologyError:
        return
    yield _planned(packing, packing.fewest(), slots)


def _but(placed: Sequence[Placed], number: int) -> list[Placed]:
    return [one for at, one in enumerate(placed) if at != number]


def _at_rate(found: Plan, mbit: float) -> Plan:
    """Return a plan whose trees together have another rate."""
    part = mbit / found.rate_mbit
    return replace(found, trees=tuple(replace(tree, rate_mbit=tree.rate_mbit * part) for tree in found.trees))


def _pack(network: Network, hosts: Sequence[str], most_levels: int, others: Loads) -> Packing:
    """Return trees for a job that are packed into what others leave."""
    core = core_of(others.left(network), hosts)
    packing = Packing(core, most_levels, bound_of(core), others, free_mbit(network))
    packing.pack()
    return packing


def _planned(packing: Packing, fewest: dict[Tree, float], slots: int) -> Plan:
    """Return these trees of a packing as a plan, as many as a job may have; raises UsageError for too few slots."""
    core, chosen = packing.core, packing.largest(fewest, MOST_TREES)
    if slots < len(chosen):
        raise UsageError(
            f"{slots} slots are too few for {len(chosen)} trees, because each tree needs one: raise --slots"
        )
    ordered = sorted(chosen.items(), key=lambda item: (-round(item[1], 6), item[0]))
    shares = share(slots, [rate for _, rate in ordered])
    trees = [
        _name(core, packing.shapes[tree], rate, count) for (tree, rate), count in zip(ordered, shares, strict=True)
    ]
    return Plan(
        trees=tuple(trees),
        packed_mbit=packing.rate,
        packed_trees=int(np.count_nonzero(packing.rates > packing.rate * _EXACT)),
        best_single_mbit=max(packing.width(tree) for tree in packing.shapes),
        bound=packing.bound,
        hosts_alone_mbit=hosts_alone(core),
        lost_mbit=max(0.0, sum(fewest.values()) - sum(chosen.values())),
        lost_trees=len(fewest) - len(chosen),
    )


def share(slots: int, rates: Sequence[float]) -> list[int]:
    """Share slots in proportion to rates: one at least for each, and what remains to the largest remainders."""
    spare, total = slots - len(rates), sum(rates)
    wanted = [max(slots * rate / total - 1, 0.0) for rate in rates]
    scale = spare / sum(wanted) if sum(wanted) else 0.0
    shares = [1 + math.floor(part * scale) for part in wanted]
    by_remainder = sorted(range(len(rates)), key=lambda tree: math.floor(wanted[tree] * scale) - wanted[tree] * scale)
    for tree in by_remainder[: slots - sum(shares)]:
        shares[tree] += 1
    return shares


class Packing:
    """Trees that are known, and the rates that they get together."""

    def __init__(self, core: Core, most_levels: int, bound: Bound, others: Loads, free: Mapping[Pair, float]) -> None:
        self.shapes: dict[Tree, Shape] = {}
        """Trees that keep all limits."""
        self.rates: Floats = np.zeros(0)
        self.rate = 0.0
        self.bound = bound
        self.core = core
        self._most_levels = most_levels
        self._others, self._free = others, free
        self._refused: dict[Tree, str] = {}
        self._roots = self._reached()

    def pack(self) -> None:
        """Find trees until their rate is the bound, or no tree that is looked for would make it larger."""
        core = self.core
        even = 1 / core.free_mbit
        self._add(self._candidates(even))
        self._add(tree for least in self._widths() for tree in self._candidates(even, least))
        if not self.shapes:
            raise TopologyError(self._reason())
        self._solve()
        for number in range(MOST_ROUNDS):
            if self.rate >= self.bound.mbit * (1 - _EXACT):
                return
            prices, access = self._prices
            # Links that cost nothing would let trees wander: a little of their even price keeps them short.
            bent = prices + 1e-6 * even * float(core.free_mbit.min()) / max(1, len(even))
            mixed = bent if number % 2 == 0 else 0.5 * bent + 0.5 * even * float(prices @ core.free_mbit) / len(even)
            if self._improve(self._candidates(mixed), prices, access):
                continue
            if number % 2 == 0 and self._improve(self._candidates(bent + even * bent.max()), prices, access):
                continue
            if not core.is_small:
                if number % 2 == 0:
                    continue  # once more with mixed prices
                return
            exact = cheapest(core, bent)
            if exact is None or not self._improve([exact], prices, access):
                return

    def single(self) -> dict[Tree, float]:
        """Return the fastest tree and its rate; of equals the one whose links and switches others use least."""
        best = max(self.shapes, key=lambda tree: (round(self.width(tree), 6), *(-part for part in self._burden(tree))))
        return {best: self.width(best)}

    def fewest(self) -> dict[Tree, float]:
        """Return the fewest trees that were found to reach 95 % of the rate, with the rate of each."""
        enough = ENOUGH * self.rate
        trees, single = list(self.shapes), self.single()
        if sum(single.values()) >= enough:
            return single
        used = [tree for tree, rate in zip(trees, self.rates, strict=True) if rate > self.rate * _EXACT]
        best = self._thin_out(used, enough)
        if len(trees) <= MOST_CHOICES and len(best) > 2:
            choice = self._choose(trees, enough)
            if choice and len(choice) < len(best):
                best = choice
        return self._carrying(best)

    def largest(self, trees: dict[Tree, float], most: int) -> dict[Tree, float]:
        """Return so many of these trees at most: the one that carries least is dropped first."""
        while len(trees) > most:
            least = min(trees, key=lambda tree: (round(trees[tree], 6), tree))
            trees = self._carrying([tree for tree in trees if tree != least])
        return trees

    def _carrying(self, trees: list[Tree]) -> dict[Tree, float]:
        """Return the rates of these trees that are most together, without trees that carry nothing."""
        rates, _, _ = self._share(trees)
        return {tree: float(rate) for tree, rate in zip(trees, rates, strict=True) if rate > self.rate * _EXACT}

    def width(self, tree: Tree) -> float:
        """Return the rate of a tree that has the network for itself."""
        return min([self.core.access_mbit, *(float(self.core.free_mbit[link]) for link in tree)])

    def _burden(self, tree: Tree) -> Burden:
        """Return how busy other jobs keep the links and switches of a tree."""
        core, shape = self.core, self.shapes[tree]
        pairs = [frozenset((core.names[node], core.names[above])) for node, above in shape.parents.items()]
        switches = {core.names[node] for node in (*shape.parents, shape.root) if node < core.switch_count}
        return self._others.burden(pairs, switches, self._free)

    def _reached(self) -> list[int]:
        """Return the switches that are connected with the terminals."""
        core = self.core
        if len(core.terminals) == 1:
            return list(core.terminals)
        trees = Search(core, np.ones(len(core.tails)))
        return [root for root in range(core.switch_count) if trees.shortest([root])]

    def _widths(self) -> list[float]:
        """Return up to eight capacities: trees of wider links alone are often among the fewest."""
        found = sorted({float(width) for width in self.core.free_mbit} - {0.0})[1:]
        return found[:: max(1, -(-len(found) // 8))]

    def _candidates(self, prices: Floats, least: float = 0.0) -> Iterable[Tree]:
        core = self.core
        links = None if least <= 0 else np.flatnonzero(core.free_mbit >= least).tolist()
        search = Search(core, prices, links)
        yield from search.shortest(self._roots)
        if len(core.names) <= 64 or not self.shapes:
            for root in self._roots[:64]:
                tree = search.grown(root)
                if tree is not None:
                    yield tree

    def _add(self, trees: Iterable[Tree]) -> int:
        """Take in trees that are new and keep the limits; return how many there were."""
        before = len(self.shapes)
        for tree in trees:
            if tree not in self.shapes and tree not in self._refused:
                shape = shape_of(self.core, tree, self._most_levels)
                if isinstance(shape, str):
                    self._refused[tree] = shape
                else:
                    self.shapes[tree] = shape
        return len(self.shapes) - before

    def _improve(self, trees: Iterable[Tree], prices: Floats, access: float) -> bool:
        """Take in the trees that cost less than they earn, the cheapest first; return whether the rate grew or may."""
        costs = {tree: access + float(prices[list(tree)].sum()) for tree in trees if tree not in self.shapes}
        cheap = sorted((cost, tree) for tree, cost in costs.items() if cost < 1 - _EXACT)
        if not self._add(tree for _, tree in cheap[:MOST_NEW]):
            return False
        self._solve()
        return True

    def _solve(self) -> None:
        self.rates, prices, access = self._share(list(self.shapes))
        self.rate, self._prices = float(self.rates.sum()), (prices, access)

    def _matrix(self, trees: Sequence[Tree]) -> tuple[Any, Floats]:
        """Return rows for the links and one for the hosts' own links, columns for the trees; and the capacities."""
        core = self.core
        rows = np.array([link for tree in trees for link in (*tree, len(core.tails))], dtype=np.int64)
        starts = np.cumsum([0, *(len(tree) + 1 for tree in trees)])
        shape = (len(core.tails) + 1, len(trees))
        # The solver takes no infinite bound, which is that of hosts with one link where there are none.  Where there
        # are some, links between switches say nothing about a tree of a single switch.
        most = core.access_mbit if np.isfinite(core.access_mbit) else float(core.free_mbit.sum())
        return scipy.sparse.csc_array((np.ones(len(rows)), rows, starts), shape=shape), np.append(core.free_mbit, most)

    def _share(self, trees: Sequence[Tree]) -> tuple[Floats, Floats, float]:
        """Return the rates of these trees that are most together, the price of each link, and that of hosts' links."""
        if trees == [()] and np.isfinite(self.core.access_mbit):  # one switch: hosts' own links are all there is
            return np.array([self.core.access_mbit]), np.zeros(len(self.core.tails)), 1.0
        matrix, capacities = self._matrix(trees)
        found = scipy.optimize.linprog(-np.ones(len(trees)), A_ub=matrix, b_ub=capacities, method="highs")
        rates, prices = np.maximum(found.x, 0.0), np.maximum(-found.ineqlin.marginals, 0.0)
        # The solver may exceed a capacity by its tolerance, and a plan may not.
        rates = rates / max(1.0, float((matrix @ rates / capacities).max()))
        return rates, prices[:-1], float(prices[-1])

    def _thin_out(self, trees: list[Tree], enough: float) -> list[Tree]:
        """Drop the tree that carries least as long as the others reach the rate."""
        keep = trees
        while len(keep) > 1:
            rates, _, _ = self._share(keep)
            # Several at once while there are many: half of those that carry together less than what may be lost.
            order = sorted(range(len(keep)), key=lambda tree: (rates[tree], keep[tree]))
            for count in (len(keep) // 4, 1):
                gone = set(order[:count])
                fewer = [tree for number, tree in enumerate(keep) if number not in gone]
                if count and self._share(fewer)[0].sum() >= enough:
                    keep = fewer
                    break
            else:
                break
        return keep

    def _choose(self, trees: list[Tree], enough: float) -> list[Tree]:
        """Return the fewest trees by integer programming, of equals the fastest; empty if the search did not end."""
        matrix, capacities = self._matrix(trees)
        count = len(trees)
        widths = np.array([self.width(tree) for tree in trees])
        # Columns: the rates, then whether each tree is taken.
        costs = np.concatenate([np.full(count, -0.5 / self.rate), np.ones(count)])
        taken = scipy.sparse.csc_array(np.hstack([np.eye(count), -np.diag(widths)]))
        rates = scipy.sparse.csc_array(
            (matrix.data, matrix.indices, np.append(matrix.indptr, [matrix.indptr[-1]] * count)),
            shape=(matrix.shape[0], 2 * count),
        )
        total = np.concatenate([np.ones(count), np.zeros(count)])[None, :]
        found = scipy.optimize.milp(
            costs,
            integrality=np.concatenate([np.zeros(count), np.ones(count)]),
            bounds=scipy.optimize.Bounds(0.0, np.concatenate([widths, np.ones(count)])),
            constraints=[
                scipy.optimize.LinearConstraint(rates, -np.inf, capacities),
                scipy.optimize.LinearConstraint(taken, -np.inf, 0.0),
                scipy.optimize.LinearConstraint(total, enough, np.inf),
            ],
            options={"node_limit": 200},
        )
        return [] if found.x is None else [tree for tree, on in zip(trees, found.x[count:], strict=True) if on > 0.5]

    def _reason(self) -> str:
        reasons = sorted(set(self._refused.values()))
        return reasons[0] if reasons else "no tree over links with free capacity reaches all hosts of the job"


def _name(core: Core, shape: Shape, rate: float, slots: int) -> AggregationTree:
    parents = {core.names[node]: core.names[parent] for node, parent in sorted(shape.parents.items())}
    for switch, below in core.leaves.items():
        parents |= dict.fromkeys(below, core.names[switch])
    return AggregationTree(
        root=core.names[shape.root], rate_mbit=rate, slots=slots, levels=shape.levels, parents=parents
    )
