"""Hosts that add without switches: they take as long as their closed formulas say, and what is lost is repeated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from switchsum.planning.sources import read
from switchsum.topologies import Cable, Network
from switchsum_lab.simulation import jobs, peers, scenario
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.peer_kernels import FIRST_TIMEOUT_S
from switchsum_protocol.errors import UsageError

from .test_jobs import star, two_leaves

CABLE = CableConditions(delay_s=1e-6)
SIZE = 400_000


def run(planned: object, link: CableConditions, algorithm: str, **options: object) -> tuple[jobs.Ended, int]:
    network = jobs.build(planned, link, lanes=256, seed=3)  # type: ignore[arg-type]
    [ended], repeats = peers.run(
        network,
        planned,  # type: ignore[arg-type]
        [planned.hosts],  # type: ignore[attr-defined]
        link,
        algorithm=algorithm,
        size=SIZE,
        **options,  # type: ignore[arg-type]
    )
    return ended, repeats


@pytest.mark.parametrize("algorithm", ["ring", "two-level-ring", "halving-doubling"])
def test_a_good_collective_is_near_its_ideal(algorithm: str) -> None:
    ended, repeats = run(star(4, 1000.0), CABLE, algorithm)
    ideal = peers.ideal_ring_s(4, SIZE, CABLE, 1e9, 1500)
    assert ended.is_complete
    assert ended.finished == 4
    assert repeats == 0
    assert ideal < ended.seconds < 1.08 * ideal  # acknowledgements go the same way


def test_frames_that_wait_for_a_slow_link_are_no_loss() -> None:
    ended, repeats = run(star(4, 5.0), CABLE, "ring")
    assert repeats == 0
    assert ended.seconds < 1.08 * peers.ideal_ring_s(4, SIZE, CABLE, 5e6, 1500)


def test_an_ideal_ring_sends_twice_the_array_but_for_the_share_of_one_host() -> None:
    assert peers.ideal_ring_s(4, 1460, replace(CABLE, overhead_bytes=24), 8e9, 1500) == pytest.approx(
        1.5 * (1500 + 14 + 24) / 1e9
    )


def test_a_long_way_through_a_link_that_many_share_is_no_loss() -> None:
    """Acknowledgements come after 3 ms there, and after a tenth of that from a neighbour."""
    hosts = tuple(f"h{number}" for number in range(8))
    cables = [Cable(ends=(name, f"leaf{number // 4}"), mbit=1000.0) for number, name in enumerate(hosts)]
    cables += [Cable(ends=(f"leaf{number}", "root"), mbit=1000.0) for number in range(2)]
    planned = Network(switches=("root", "leaf0", "leaf1"), hosts=hosts, cables=tuple(cables))
    ended, repeats = run(planned, CABLE, "halving-doubling")
    assert ended.is_complete
    assert repeats == 0


def test_what_is_lost_is_repeated() -> None:
    ended, repeats = run(two_leaves(1000.0, 4000.0), replace(CABLE, loss=0.01), "ring")
    assert ended.is_complete
    assert repeats > 10
    assert run(two_leaves(1000.0, 4000.0), replace(CABLE, loss=0.01), "ring") == (ended, repeats)


def test_steps_fit_together() -> None:
    for algorithm, ranks in (("ring", 5), ("two-level-ring", 12), ("halving-doubling", 8)):
        steps = [peers.streams(algorithm, rank, ranks)[0].steps for rank in range(ranks)]
        for rank in range(ranks):
            for at, step in enumerate(steps[rank]):
                assert steps[step.to][at].source == rank
                assert steps[step.to][at].share == step.share
        assert sum(step.share for step in steps[0]) == pytest.approx(2 * (ranks - 1) / ranks)


@pytest.mark.parametrize("ranks", [*range(2, 34), 1024])
def test_both_trees_span_all_hosts_and_no_host_is_inside_both(ranks: int) -> None:
    streams = [peers.streams("tree", rank, ranks) for rank in range(ranks)]
    above: list[dict[int, int]] = [{}, {}]
    inside = [set[int](), set[int]()]
    for rank, own in enumerate(streams):
        for number, stream in enumerate(own):
            [step] = stream.steps
            far = streams[step.to][stream.far]
            assert (step.source, step.share) == (step.to, 0.5)
            assert (far.steps[0].to, far.far) == (rank, number)
        for tree, other, is_above in peers._neighbours(rank, ranks):
            if is_above:
                assert above[tree].setdefault(rank, other) == other
            else:
                inside[tree].add(rank)
    assert inside[0].isdisjoint(inside[1])
    for found in above:
        assert len(found) == ranks - 1
        depths = {rank: _depth(found, rank) for rank in range(ranks)}
        assert max(depths.values()) <= ranks.bit_length()


def _depth(above: dict[int, int], rank: int) -> int:
    depth = 0
    while rank in above:
        depth, rank = depth + 1, above[rank]
        assert depth <= len(above), "a circle"
    return depth


def test_a_frame_of_a_tree_goes_up_after_those_of_the_children_and_down_after_that_of_the_parent() -> None:
    """Seven hosts: in the first tree host 3 is the root, above 1 and 5, and these are above 0, 2, 4 and 6."""
    of = {
        rank: {stream.steps[0].to: stream for stream in peers.streams("tree", rank, 7)[: 3 if rank in (1, 5) else 2]}
        for rank in (1, 3, 5)
    }
    to = {rank: [stream.steps[0].to for stream in peers.streams("tree", rank, 7)] for rank in (1, 3, 5)}
    assert [to[1][need] for need in of[1][3].needs] == [0, 2]
    assert [to[1][need] for need in of[1][0].needs] == [to[1][need] for need in of[1][2].needs] == [3]
    assert [to[3][need] for need in of[3][1].needs] == [to[3][need] for need in of[3][5].needs] == [1, 5]


@pytest.mark.parametrize("ranks", [2, 7, 16])
def test_trees_pass_each_frame_on_at_once(ranks: int) -> None:
    """A link carries the array twice.  If levels waited for one another, 16 hosts would take four times as long."""
    ended, repeats = run(star(ranks, 1000.0), CABLE, "tree")
    once = peers.ideal_ring_s(4, SIZE, CABLE, 1e9, 1500) / 1.5
    assert ended.is_complete
    assert ended.finished == ranks
    assert repeats == 0
    assert once < ended.seconds < 2.5 * once


def test_what_a_tree_loses_is_repeated() -> None:
    ended, repeats = run(two_leaves(1000.0, 4000.0), replace(CABLE, loss=0.01), "tree")
    assert ended.is_complete
    assert repeats > 10
    assert run(two_leaves(1000.0, 4000.0), replace(CABLE, loss=0.01), "tree") == (ended, repeats)


def test_a_first_frame_to_another_host_that_is_lost_waits_for_round_trips_and_not_for_20_ms() -> None:
    """Each step of halving and doubling goes to another host: the first step's round trips say what is too long."""
    planned, repeated = star(8, 10_000.0), 0
    for lost in range(4, 12):
        link = replace(CABLE, lost_frames=(lost,))
        network = jobs.build(planned, link, lanes=256, seed=3)
        [ended], repeats = peers.run(network, planned, [planned.hosts], link, algorithm="halving-doubling", size=8000)
        assert ended.is_complete
        assert ended.seconds < FIRST_TIMEOUT_S / 2
        repeated += repeats
    assert repeated > 8


