"""Shapes and ways through them, without Mininet."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from switchsum.topologies import (
    NO_LIMIT,
    SHAPES,
    Cable,
    Network,
    Route,
    center,
    fat_tree,
    leaf_spine,
    parts,
    routes,
    spanning_tree,
    star,
    two_spines,
    ways_to,
)


def degrees(topology: Network) -> Counter[str]:
    return Counter(end for link in topology.cables for end in link.ends)


def find_ways(topology: Network) -> dict[str, list[Route]]:
    return routes(topology, spanning_tree(topology, center(topology)))


def follow(topology: Network, table: dict[str, list[Route]], start: str, place: int | str) -> list[str]:
    """Return the switches that a frame passes from one switch to a place, and the host at its end."""
    passed = [start]
    while passed[-1] != place and passed[-1] in topology.switches:
        link = next(route.link for route in table[passed[-1]] if route.to == place)
        first, second = topology.cables[link].ends
        passed.append(second if passed[-1] == first else first)
        assert len(passed) <= len(topology.switches) + 1, f"circles: {passed}"
    return passed


def test_star() -> None:
    topology = star(3)
    assert topology.hosts == ("h1", "h2", "h3")
    assert [link.ends for link in topology.cables] == [("h1", "s1"), ("h2", "s1"), ("h3", "s1")]


def test_leaf_spine() -> None:
    topology = leaf_spine(leaves=3, spines=2, hosts=4)
    assert len(topology.hosts) == 12
    assert {switch: degrees(topology)[switch] for switch in topology.switches} == {
        "s1": 3, "s2": 3, "s3": 6, "s4": 6, "s5": 6,
    }  # fmt: skip
    assert ("h5", "s4") in [link.ends for link in topology.cables]


@pytest.mark.parametrize(("k", "hosts", "switches"), [(2, 2, 5), (4, 16, 20), (6, 54, 45)])
def test_every_switch_of_a_fat_tree_has_k_ports(k: int, hosts: int, switches: int) -> None:
    topology = fat_tree(k)
    assert (len(topology.hosts), len(topology.switches)) == (hosts, switches)
    assert {degrees(topology)[switch] for switch in topology.switches} == {k}
    assert {degrees(topology)[host] for host in topology.hosts} == {1}
    assert len({link.ends for link in topology.cables}) == len(topology.cables)


def test_every_core_of_a_fat_tree_reaches_every_pod() -> None:
    topology = fat_tree(4)
    pods = {f"s{switch}": (switch - 5) // 4 for switch in range(5, 21)}
    for core in ("s1", "s2", "s3", "s4"):
        reached = [pods[end] for link in topology.cables if core in link.ends for end in link.ends if end != core]
        assert sorted(reached) == [0, 1, 2, 3]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_place_is_reached_from_everywhere(shape: str) -> None:
    topology = SHAPES[shape]()
    hosts = {index: link.ends[0] for index, link in enumerate(topology.cables) if link.ends[0] in topology.hosts}
    assert sorted(hosts.values()) == sorted(topology.hosts)
    table = find_ways(topology)
    for start in topology.switches:
        assert {follow(topology, table, start, link)[-1] for link in hosts} == set(topology.hosts)
        assert {follow(topology, table, start, switch)[-1] for switch in topology.switches} == set(topology.switches)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tree_has_one_link_for_each_further_switch(shape: str) -> None:
    topology = SHAPES[shape]()
    assert len(spanning_tree(topology, center(topology))) == len(topology.switches) - 1


@pytest.mark.parametrize(("shape", "middle"), [("star", "s1"), ("leaf-spine", "s1"), ("fat-tree", "s1")])
def test_the_top_is_the_middle(shape: str, middle: str) -> None:
    assert center(SHAPES[shape]()) == middle


def test_the_middle_of_a_chain() -> None:
    chain = Network(
        hosts=("h1", "h2"),
        switches=("s1", "s2", "s3"),
        cables=tuple(Cable(ends=ends) for ends in [("h1", "s1"), ("s1", "s2"), ("s2", "s3"), ("h2", "s3")]),
    )
    assert center(chain) == "s2"


def test_frames_take_the_wide_spine() -> None:
    for fast, slow, wide in ((100, 10, "s1"), (10, 100, "s2")):
        topology = two_spines(hosts=1, fast=fast, slow=slow)
        assert {cable.mbit for cable in topology.cables} == {NO_LIMIT, 10, 100}
        table = routes(topology, spanning_tree(topology, "s3"))
        assert follow(topology, table, "s3", "s4") == ["s3", wide, "s4"]


def test_equally_wide_ways_are_short() -> None:
    topology = fat_tree(4)
    table = find_ways(topology)
    longest = max(len(follow(topology, table, "s1", switch)) for switch in topology.switches)
    assert longest == 5, "to another core: down to a pod's aggregation, on to an edge and up"


def test_a_host_with_two_links_is_no_bridge() -> None:
    ends = [("h1", "s1"), ("h1", "s2"), ("h2", "s1")]
    topology = Network(hosts=("h1", "h2"), switches=("s1", "s2"), cables=tuple(Cable(ends=pair) for pair in ends))
    assert center(topology) == "s1"
    assert spanning_tree(topology, "s1") == {}


def test_ways_lead_over_switches_alone_and_parts_are_what_links_connect() -> None:
    ends = [("h1", "s1"), ("h1", "s3"), ("s1", "s2"), ("s3", "s4")]
    topology = Network(
        hosts=("h1",), switches=("s1", "s2", "s3", "s4"), cables=tuple(Cable(ends=pair) for pair in ends)
    )
    assert ways_to(topology, "s1") == {"s1": ["s1"], "s2": ["s2", "s1"]}
    assert parts(topology.switches, ends) == [{"s1", "s2"}, {"s3", "s4"}]
    assert parts([*topology.switches, "h1"], ends) == [{"s1", "s2", "s3", "s4", "h1"}]
    assert topology.limited(7).cables[0].free_mbit == 7
    assert center(star(3), []) == "s1"


def test_two_islands_have_no_middle() -> None:
    ends = [("h1", "s1"), ("h2", "s2")]
    topology = Network(hosts=("h1", "h2"), switches=("s1", "s2"), cables=tuple(Cable(ends=pair) for pair in ends))
    with pytest.raises(ValueError, match="no switch reaches every host"):
        center(topology)


@pytest.mark.parametrize(
    ("shape", "arguments", "reason"),
    [
        ("star", (0,), "hosts is at least 1"),
        ("star", ("x",), "hosts is a whole number, not 'x'"),
        ("leaf-spine", (2, 0), "spines is at least 1"),
        ("fat-tree", (3,), "even number"),
        ("two-spines", (2, 100, 0), "more than 0"),
    ],
)
def test_impossible_shapes_are_refused(shape: str, arguments: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SHAPES[shape](*arguments)
