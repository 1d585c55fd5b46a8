"""Trees packed over networks: limits and bounds on random ones, the optimum on tiny ones, time on a large one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

pytest.importorskip("networkx")
pytest.importorskip("yaml")
pytest.importorskip("scipy")

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from support.timing import patience
from switchsum.planning.topology import TopologyError, problems
from switchsum.planning.trees import ENOUGH, Plan, plan, share
from switchsum.topologies import NO_LIMIT, Cable, Network, fat_tree, leaf_spine, star, two_spines
from switchsum_controller.trees.fabric import MOST_TREES
from switchsum_protocol.errors import UsageError

MANY = 99
"""Levels that no tree of these tests has."""


def network_of(shape: Network, mbit: float = 1000, trunk_mbit: float | None = None) -> Network:
    hosts = set(shape.hosts)

    def capacity(cable: Cable) -> float:
        if cable.mbit != NO_LIMIT:
            return cable.mbit
        return mbit if trunk_mbit is None or set(cable.ends) & hosts else trunk_mbit

    return replace(shape, cables=tuple(replace(cable, mbit=capacity(cable)) for cable in shape.cables))


def network_from(switches: str, hosts: str, links: str) -> Network:
    """Build a network from words such as `h1-s1:10`."""
    cables = []
    for word in links.split():
        ends, _, mbit = word.partition(":")
        first, second = ends.split("-")
        cables.append(Cable(ends=(first, second), mbit=float(mbit or 1)))
    return Network(switches=tuple(switches.split()), hosts=tuple(hosts.split()), cables=tuple(cables))


def check(network: Network, hosts: Sequence[str], found: Plan) -> None:
    """Assert that a plan is one: trees that span the hosts, within capacities, no faster than its bound."""
    used: dict[frozenset[str], float] = {}
    for tree in found.trees:
        graph = nx.Graph(list(tree.parents.items()))
        assert nx.is_tree(graph)
        assert {node for node in graph if node not in network.switches} == set(hosts)
        assert all(graph.degree(host) == 1 for host in hosts)
        assert tree.root in network.switches
        assert tree.root not in tree.parents
        assert max(list(tree.parents.values()).count(node) for node in graph) <= 32
        leaves = [node for node in graph if graph.degree(node) == 1]
        assert set(leaves) <= {*hosts, tree.root}
        assert tree.slots >= 1
        for child, parent in tree.parents.items():
            used[frozenset((child, parent))] = used.get(frozenset((child, parent)), 0.0) + tree.rate_mbit
    capacity: dict[frozenset[str], float] = {}
    for cable in network.cables:
        capacity[frozenset(cable.ends)] = capacity.get(frozenset(cable.ends), 0.0) + cable.free_mbit
    assert all(rate <= capacity[ends] * (1 + 1e-9) for ends, rate in used.items())
    assert found.rate_mbit + found.lost_mbit >= ENOUGH * found.packed_mbit * (1 - 1e-6)
    assert len(found.trees) <= MOST_TREES
    assert found.packed_mbit <= found.bound.mbit * (1 + 1e-6)
    assert found.best_single_mbit <= found.packed_mbit * (1 + 1e-6)


def optimum(network: Network, hosts: Sequence[str]) -> float:
    """Return the best rate, from every tree that there is."""
    cables = [cable for cable in network.cables if not set(cable.ends) & (set(network.hosts) - set(hosts))]
    columns = []
    for count in range(len(hosts), len(cables) + 1):
        for chosen in itertools.combinations(range(len(cables)), count):
            graph = nx.MultiGraph([cables[number].ends for number in chosen])
            if (
                set(hosts) <= set(graph)
                and nx.is_tree(graph)
                and all((graph.degree(node) == 1) == (node in hosts) for node in graph)
            ):
                columns.append([number in chosen for number in range(len(cables))])
    matrix = np.array(columns, dtype=float).T
    found = linprog(-np.ones(len(columns)), A_ub=matrix, b_ub=[cable.free_mbit for cable in cables])
    return float(-found.fun)


@st.composite
def networks(draw: st.DrawFn, most_switches: int, most_hosts: int, most_links: int) -> Network:
    """Draw a connected network; some hosts have several links, some links are partly reserved."""
    switches = [f"s{number}" for number in range(draw(st.integers(1, most_switches)))]
    hosts = [f"h{number}" for number in range(draw(st.integers(2, most_hosts)))]
    pairs = [(switch, draw(st.sampled_from(switches[:place]))) for place, switch in enumerate(switches) if place]
    pairs += [(host, draw(st.sampled_from(switches))) for host in hosts]
    spare = most_links - len(pairs)
    if len(switches) > 1:
        ends = st.tuples(st.sampled_from(switches + hosts), st.sampled_from(switches)).filter(
            lambda two: two[0] != two[1]
        )
        pairs += draw(st.lists(ends, max_size=max(0, spare)))
    cables = []
    for first, second in pairs:
        mbit = draw(st.integers(1, 10))
        cables.append(Cable(ends=(first, second), mbit=mbit, reserved_mbit=draw(st.sampled_from([0, 0, mbit / 2]))))
    return Network(switches=tuple(switches), hosts=tuple(hosts), cables=tuple(cables))


def test_a_switch_beside_the_way_does_not_slow_the_others_down() -> None:
    found = plan(network_from("s0 s1", "h0 h1", "s1-s0:1 h0-s0:2 h1-s0:2"), ("h0", "h1"))
    assert found.rate_mbit == found.bound.mbit == 2
    assert [tree.root for tree in found.trees] == ["s0"]


@settings(max_examples=25, deadline=None)
@given(network=networks(4, 3, 9))
def test_tiny_networks_get_the_optimum(network: Network) -> None:
    assert problems(network) == []
    found = plan(network, network.hosts, most_levels=MANY)
    check(network, network.hosts, found)
    assert found.packed_mbit == pytest.approx(optimum(network, network.hosts), rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(network=networks(9, 7, 30), data=st.data())
def test_random_networks_keep_their_capacities(network: Network, data: st.DataObject) -> None:
    hosts = data.draw(st.permutations(network.hosts))[: data.draw(st.integers(2, len(network.hosts)))]
    found = plan(network, hosts, most_levels=MANY)
    check(network, hosts, found)
    assert found == plan(network, hosts, most_levels=MANY)
    assert sum(tree.slots for tree in found.trees) == 256


@pytest.mark.parametrize(
    ("network", "rate", "trees"),
    [
        (network_of(star(32)), 1000, 1),
        (network_of(leaf_spine(4, 2, 4)), 1000, 1),
        (network_of(leaf_spine(4, 4, 2), trunk_mbit=250), 1000, 4),
        (network_of(fat_tree(4)), 1000, 1),
        (network_of(fat_tree(4), trunk_mbit=500), 1000, 2),
        (network_of(two_spines(2, 1000, 400), 1400), 1400, 2),
    ],
)
def test_usual_shapes_reach_their_bound(network: Network, rate: float, trees: int) -> None:
    found = plan(network, network.hosts)
    check(network, network.hosts, found)
    assert found.rate_mbit == pytest.approx(rate)
    assert found.bound.mbit == pytest.approx(rate)
    assert len(found.trees) == trees


def test_trees_of_one_level_are_sharded_aggregators() -> None:
    # Four aggregators, each with a link to each of four hosts that have four links.
    links = " ".join(f"h{host}-a{aggregator}:100" for host in range(4) for aggregator in range(4))
    found = plan(network := network_from("a0 a1 a2 a3", "h0 h1 h2 h3", links), network.hosts)
    check(network, network.hosts, found)
    assert [tree.levels for tree in found.trees] == [1, 1, 1, 1]
    assert [tree.slots for tree in found.trees] == [64] * 4
    assert found.rate_mbit == pytest.approx(400)


def test_more_trees_than_a_job_may_have_are_left_out_with_what_they_would_carry() -> None:
    spines = range(10)
    links = " ".join(f"l{leaf}-s{spine}:{100 + spine}" for leaf in range(2) for spine in spines)
    switches = " ".join(["l0", "l1", *(f"s{spine}" for spine in spines)])
    network = network_from(switches, "h0 h1", f"h0-l0:2000 h1-l1:2000 {links}")
    found = plan(network, network.hosts)
    check(network, network.hosts, found)
    assert {tree.root for tree in found.trees} == {f"s{spine}" for spine in spines[-MOST_TREES:]}
    assert found.rate_mbit == pytest.approx(844)
    assert found.packed_mbit == pytest.approx(1045)
    assert found.left_out == "a job has at most 8 trees, and 10 would carry 201 Mbit/s more"
    assert plan(network_of(star(2)), ("h1", "h2")).left_out == ""


def test_slots_go_to_trees_in_proportion() -> None:
    assert share(256, [1000, 400]) == [183, 73]
    assert share(3, [1000, 1, 1]) == [1, 1, 1]
    assert share(10, [1, 1, 1]) == [4, 3, 3]
    for slots in range(4, 40):
        assert sum(share(slots, [7, 3, 1, 0.01])) == slots


def test_reserved_capacity_is_left_alone() -> None:
    network = network_of(star(2))
    reserved = tuple(Cable(ends=cable.ends, mbit=1000, reserved_mbit=900) for cable in network.cables)
    found = plan(Network(switches=network.switches, hosts=network.hosts, cables=reserved), network.hosts)
    assert found.rate_mbit == pytest.approx(100)


@pytest.mark.parametrize(
    ("network", "hosts", "words"),
    [
        (network_of(star(33)), None, "33 hosts of the job have s1 as their only switch"),
        (network_of(leaf_spine(34, 1, 1)), None, "s1 would have 33 children"),
        (
            network_from("s1 s2 s3 s4 s5 s6", "h1 h2", "h1-s1 s1-s2 s2-s3 s3-s4 s4-s5 s5-s6 s6-h2"),
            None,
            "4 levels of switches",
        ),
        (network_from("s1 s2", "h1 h2 h3", "h1-s1 h2-s2 h3-s1 h3-s2"), "h1 h2", "no path with free capacity"),
        (network_of(star(2)), "h1 h9", "no host h9"),
        (network_of(star(2)), "h1 h1", "names a host twice"),
        (network_of(star(2)), "h1", "at least two hosts"),
    ],
)
def test_what_no_tree_can_serve_is_refused_with_the_reason(network: Network, hosts: str | None, words: str) -> None:
    with pytest.raises((TopologyError, UsageError), match=words):
        plan(network, network.hosts if hosts is None else hosts.split())


def test_33_leaves_are_divided_where_a_third_level_is() -> None:
    # One spine alone has too few bits; two below a core have enough.
    links = " ".join(f"h{n}-l{n} l{n}-s{n % 2}" for n in range(40)) + " s0-c s1-c"
    switches = " ".join(f"l{n}" for n in range(40)) + " s0 s1 c"
    network = network_from(switches, " ".join(f"h{n}" for n in range(40)), links)
    found = plan(network, network.hosts)
    check(network, network.hosts, found)
    assert found.trees[0].levels == 3


def test_more_trees_than_slots_are_refused() -> None:
    network = network_of(two_spines(2, 1000, 400), 1400)
    with pytest.raises(UsageError, match="1 slots are too few for 2 trees"):
        plan(network, network.hosts, slots=1)


@pytest.mark.parametrize("trunk_mbit", [1000, 31.25])
def test_a_fat_tree_of_1024_hosts_takes_under_5_s(trunk_mbit: float) -> None:
    network = network_of(fat_tree(16), trunk_mbit=trunk_mbit)
    began = time.monotonic()
    found = plan(network, network.hosts)
    assert time.monotonic() - began < patience(5)
    check(network, network.hosts, found)
    assert found.rate_mbit >= ENOUGH * found.bound.mbit


def alone_by_all_cuts(network: Network) -> float:
    """Return the rate of hosts alone from every set of nodes that there is."""
    nodes, hosts = (*network.switches, *network.hosts), set(network.hosts)
    sets = (set(chosen) for count in range(1, len(nodes)) for chosen in itertools.combinations(nodes, count))
    shares = [
        sum(cable.free_mbit for cable in network.cables if len(inside & set(cable.ends)) == 1) / len(inside & hosts)
        for inside in sets
        if inside & hosts and not hosts <= inside
    ]
    return min(shares) * len(hosts) / 2


@settings(max_examples=40, deadline=None)
@given(network=networks(4, 5, 12))
def test_hosts_alone_reach_what_the_least_of_all_cuts_lets_through(network: Network) -> None:
    alone = plan(network, network.hosts, most_levels=MANY).hosts_alone_mbit
    assert alone == pytest.approx(alone_by_all_cuts(network), rel=1e-5)


def around(pairs: list[tuple[int, int]], hosts: int) -> Network:
    """Build a network of hosts with links of 10 between them: each has a switch of its own, which is no limit."""
    links = " ".join([f"h{host}-s{host}:1000" for host in range(hosts)] + [f"s{a}-s{b}:10" for a, b in pairs])
    return network_from(
        " ".join(f"s{host}" for host in range(hosts)), " ".join(f"h{host}" for host in range(hosts)), links
    )


@pytest.mark.parametrize(
    ("network", "alone"),
    [
        # N hosts send 2 (N - 1) / N of their values over one link each, as around a ring both ways over two of them.
        (network_of(star(5)), 1000 * 5 / 8),
        (around([(at, (at + 1) % 6) for at in range(6)], 6), 2 * 10 * 6 / 10),
        # Each has a link to each of the N - 1 others, and these together are what N - 1 parts come over.
        (around(list(itertools.combinations(range(5), 2)), 5), 4 * 10 * 5 / 8),
        # All that a half has added crosses once.
        (network_from("s t", "a b c d", "a-s:1000 b-s:1000 c-t:1000 d-t:1000 s-t:10"), 10),
    ],
    ids=["star", "ring", "full mesh", "two halves"],
)
def test_hosts_alone_reach_what_is_known_of_simple_networks(network: Network, alone: float) -> None:
    assert plan(network, network.hosts, most_levels=MANY).hosts_alone_mbit == pytest.approx(alone, rel=1e-5)
