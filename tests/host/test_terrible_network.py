"""Allreduces over loss, duplication, reordering and corruption, and switches that break a rule."""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.faults import CombinesRepeats, KeepsOldLanes, Stores
from switchsum.testing.network import Impairment, LinkConditions
from switchsum_host.engine.state import Count
from switchsum_protocol.errors import SwitchsumError
from switchsum_protocol.frame import Reason
from switchsum_protocol.slot_rules import ReferenceSwitch

from .checks import check_sums

Array = npt.NDArray[Any]
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.int32)]

PROBABILITIES = st.sampled_from([0.0, 0.01, 0.05, 0.2])
IMPAIRMENTS = st.builds(
    Impairment,
    delay_s=st.sampled_from([1e-6, 50e-6, 2e-3]),
    jitter_s=st.sampled_from([0.0, 100e-6]),
    loss=PROBABILITIES,
    duplication=PROBABILITIES,
    reordering=PROBABILITIES,
    reordering_s=st.sampled_from([100e-6, 5e-3]),
)
OUTAGES = st.lists(st.tuples(st.floats(0, 0.2), st.floats(0, 0.5)), max_size=2)
LINKS = st.builds(
    lambda up, down, outages: LinkConditions(up=up, down=down, outages=tuple((at, at + long) for at, long in outages)),
    IMPAIRMENTS,
    IMPAIRMENTS,
    OUTAGES,
)
MOST_WORKERS = 32
EXAMPLES = int(os.environ.get("SWITCHSUM_EXAMPLES", "45"))
"""Of each property; one is four allreduces.  `make networks` has thousands."""


def draw_arrays(random: np.random.Generator, workers: int, lanes: int, most: int = 40) -> list[Array]:
    """Draw one array per rank, of at most `most` blocks, with blocks that are zero on some or all ranks."""
    dtype = DTYPES[random.integers(len(DTYPES))]
    size = int(random.integers(1, most * lanes))
    blocks = np.arange(size) // lanes
    arrays = []
    for _ in range(workers):
        if dtype == np.int32:
            array = random.integers(-(1 << 26), 1 << 26, size).astype(dtype)
        else:
            array = (random.standard_normal(size) * 10.0 ** random.integers(-3, 4, size)).astype(dtype)
        array[random.random(blocks[-1] + 1)[blocks] < random.choice([0.0, 0.5, 0.95])] = 0
        arrays.append(array)
    return arrays


REPEATS_PER_LOSS = 4
"""Of each member, for each frame that the network lost."""
REPEATS_AT_AN_END = 16
"""Of each member: what is outstanding while others work elsewhere is probed."""


def repeats(cluster: Cluster) -> int:
    """Return how many frames all members have sent again."""
    kinds = (Count.OVERTAKEN, Count.PROBES, Count.RECALLED)
    return sum(int(worker.engine.counts[kind]) for worker in cluster.workers for kind in kinds)


def run_some(cluster: Cluster, random: np.random.Generator, operations: int = 4) -> None:
    """Run overlapping allreduces and check them."""
    config = cluster.config
    most = 40 if config.workers <= 8 else 10
    inputs = [draw_arrays(random, config.workers, config.lanes_per_frame, most) for _ in range(operations)]
    outputs = [[array.copy() for array in arrays] for arrays in inputs]
    for results in outputs:
        for rank, array in enumerate(results):
            cluster.submit(rank, array)
    before = [len(worker.finished) for worker in cluster.workers]
    cluster.run(lambda: all(len(w.finished) == n + operations for w, n in zip(cluster.workers, before, strict=True)))
    for arrays, results in zip(inputs, outputs, strict=True):
        check_sums(arrays, results, config.lanes_per_frame)


@pytest.mark.timeout(240)
@settings(max_examples=EXAMPLES)
@given(
    seed=st.integers(0, 2**32 - 1),
    links=st.lists(LINKS, min_size=4, max_size=4),
    workers=st.integers(2, 8) | st.integers(2, MOST_WORKERS),
    lanes_per_frame=st.sampled_from([1, 4, 16]),
    window=st.sampled_from([1, 3, 16]),
    first_number=st.sampled_from([0, 1, 0xFFFF_FFFE]),
)
def test_sums_are_right_on_any_network(
    seed: int, links: list[LinkConditions], workers: int, lanes_per_frame: int, window: int, first_number: int
) -> None:
    config = ClusterConfig(
        workers=workers, lanes_per_frame=lanes_per_frame, window_slots=window, first_number=first_number, timeout_s=1e3
    )
    own = [links[rank % len(links)] for rank in range(workers)]
    run_some(Cluster(config, links=own, seed=seed), np.random.default_rng(seed))


