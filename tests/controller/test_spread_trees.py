"""Trees of several jobs are spread over links and roots by load: held against the best placement there is."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

pytest.importorskip("yaml")
pytest.importorskip("scipy")

import numpy as np
from scipy.optimize import linprog

from switchsum.planning.loads import Loads, Pair, Placed, busiest, fair_part, fair_rates, free_mbit, wanted_mbit
from switchsum.planning.sources import read
from switchsum.planning.topology import problems
from switchsum.planning.trees import Plan, plan, plan_jobs
from switchsum.topologies import Cable, Network

MANY = 99
"""Levels that no tree of these tests has."""
WORST = 2.0
"""The busiest link is at most so many times as busy as in the best placement that there is. Of 1,000 networks drawn
like these, the worst has 1.5 times as much."""
USUAL = 1.15
"""The same on average of the networks of one run: 1.013 of those 1,000."""


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def drawn(seed: int) -> tuple[Network, list[list[str]]]:
    """Draw a small network, and two to four jobs on its hosts."""
    draw = random.Random(seed)
    switches = [f"s{number}" for number in range(draw.randint(3, 6))]
    pairs = [(switches[draw.randrange(place)], name) for place, name in enumerate(switches) if place]
    others = [pair for pair in itertools.combinations(switches, 2) if pair not in pairs]
    pairs += draw.sample(others, min(len(others), draw.randint(0, 4)))
    rates = draw.choice([[1000.0], [400.0], [100.0, 400.0, 1000.0], [250.0, 1000.0]])
    hosts = [f"h{number}" for number in range(8)]
    cables = [Cable(ends=pair, mbit=draw.choice(rates)) for pair in pairs]
    cables += [Cable(ends=(host, draw.choice(switches)), mbit=1000.0) for host in hosts]
    network = Network(switches=tuple(switches), hosts=tuple(hosts), cables=tuple(cables))
    assert problems(network) == []
    jobs = draw.randint(2, 4)
    size = draw.randint(2, len(hosts) // jobs)
    members = draw.sample(hosts, size * jobs)
    return network, [members[number::jobs] for number in range(jobs)]


def every_tree(network: Network, hosts: Sequence[str]) -> list[list[Pair]]:
    """Return the links between switches of each tree that connects these hosts and has no needless branch."""
    ends = {host: next(cable.ends for cable in network.cables if host in cable.ends) for host in hosts}
    leaves = {end for pair in ends.values() for end in pair} - {*hosts}
    links = [frozenset(cable.ends) for cable in network.cables if {*cable.ends} <= {*network.switches}]
    found = []
    for count in range(len(network.switches)):
        for chosen in itertools.combinations(links, count):
            nodes = frozenset[str]().union(*chosen) or {min(leaves)}
            bare = [name for name in nodes - leaves if sum(name in pair for pair in chosen) == 1]
            if leaves <= nodes and len(nodes) == count + 1 and not bare and is_connected(chosen):
                found.append([*chosen])
    return found


def is_connected(links: Sequence[Pair]) -> bool:
    parts: list[Pair] = []
    for link in links:
        touched = [part for part in parts if part & link]
        parts = [part for part in parts if not part & link] + [link.union(*touched)]
    return len(parts) <= 1


def least_busy(network: Network, jobs: Sequence[Sequence[str]]) -> float:
    """Return how busy the busiest link is in the best placement, in which each job may use every tree there is."""
    free = {pair: mbit for pair, mbit in free_mbit(network).items() if pair <= {*network.switches}}
    columns = [(job, tree) for job, hosts in enumerate(jobs) for tree in every_tree(network, hosts)]
    busy = np.zeros((len(free), len(columns) + 1))
    busy[:, -1] = -1.0
    carried = np.zeros((len(jobs), len(columns) + 1))
    for column, (job, tree) in enumerate(columns):
        carried[job, column] = 1.0
        for row, (pair, mbit) in enumerate(free.items()):
            busy[row, column] = wanted_mbit(network, jobs[job]) / mbit if pair in tree else 0.0
    costs = [0.0] * len(columns) + [1.0]
    found = linprog(costs, A_ub=busy, b_ub=np.zeros(len(free)), A_eq=carried, b_eq=np.ones(len(jobs)))
    return max(1.0, float(found.fun))  # a host's own link is as busy as can be


def weighed(network: Network, jobs: Sequence[Sequence[str]], plans: Sequence[Plan]) -> list[Placed]:
    """Return the jobs as `loads` has them."""
    return [(wanted_mbit(network, hosts), one.trees) for hosts, one in zip(jobs, plans, strict=True)]


def busiest_of(network: Network, jobs: Sequence[Sequence[str]], plans: Sequence[Plan]) -> float:
    return busiest(network, weighed(network, jobs, plans))[0]


def test_the_busiest_link_is_about_as_busy_as_in_the_best_placement_there_is() -> None:
    first = random.randrange(1_000_000)
    together, alone = [], []
    for seed in range(first, first + 16):
        network, jobs = drawn(seed)
        best = least_busy(network, jobs)
        found = plan_jobs(network, jobs, most_levels=MANY)
        together.append(busiest_of(network, jobs, found) / best)
        assert 1 - 1e-6 <= together[-1] <= WORST, f"seed {seed}"
        alone.append(busiest_of(network, jobs, [plan(network, hosts, most_levels=MANY) for hosts in jobs]) / best)
    assert mean(together) <= USUAL, f"seeds from {first}"
    assert mean(together) <= mean(alone), f"seeds from {first}"


@pytest.mark.parametrize("jobs", [2, 3, 4, 8])
def test_jobs_of_a_leaf_spine_are_divided_evenly_among_spines(jobs: int) -> None:
    """Each job has hosts at every leaf, so that its tree needs a spine, which any of four may be."""
    for mbit, least in ((1000.0, 1), (100.0, 1)):
        network = read("leaf-spine,4,4,8", 1000.0)
        # With slow hosts no link is full: there the spines that are used least are chosen all the same.
        cables = tuple(
            Cable(ends=one.ends, mbit=1000.0 if {*one.ends} <= {*network.switches} else mbit) for one in network.cables
        )
        network = Network(switches=network.switches, hosts=network.hosts, cables=cables)
        members = [network.hosts[number::jobs] for number in range(jobs)]
        found = plan_jobs(network, members)
        roots = [tree.root for one in found for tree in one.trees]
        assert len(roots) == jobs
        uses = [roots.count(f"s{spine}") for spine in range(1, 5)]
        assert max(uses) - min(uses) <= least, (mbit, uses)


def test_jobs_over_other_leaves_have_other_roots() -> None:
    """The links of either spine are as free as those of the other: what counts is that a root has work already."""
    network = read("leaf-spine,4,2,2", 1000.0)
    halves = [network.hosts[:4], network.hosts[4:]]
    assert [[tree.root for tree in one.trees] for one in plan_jobs(network, halves)] == [["s1"], ["s2"]]


def test_a_job_that_can_go_elsewhere_makes_room_for_one_that_cannot() -> None:
    """The first job has a way over each of `a` and `b`, and the second one has no other than that over `a`."""
    ends = [("x", "a"), ("a", "y"), ("x", "b"), ("b", "y"), ("h0", "x"), ("h1", "y"), ("h2", "x"), ("h3", "a")]
    cables = tuple(Cable(ends=pair, mbit=1000.0) for pair in ends)
    network = Network(switches=("a", "b", "x", "y"), hosts=("h0", "h1", "h2", "h3"), cables=cables)
    jobs = [("h0", "h1"), ("h2", "h3")]
    assert "a" in plan(network, jobs[0]).trees[0].parents.values()
    found = plan_jobs(network, jobs)
    assert "b" in found[0].trees[0].parents.values()
    assert [one.rate_mbit for one in found] == [1000, 1000]


def test_a_single_job_is_planned_as_if_it_were_alone() -> None:
    for seed in range(10):
        network, (hosts, *_) = drawn(seed)
        assert plan_jobs(network, [hosts], most_levels=MANY) == [plan(network, hosts, most_levels=MANY)]


def test_a_link_is_shared_so_that_what_a_slow_job_leaves_goes_to_the_others() -> None:
    assert fair_part(1000, []) == 1000
    assert fair_part(1000, [5000]) == 500
    assert fair_part(1000, [100]) == 900
    assert fair_part(1000, [100, 5000]) == 450
    draw = random.Random(3)
    for _ in range(200):
        mbit, others = draw.uniform(1, 1000), [draw.uniform(1, 1000) for _ in range(draw.randrange(6))]
        mine = fair_part(mbit, others)
        assert mine + sum(min(one, mine) for one in others) == pytest.approx(max(mbit, mine))


def test_rates_of_jobs_fill_links_and_no_job_can_gain_without_one_that_has_less() -> None:
    """Every job is as fast as its hosts, or uses a full link on which no other job is faster: max-min fairness."""
    for seed in range(12):
        network, jobs = drawn(seed)
        found = weighed(network, jobs, plan_jobs(network, jobs, most_levels=MANY))
        rates = fair_rates(network, found)
        used = Loads.of([(rate, trees) for rate, (_, trees) in zip(rates, found, strict=True)])
        free = free_mbit(network)
        full = {pair for pair, by_job in used.links.items() if sum(by_job) > free[pair] * (1 - 1e-6)}
        assert all(sum(by_job) <= free[pair] * (1 + 1e-6) for pair, by_job in used.links.items())
        for rate, (wanted, trees) in zip(rates, found, strict=True):
            own = Loads.of([(rate, trees)]).links
            at_limit = [pair for pair in own if pair in full]
            assert rate == pytest.approx(wanted) or at_limit, f"seed {seed}"
