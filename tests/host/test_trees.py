"""Workers' engines on a root and leaves: the same bits as on one switch, whatever is lost between the switches."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import Impairment, LinkConditions
from switchsum.testing.tree import Tree
from switchsum_protocol.errors import OperationMismatch
from switchsum_protocol.frame import Operator, Reason

from .checks import check_sums
from .test_terrible_network import EXAMPLES, LINKS, draw_arrays

WORKERS = 8
LEVELS = pytest.mark.parametrize("shape", [{"leaves": 2}, {"leaves": 4, "inner": 2}], ids=["2 levels", "3 levels"])
"""Trees on which everything is tried that is tried on one of them."""
Shape = dict[str, Any]
TYPES = [np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint8)]


def arrays(dtype: np.dtype[Any], size: int = 130) -> list[npt.NDArray[Any]]:
    random = np.random.default_rng(5)
    made = []
    for _ in range(WORKERS):
        values = random.integers(0, 30, size) if dtype.kind in "iu" else random.normal(size=size) * 1000
        values[random.random(size) < 0.3] = 0
        values[size // 3 : size // 2] = 0  # blocks that some worker or every worker skips
        made.append(values.astype(dtype))
    return made


def bits(
    dtype: np.dtype[Any], operator: str, tree: Tree | None, config: ClusterConfig, links: LinkConditions | None = None
) -> list[bytes]:
    given = arrays(dtype)
    Cluster(config, switch=tree, links=links, seed=3).allreduce(given, operator)
    return [array.tobytes() for array in given]


@pytest.mark.parametrize(("leaves", "inner"), [(2, 0), (8, 0), (4, 2)])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_tree_gives_the_same_bits_as_one_switch(dtype: np.dtype[Any], leaves: int, inner: int) -> None:
    config = ClusterConfig(workers=WORKERS)
    for operator in [one.name.lower() for one in Operator if dtype.kind in "iu" or not one.is_bitwise]:
        expected = bits(dtype, operator, None, config)
        assert bits(dtype, operator, Tree(config, leaves=leaves, inner=inner), config) == expected
        assert len(set(expected)) == 1


@LEVELS
def test_integers_that_overflow_come_out_as_on_one_switch(shape: Shape) -> None:
    config = ClusterConfig(workers=WORKERS)
    outcomes = []
    tree = Tree(config, **shape)
    for switch in (None, tree):
        given = [np.full(40, (2**30 - rank) * (1 if rank < 4 else -1), np.int32) for rank in range(WORKERS)]
        Cluster(config, switch=switch).allreduce(given)
        outcomes.append([array.tobytes() for array in given])
    assert outcomes[0] == outcomes[1]
    assert np.frombuffer(outcomes[1][0], np.int32).tolist() == [16] * 40
    below = [switch for name, switch in tree.switches.items() if name.startswith("inner")] or tree.leaves
    assert all(switch.events[Reason.OVERFLOW] for switch in below)  # and their partial sums cancel at the root


@LEVELS
def test_loss_and_duplication_on_every_hop_are_recovered_by_the_workers(shape: Shape) -> None:
    config = ClusterConfig(workers=WORKERS)
    bad = Impairment(loss=0.05, duplication=0.05, reordering=0.05)
    for seed in range(2):
        tree = Tree(config, **shape, loss=0.1, duplication=0.1, seed=seed)
        links = LinkConditions(up=bad, down=bad)
        dtype = TYPES[0]
        assert bits(dtype, "sum", tree, config, links) == bits(dtype, "sum", None, config)
        assert tree.root.events[Reason.REPEATED] + tree.root.events[Reason.HELD] > 0


@LEVELS
def test_a_switch_sends_up_what_one_of_its_members_sends(shape: Shape) -> None:
    config = ClusterConfig(workers=WORKERS)
    tree = Tree(config, **shape)
    bits(TYPES[0], "sum", tree, config)
    rounds = tree.root.events[Reason.COMPLETED]
    assert rounds
    came = sum(leaf.events[Reason.CONTRIBUTED] for leaf in tree.leaves)
    assert came == rounds * WORKERS
    assert tree.passed_up == rounds * shape["leaves"]
    assert tree.root.events[Reason.CONTRIBUTED] == rounds * 2


@LEVELS
def test_a_mismatch_behind_another_leaf_is_raised(shape: Shape) -> None:
    config = ClusterConfig(workers=WORKERS)
    cluster = Cluster(config, switch=Tree(config, **shape))
    with pytest.raises(OperationMismatch):
        cluster.allreduce([np.ones(20 + (rank == 7), np.float32) for rank in range(WORKERS)])


@pytest.mark.parametrize(
    ("inner", "cleared"),
    [(0, "leaf1"), (0, "root"), (0, "leaf0 root"), (2, "leaf1"), (2, "inner0"), (2, "root"), (2, "leaf0 inner1 root")],
)
def test_switches_that_are_cleared_are_filled_again(inner: int, cleared: str) -> None:
    config = ClusterConfig(workers=WORKERS)
    tree = Tree(config, leaves=4, inner=inner)
    given = arrays(TYPES[0], 900)
    cluster = Cluster(config, switch=tree)
    serials = [cluster.submit(rank, array) for rank, array in enumerate(given)]
    cluster.run(lambda: tree.passed_up > 25)
    for name in cleared.split():
        tree.switches[name].clear()
    for worker in cluster.workers:
        worker.engine.restarted(cluster.clock.now_s)
    cluster.run(lambda: all(serial in w.finished for serial, w in zip(serials, cluster.workers, strict=True)))
    expected = arrays(TYPES[0], 900)
    Cluster(config).allreduce(expected)
    assert [array.tobytes() for array in given] == [array.tobytes() for array in expected]


MANY = 64


def sums_of_many(tree: Tree, config: ClusterConfig, given: list[npt.NDArray[Any]], operator: str) -> set[bytes]:
    mine = [array.copy() for array in given]
    Cluster(config, switch=tree, seed=3).allreduce(mine, operator)
    return {array.tobytes() for array in mine}


@pytest.mark.parametrize("dtype", [TYPES[0], np.dtype(np.int16)], ids=str)
def test_64_workers_get_right_sums_and_the_same_bits_over_trees_of_two_and_three_levels(dtype: np.dtype[Any]) -> None:
    config = ClusterConfig(workers=MANY)
    random = np.random.default_rng(1)
    if dtype.kind == "i":  # a leaf's partial sum overflows, and that of all does not
        signs = [1 if rank < MANY // 2 else -1 for rank in range(MANY)]
        given = [(random.integers(2000, 2100, 130) * sign).astype(dtype) for sign in signs]
        expected = sum(array.astype(np.int64) for array in given)
        tolerance = 0.0
    else:
        given = [(random.normal(size=130) * 1000).astype(dtype) for _ in range(MANY)]
        expected = sum(array.astype(np.float64) for array in given)
        tolerance = 1e-2
    shapes: list[dict[str, Any]] = [{"leaves": 4}, {"leaves": 8, "inner": 2}, {"leaves": 4, "loss": 0.05, "seed": 2}]
    found = set().union(*(sums_of_many(Tree(config, **shape), config, given, "sum") for shape in shapes))
    assert len(found) == 1
    assert np.abs(np.frombuffer(found.pop(), dtype) - expected).max() <= tolerance
    assert sums_of_many(Tree(config, leaves=8, inner=2), config, given, "max") == {np.max(given, axis=0).tobytes()}


@pytest.mark.parametrize("inner", [0, 2])
def test_averages_of_the_largest_float32_are_finite_where_rounding_of_many_workers_reaches_further(inner: int) -> None:
    config = ClusterConfig(workers=160)  # a lane of 32 bits has fewer steps for each than a float32 has
    given = [np.full(12, np.finfo(np.float32).max) for _ in range(config.workers)]
    found = sums_of_many(Tree(config, leaves=8, inner=inner), config, given, "average")
    assert found == {given[0].tobytes()}


@pytest.mark.parametrize("lanes", ["int16", "int8"])
def test_rounding_at_random_gives_the_same_bits_over_trees(lanes: str) -> None:
    config = ClusterConfig(workers=WORKERS)
    found = []
    for shape in (None, {"leaves": 4}, {"leaves": 4, "inner": 2}, {"leaves": 2, "loss": 0.05, "seed": 2}):
        given = arrays(TYPES[0], 900)
        exact = np.sum(given, axis=0, dtype=np.float64)
        Cluster(config, switch=Tree(config, **shape) if shape else None, seed=1).allreduce(given, lanes=lanes)
        found += [array.tobytes() for array in given]
    assert len(set(found)) == 1
    # At most 4,096 either way, of which each rank is off by less than a step.
    steps = WORKERS * 4096 / (127 if lanes == "int8" else 32767 // WORKERS)
    assert 0 < np.abs(given[0] - exact).max() < steps


@settings(max_examples=max(5, EXAMPLES // 9))
@given(
    seed=st.integers(0, 2**32 - 1),
    links=st.lists(LINKS, min_size=4, max_size=4),
    shape=st.sampled_from([(2, 0), (4, 0), (4, 2)]),
    between=st.sampled_from([0.0, 0.01, 0.1]),
    window=st.sampled_from([1, 3, 16]),
    deaths=st.lists(st.tuples(st.integers(1, 200), st.sets(st.integers(0, 6), min_size=1, max_size=3)), max_size=3),
)
def test_sums_are_right_on_any_network_over_trees_whose_switches_die(
    seed: int,
    links: list[LinkConditions],
    shape: tuple[int, int],
    between: float,
    window: int,
    deaths: list[tuple[int, set[int]]],
) -> None:
    config = ClusterConfig(workers=WORKERS, lanes_per_frame=4, window_slots=window, timeout_s=1e3)
    tree = Tree(config, leaves=shape[0], inner=shape[1], loss=between, duplication=between, seed=seed)
    cluster = Cluster(config, links=[links[rank % 4] for rank in range(WORKERS)], seed=seed, switch=tree)
    random = np.random.default_rng(seed)
    inputs = [draw_arrays(random, WORKERS, config.lanes_per_frame) for _ in range(2)]
    outputs = [[array.copy() for array in ranks] for ranks in inputs]
    for ranks in outputs:
        for rank, array in enumerate(ranks):
            cluster.submit(rank, array)
    names = list(tree.switches)

    def done() -> bool:
        return all(len(worker.finished) == len(inputs) for worker in cluster.workers)

    for after, who in deaths:
        until = tree.passed_up + after
        cluster.run(lambda: tree.passed_up >= until or done(), limit_s=1e3)  # noqa: B023
        for at in who:
            tree.switches[names[at % len(names)]].clear()
        for worker in cluster.workers:
            worker.engine.restarted(cluster.clock.now_s)
    cluster.run(done, limit_s=1e3)
    for ranks, results in zip(inputs, outputs, strict=True):
        check_sums(ranks, results, config.lanes_per_frame)
