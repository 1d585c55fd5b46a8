"""Hosts that add without switches: they take as long as their closed formulas say, and what is lost is repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchsum.planning.topology import Cable, Network
from switchsum.protocol.errors import UsageError
from switchsum.simulation import jobs, peers
from switchsum.simulation.conditions import Link

from .test_jobs import star, two_leaves

CABLE = Link(delay_s=1e-6)
SIZE = 400_000


def run(planned: object, link: Link, algorithm: str, **options: object) -> tuple[jobs.Ended, int]:
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
        steps = [peers.ALGORITHMS[algorithm](rank, ranks) for rank in range(ranks)]
        for rank in range(ranks):
            for at, step in enumerate(steps[rank]):
                assert steps[step.to][at].source == rank
                assert steps[step.to][at].share == step.share
        assert sum(step.share for step in steps[0]) == pytest.approx(2 * (ranks - 1) / ranks)


def test_what_is_no_collective_is_refused() -> None:
    for algorithm, hosts in (("halving-doubling", 3), ("telepathy", 2)):
        with pytest.raises(UsageError, match=r"power of two|must be one of"):
            run(star(hosts, 1000.0), CABLE, algorithm)