@settings(max_examples=EXAMPLES // 3)
@given(
    seed=st.integers(0, 2**32 - 1),
    workers=st.integers(2, 8) | st.integers(2, MOST_WORKERS),
    window=st.sampled_from([1, 4, 32]),
    loss=st.sampled_from([0.001, 0.01, 0.05, 0.2]),
)
def test_a_lost_frame_costs_each_member_a_bounded_number_of_transmissions(
    seed: int, workers: int, window: int, loss: float
) -> None:
    bad = Impairment(loss=loss)
    config = ClusterConfig(workers=workers, lanes_per_frame=4, window_slots=window, timeout_s=1e3)
    cluster = Cluster(config, links=LinkConditions(up=bad, down=bad), seed=seed)
    run_some(cluster, np.random.default_rng(seed))
    assert repeats(cluster) <= REPEATS_PER_LOSS * workers * cluster.network.lost + REPEATS_AT_AN_END * workers


@settings(max_examples=EXAMPLES // 3)
@given(seed=st.integers(0, 2**32 - 1), workers=st.integers(2, 6), cut=st.sets(st.integers(0, 5), min_size=1))
def test_a_partition_only_costs_time(seed: int, workers: int, cut: set[int]) -> None:
    config = ClusterConfig(workers=workers, lanes_per_frame=4, window_slots=8, timeout_s=1e3)
    links = [LinkConditions(outages=((100e-6, 0.5),) if rank in cut else ()) for rank in range(workers)]
    cluster = Cluster(config, links=links, seed=seed)
    run_some(cluster, np.random.default_rng(seed))
    assert cluster.clock.now_s > 0.5 or cluster.network.lost == 0


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.05, 0.2])
def test_thousands_of_blocks_through_loss(loss: float) -> None:
    bad = Impairment(loss=loss)
    cluster = Cluster(ClusterConfig(workers=4, window_slots=32), links=LinkConditions(up=bad, down=bad), seed=3)
    random = np.random.default_rng(3)
    inputs = [random.integers(-1000, 1000, 8 * 4000).astype(np.int32) for _ in range(4)]
    outputs = [array.copy() for array in inputs]
    cluster.allreduce(outputs)
    check_sums(inputs, outputs, 8)
    # Each loss makes every worker repeat once or so; what is lost in the end of an operation waits for a time-out.
    repeats = sum(int(w.engine.counts[Count.OVERTAKEN] + w.engine.counts[Count.PROBES]) for w in cluster.workers)
    assert repeats <= 6 * cluster.network.lost + 16
    without_loss = Cluster(ClusterConfig(workers=4, window_slots=32))
    without_loss.allreduce([array.copy() for array in inputs])
    stretch = cluster.clock.now_s / without_loss.clock.now_s
    assert stretch < {0.001: 1.15, 0.01: 1.3, 0.05: 3.0, 0.2: 200.0}[loss]


def test_no_repeats_without_loss() -> None:
    cluster = Cluster(
        ClusterConfig(workers=4, window_slots=32),
        links=[LinkConditions(up=Impairment(delay_s=i * 20e-6)) for i in range(4)],
    )
    cluster.allreduce([np.ones(8 * 3000, np.int32) for _ in range(4)])
    for worker in cluster.workers:
        assert worker.engine.counts[[Count.OVERTAKEN, Count.PROBES, Count.DUPLICATE]].tolist() == [0, 0, 0]


def test_corruption_on_the_way_up_is_caught_by_checksums() -> None:
    bad = LinkConditions(up=Impairment(corruption=0.05))
    switch = ReferenceSwitch(lanes_per_frame=8)
    cluster = Cluster(ClusterConfig(workers=3, checksum=True), links=bad, switch=switch, seed=1)
    random = np.random.default_rng(1)
    for _ in range(10):
        run_some(cluster, random)
    assert switch.events[Reason.CHECKSUM] > 20


def test_without_checksums_corruption_gets_through() -> None:
    bad = LinkConditions(up=Impairment(corruption=0.05))
    cluster = Cluster(ClusterConfig(workers=3), links=bad, seed=1)
    with pytest.raises((AssertionError, SwitchsumError)):
        run_some(cluster, np.random.default_rng(1), operations=40)


def test_the_same_seed_gives_the_same_run() -> None:
    def run() -> tuple[float, int, list[int]]:
        bad = Impairment(loss=0.05, duplication=0.05, reordering=0.05)
        cluster = Cluster(ClusterConfig(workers=3), links=LinkConditions(up=bad, down=bad), seed=8)
        run_some(cluster, np.random.default_rng(8))
        return cluster.clock.now_s, cluster.network.sent, cluster.workers[1].engine.counts.tolist()

    assert run() == run()


@pytest.mark.parametrize("broken", [KeepsOldLanes, CombinesRepeats, Stores])
def test_a_broken_rule_gives_wrong_sums(broken: type[ReferenceSwitch]) -> None:
    bad = Impairment(loss=0.05, duplication=0.1, reordering=0.1, reordering_s=2e-3)
    wrong = 0
    for seed in range(6):
        cluster = Cluster(
            ClusterConfig(workers=3, window_slots=2),
            links=LinkConditions(up=bad, down=bad),
            switch=broken(lanes_per_frame=8),
            seed=seed,
        )
        random = np.random.default_rng(seed)
        inputs = [random.integers(1, 1000, 8 * 50).astype(np.int32) for _ in range(3)]
        outputs = [array.copy() for array in inputs]
        try:
            cluster.allreduce(outputs)
            check_sums(inputs, outputs, 8)
        except AssertionError:
            wrong += 1
    assert wrong == 6
