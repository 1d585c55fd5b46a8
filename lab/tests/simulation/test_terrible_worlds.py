"""Allreduces over terrible networks, with the compiled P4 program in each switch: `make networks` has hundreds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum.topologies import Cable, Network
from switchsum_controller.trees import forest
from switchsum_controller.trees.branch import Branch, BranchMember
from switchsum_host.engine.operation import Operation
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import CableConditions
from tests.host.checks import check_sums
from tests.host.test_terrible_network import EXAMPLES, draw_arrays

PROBABILITIES = st.sampled_from([0.0, 0.01, 0.05, 0.2])
LINKS = st.builds(
    CableConditions,
    rate_bps=st.just(1e9),
    delay_s=st.sampled_from([1e-6, 50e-6, 2e-3]),
    loss=PROBABILITIES,
    burst=st.none() | st.tuples(st.sampled_from([0.001, 0.01]), st.floats(1, 20)),
    late=PROBABILITIES,
    late_by_s=st.sampled_from([100e-6, 5e-3]),
    queue_frames=st.none() | st.integers(4, 64),
    outages=st.lists(st.tuples(st.floats(0, 0.2), st.floats(1e-4, 0.5)), max_size=2).map(
        lambda found: tuple((at, at + long) for at, long in found)
    ),
    lost_frames=st.sets(st.integers(0, 50), max_size=5).map(tuple),
)
SHAPES = st.sampled_from([(2,), (6,), (2, 2), (3, 2), (2, 2, 1)])
"""What each switch has below it, from the root down."""
LANES = 128
OPERATIONS = 3
BAD = CableConditions(loss=0.05, late=0.05, late_by_s=1e-3, burst=(0.01, 5.0), outages=((1e-3, 20e-3),))
MOST_S = 2000.0
"""Virtual time after which sums are taken for stuck: pauses of eight seconds follow one another where most is lost."""


def tree(below: tuple[int, ...]) -> Network:
    """Return a tree of switches with hosts below the last ones."""
    switches, level, cables = ["s0"], ["s0"], []
    for width in below[:-1]:
        under = [f"s{len(switches) + number}" for number in range(width * len(level))]
        cables += [Cable(ends=(one, level[number // width]), mbit=1000.0) for number, one in enumerate(under)]
        switches, level = switches + under, under
    hosts = [f"h{number}" for number in range(below[-1] * len(level))]
    cables += [Cable(ends=(one, level[number // below[-1]]), mbit=1000.0) for number, one in enumerate(hosts)]
    return Network(switches=tuple(switches), hosts=tuple(hosts), cables=tuple(cables))


def add(
    planned: Network, link: CableConditions, seed: int, window: int, mode: str, **options: Any
) -> tuple[str, float]:
    """Let allreduces overlap and look at their sums; return the run's digest and time."""
    random = np.random.default_rng(seed)
    network = jobs.build(planned, link, lanes=LANES, seed=seed)
    options = {"timeout_s": 1e4, **options}
    job = jobs.Job(network, planned, planned.hosts, link, lanes=LANES, window_slots=window, **options)
    inputs = [draw_arrays(random, len(planned.hosts), LANES, 20) for _ in range(OPERATIONS)]
    outputs = [[array.copy() for array in arrays] for arrays in inputs]
    left = OPERATIONS * len(job.workers)
    for results in outputs:
        for worker, number, array in zip(job.workers, job.numbers, results, strict=True):
            worker.begin(Operation.of(array), array, network.now)
            network.world.wake(number)
        if mode == "one by one":
            left -= finish(job, len(job.workers))
    assert left == finish(job, left)
    for arrays, results in zip(inputs, outputs, strict=True):
        check_sums(arrays, results, LANES)
    return network.digest, network.now


def finish(job: jobs.Job, count: int) -> int:
    """Let time pass until so many operations have ended on ranks; return how many have."""
    done = 0
    while done < count:
        assert job.network.now < MOST_S, "sums are stuck"
        job.network.run(job.network.now + max(0.05, job.network.now / 4))
        done += sum(len(worker.finished(job.network.now)) for worker in job.workers)
    return done


@pytest.mark.slow
@pytest.mark.timeout(240)
@settings(max_examples=max(3, EXAMPLES // 9))
@given(
    seed=st.integers(0, 2**32 - 1),
    below=SHAPES,
    link=LINKS,
    window=st.sampled_from([1, 3, 32]),
    mode=st.sampled_from(["one by one", "overlapping"]),
)
def test_sums_are_right_on_any_simulated_network(
    seed: int, below: tuple[int, ...], link: CableConditions, window: int, mode: str
) -> None:
    assert add(tree(below), link, seed, window, mode)[1] > 0


@pytest.mark.slow
def test_one_slot_in_a_tree_whose_links_lose_a_third_of_all_frames_in_bursts_is_not_asked_less_and_less_often() -> None:
    # No round is ever timed there.  Pauses that doubled up to eight seconds, and stayed, made sums take 2,900 s.
    link = CableConditions(rate_bps=1e9, delay_s=1e-6, loss=0.2, burst=(0.01, 11.0))
    for seed in (0, 1):
        _, took_s = add(tree((2, 2, 1)), link, seed, 1, "one by one")
        assert took_s < 800


def test_sums_are_right_on_a_terrible_network_the_same_way_each_time() -> None:
    first = add(tree((2, 2)), BAD, 5, 16, "overlapping")
    assert first[1] > 20e-3
    assert add(tree((2, 2)), BAD, 5, 16, "overlapping") == first


def test_a_switch_that_takes_members_for_one_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first contribution completes a round, and the second one is taken for its repeat."""
    monkeypatch.setattr(forest, "BranchMember", lambda **facts: BranchMember(**{**facts, "bit": 0}))
    monkeypatch.setattr(Branch, "everybody", 1)
    monkeypatch.setattr(f"{__name__}.MOST_S", 2.0)
    with pytest.raises(AssertionError):
        add(tree((2,)), CableConditions(), 5, 16, "overlapping")


def test_workers_that_do_not_repeat_what_is_lost_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.MOST_S", 2.0)
    lossy = CableConditions(lost_frames=(0,))
    assert add(tree((3,)), lossy, 5, 1, "overlapping")[1] < 1.0
    with pytest.raises(AssertionError, match="sums are stuck"):
        add(tree((3,)), lossy, 5, 1, "overlapping", probe_initial_s=1e6, probe_max_s=1e6)