def test_recursive_doubling_has_half_of_the_steps_and_all_bytes_in_each() -> None:
    steps = [peers.streams("recursive-doubling", rank, 8)[0].steps for rank in range(8)]
    sums = np.eye(8)
    for at in range(3):
        sums = np.array([sums[rank] + sums[steps[rank][at].source] for rank in range(8)])
    assert (sums == 1).all(), "every host has added every other one once"
    took = {}
    for algorithm in ("halving-doubling", "recursive-doubling"):
        network = jobs.build(star(8, 10_000.0), CABLE, lanes=256, seed=3)
        [ended], _ = peers.run(network, star(8, 10_000.0), [star(8, 1.0).hosts], CABLE, algorithm=algorithm, size=4)
        took[algorithm] = ended.seconds
    assert took["recursive-doubling"] == pytest.approx(took["halving-doubling"] / 2, rel=0.02)
    ended, repeats = run(star(8, 1000.0), CABLE, "recursive-doubling")
    assert repeats == 0
    assert ended.seconds == pytest.approx(3 * peers.ideal_ring_s(2, SIZE, CABLE, 1e9, 1500), rel=0.1)


def test_all_that_run_on_so_many_hosts_are_called_best() -> None:
    assert scenario.named("best", 8, 1000000) == ("ring", "halving-doubling", "two-level-ring", "tree", "ideal-ring")
    assert scenario.named("tree,best", 6, 1000) == ("tree", "ring", "two-level-ring", "ideal-ring")
    assert "recursive-doubling" in scenario.named("best", 8, 4000)
    network = Network(switches=("s",), hosts=tuple("abc"), cables=tuple(Cable(ends=("s", h), mbit=1e4) for h in "abc"))
    asked = scenario.Scenario(planned=network, workers=3, size=40_000, against=scenario.named("best", 3, 40_000))
    results = scenario.simulate(asked)
    best = scenario.best_of_hosts(results)
    assert best is not None
    assert best.simulated_s == min(one.simulated_s for one in results[1:])


def test_rings_of_several_jobs_take_all_spines() -> None:
    """Four jobs of two hosts on each of four leaves: each ring comes to every second host of a leaf."""
    planned = read("leaf-spine,4,4,8", 10_000.0)
    asked = scenario.Scenario(planned=planned, workers=8, size=100_000, jobs=4)
    [found] = scenario.simulate(asked, ways=["ring"])
    carried = [sum(link.bytes for link in found.links if f"s{spine}" in link.name.split("->")) for spine in range(1, 5)]
    assert max(carried) < 1.1 * min(carried)
    [alone] = scenario.simulate(replace(asked, jobs=1), ways=["ring"])
    assert found.simulated_s < 1.3 * alone.simulated_s


def test_what_is_no_collective_is_refused() -> None:
    for algorithm, hosts in (("halving-doubling", 3), ("telepathy", 2)):
        with pytest.raises(UsageError, match=r"power of two|must be one of"):
            run(star(hosts, 1000.0), CABLE, algorithm)
