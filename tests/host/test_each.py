"""Floats of which each has an exponent of its own: the same bits however a tensor is cut, and how far sums are off."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.local import communicators
from switchsum.testing.network import Impairment, LinkConditions
from switchsum.testing.tree import Tree
from switchsum_host.api import collectives
from switchsum_host.api.collectives import Collective, Options, Ranks
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.each import EachSum
from switchsum_host.engine.each import find_exponents, narrow, widen
from switchsum_host.engine.operation import Operation
from switchsum_protocol import each_lanes as definition
from switchsum_protocol.errors import OperationMismatch, UsageError
from switchsum_protocol.frame import LANE_BUILDS

from .checks import RANKS, bits, failures, on_all
from .moved import without_repeats

Array = npt.NDArray[Any]
GEOMETRIES = int(os.environ.get("SWITCHSUM_EXAMPLES", "8"))
"""Ways to cut the same tensors; `make networks` has thousands."""
HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
INF, NAN = np.inf, np.nan
words = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1 << 31, 1, 0x7F7F_FFFF, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0001])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(words, words, words), min_size=1, max_size=40), st.integers(1, 64))
def test_kernels_do_what_the_definition_says(columns: list[tuple[int, ...]], divisor: int) -> None:
    ranks = np.array(columns, np.uint32).T.copy()
    exponents = np.empty(ranks.shape, np.uint8)
    for row, own in zip(ranks, exponents, strict=True):
        find_exponents(row, own)
    agreed = exponents.max(axis=0)
    expected = [definition.quantise_each(row.view(np.float32), agreed) for row in ranks]
    for row in ranks:
        narrow(row, agreed)
    np.testing.assert_array_equal(ranks.view(np.int32), expected)
    total = ranks.view(np.int32).sum(axis=0, dtype=np.int32)
    found = total.view(np.uint32)
    widen(found, agreed, float(divisor))
    np.testing.assert_array_equal(found, bits(definition.dequantise_each(np.sum(expected, axis=0), agreed, divisor)))


def test_the_largest_values_of_as_many_ranks_as_may_be_fit_a_lane() -> None:
    largest = np.array([np.finfo(np.float32).max], np.float32)
    exponent = np.array([254], np.uint8)
    most = definition.quantise_each(largest, exponent)[0]
    assert 1 << 24 < most < 1 << 25
    assert definition.EACH_MOST_WORKERS * most < 1 << 31


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=30, deadline=None)
@given(st.lists(finite, min_size=1, max_size=64), st.booleans())
def test_a_sum_is_off_by_no_more_than_a_2_to_the_25th_of_the_largest_value_for_each_other_rank(
    values: list[float], is_average: bool
) -> None:
    lanes = np.array(values, np.float32).reshape(-1, 1).view(np.uint32)
    exponent = np.empty(1, np.uint8)
    agreed = max(int(word) >> 23 & 0xFF for word in lanes[:, 0])
    exponent[:] = agreed
    for one in lanes:
        narrow(one, exponent)
    total = lanes.view(np.int32).sum(axis=0, dtype=np.int32).view(np.uint32)
    divisor = len(values) if is_average else 1
    widen(total, exponent, float(divisor))
    largest = max(abs(Fraction(float(value))) for value in np.array(values, np.float32))
    bound = (len(values) - 1) * largest / 2**25
    exact = sum((Fraction(float(value)) for value in np.array(values, np.float32)), Fraction())
    with np.errstate(over="ignore"):
        low, high = (np.float32(float((exact + off) / divisor)) for off in (-bound, bound))
    assert low <= total.view(np.float32)[0] <= high  # rounding to float32 is monotonic


def run(cluster: Cluster, pieces: Sequence[Sequence[Array]], operator: str) -> None:
    """Add pieces of tensors, all of them in flight together, on a virtual network."""
    config = cluster.config
    how = Options(operator=operator, lanes="each")
    members = [
        Ranks(rank=rank, world_size=config.workers, lanes_per_frame=config.lanes_per_frame)
        for rank in range(config.workers)
    ]
    sums = [
        [EachSum(collectives.allreduce(one, how, member), config.workers) for one in own]
        for own, member in zip(pieces, members, strict=True)
    ]
    finish(cluster, [[one.first for one in own] for own in sums])
    last = [[one.second() for one in own] for own in sums]
    finish(cluster, last)
    for one in itertools.chain(*last):
        assert one.at_end is not None
        one.at_end()


def finish(cluster: Cluster, wanted: list[list[Collective]]) -> None:
    """Begin collectives of each rank, and bring them to their end."""
    for worker, own in zip(cluster.workers, wanted, strict=True):
        for one in own:
            worker.engine.submit(one.operation, one.values, cluster.clock.now_s)
    ends = {id(worker): len(worker.finished) + len(own) for worker, own in zip(cluster.workers, wanted, strict=True)}
    cluster.run(lambda: all(len(worker.finished) == ends[id(worker)] for worker in cluster.workers))


SIZE, OWN = 700, 4
"""Values of a tensor, and ranks that have any."""


def tensors(dtype: np.dtype[Any]) -> list[Array]:
    """Return tensors with zeros in runs, layers of different size, heavy tails and what is not finite."""
    random = np.random.default_rng(11)
    made = []
    for _ in range(OWN):
        values = random.standard_t(1.5, SIZE) * np.repeat(10.0 ** random.integers(-6, 6, SIZE // 50), 50)
        values[random.random(SIZE) < 0.02] = random.choice([INF, -INF, NAN])
        values[100:180] = 0
        with np.errstate(over="ignore"):
            made.append(values.astype(dtype))
    return made


@settings(max_examples=GEOMETRIES, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from([np.dtype(np.float32), *HALVES]))
@pytest.mark.timeout(600)
def test_one_digest_for_every_geometry(seed: int, dtype: np.dtype[Any]) -> None:
    """Cuts, lane builds, trees, loss, windows, orders of ranks and of pieces, and ranks of zeros."""
    random = np.random.default_rng(seed)
    bad = Impairment(loss=float(random.choice([0, 0.02, 0.1])), reordering=0.1, jitter_s=1e-4)
    workers = int(random.choice([OWN, OWN + 2, 8, 12]))
    config = ClusterConfig(
        workers=workers,
        lanes_per_frame=int(random.choice([4, 16, *LANE_BUILDS])),
        window_slots=int(random.integers(1, 9)),
        timeout_s=1e3,
    )
    leaves = int(random.choice([0, 2, 4]))
    switch = Tree(config, leaves=leaves, loss=bad.loss, seed=seed) if leaves and workers % leaves == 0 else None
    inputs = [*tensors(dtype), *(np.zeros(SIZE, dtype) for _ in range(workers - OWN))]
    given_ranks = [inputs[at].copy() for at in random.permutation(workers)]
    cuts = np.sort(random.integers(0, SIZE + 1, random.integers(0, 12)))
    order = random.permutation(len(cuts) + 1)
    pieces = [[np.split(one, cuts)[at] for at in order] for one in given_ranks]
    run(Cluster(config, links=LinkConditions(up=bad, down=bad), switch=switch, seed=seed), pieces, "sum")
    assert {one.tobytes() for one in given_ranks} == {expected_sum(dtype).tobytes()}


def expected_sum(dtype: np.dtype[Any]) -> Array:
    """Return what the definition gives."""
    singles = [one.astype(np.float32) for one in tensors(dtype)]
    exponents = np.max([bits(one) >> 23 & 0xFF for one in singles], axis=0).astype(np.uint8)
    lanes = np.sum([definition.quantise_each(one, exponents) for one in singles], axis=0)
    with np.errstate(over="ignore"):
        return definition.dequantise_each(lanes, exponents).astype(dtype)


CASES = [
    ((INF, 1.0, 2.0), INF),
    ((-INF, 1.0, -INF), -INF),
    ((INF, -INF, 0.0), NAN),
    ((NAN, INF, 1.0), NAN),
    ((np.float32(-NAN), 0.0, 0.0), NAN),
    ((-0.0, -0.0, -0.0), 0.0),
    ((3e38, 3e38, 3e38), INF),
    ((-3e38, -3e38, 1.0), -INF),
    ((3e38, 3e38, -3e38), np.float32(3e38)),
    ((1e-45, 1e-45, -1e-45), np.float32(1e-45)),
    ((1.0, -1.0, 1e-45), 0.0),
]
"""What three ranks have, and the sum; the last one is not exact: the rank with 1e-45 loses it beside 1."""


def test_what_is_not_finite_comes_to_what_ieee_says_and_zero_has_no_sign(ranks: list[Communicator]) -> None:
    given_values = np.array([case for case, _ in CASES], np.float32).T.copy()
    expected = bits(np.array([result for _, result in CASES], np.float32))
    for array in on_all(ranks, lambda one: one.allreduce(given_values[one.rank].copy(), lanes="each")):
        assert [hex(word) for word in bits(array)] == [hex(word) for word in expected]
    means = on_all(ranks, lambda one: one.allreduce(np.full(3, 3e38, np.float32), "average", lanes="each"))
    np.testing.assert_array_equal(means, np.full((RANKS, 3), 3e38, np.float32))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_averages_of_halves_are_divided_before_they_are_narrowed(ranks: list[Communicator], dtype: Any) -> None:
    kind: Any = ml_dtypes.finfo
    largest, least = np.array(kind(dtype).max, dtype), np.array(-kind(dtype).smallest_subnormal)
    own = {rank: np.array([largest, least if rank == 0 else 0], dtype) for rank in range(RANKS)}
    for array in on_all(ranks, lambda one: one.allreduce(own[one.rank].copy(), "average", lanes="each")):
        assert array[0] == largest
        assert bits(array)[1] == 0  # a third of the least value, and not minus zero


def test_one_rank_by_itself_gets_its_values_with_one_zero_and_one_nan() -> None:
    [alone] = communicators(1)
    given_words = np.array([0x8000_0000, 0x7FC0_1234, 0xFFFF_FFFF, 0x7F80_0000, 1, 0x3F80_0001], np.uint32)
    found = alone.allreduce(given_words.view(np.float32).copy(), lanes="each")
    assert bits(found).tolist() == [0, 0x7FC0_0000, 0x7FC0_0000, 0x7F80_0000, 1, 0x3F80_0001]
    alone.close()


def test_every_call_that_adds_has_these_lanes(ranks: list[Communicator]) -> None:
    random = np.random.default_rng(2)
    inputs = (random.standard_normal((RANKS, 3 * RANKS, 5)) * 10.0 ** random.integers(-9, 9, (3 * RANKS, 5))).astype(
        "f4"
    )

    def calls(one: Communicator) -> list[bytes]:
        own = inputs[one.rank]
        whole = one.allreduce(own.copy(), lanes="each")
        backwards = own.copy()[:, ::-1]  # no contiguous one, which is copied
        one.allreduce(backwards, lanes="each")
        part = one.reduce_scatter(own, lanes="each")
        root = one.reduce(own.copy(), RANKS - 1, lanes="each")
        begun = [one.allreduce_async(own.copy(), lanes="each"), one.reduce_scatter_async(own, lanes="each")]
        blocks = one.allreduce(own.copy(), lanes="each", block=4)
        sparse = one.allreduce_sparse(np.arange(len(own)), own, len(own), lanes="each").values
        of_largest = one.allreduce_topk(own.copy(), density=1.0, lanes="each")
        results = [backwards[:, ::-1], blocks, sparse, of_largest, begun[0].wait()]
        if one.rank == RANKS - 1:
            results.append(root)
        np.testing.assert_array_equal(begun[1].wait(), part)
        np.testing.assert_array_equal(part, whole[3 * one.rank :][:3])
        return [np.ascontiguousarray(result).tobytes() for result in [whole, *results]]

    assert len(set(itertools.chain(*on_all(ranks, calls)))) == 1


def test_arrays_that_overlap_are_added_in_turn(ranks: list[Communicator]) -> None:
    def calls(one: Communicator, dtype: np.dtype[Any]) -> bool:
        array = np.linspace(1, 2 + one.rank, 5000).astype(dtype)
        expected = array.copy()
        begun = [one.allreduce_async(array, "average", lanes=lanes) for lanes in ("each", "int32", "each", "each")]
        begun += [one.broadcast_async(array), one.allreduce_async(array[7:900], "max")]
        for handle in begun:
            handle.wait()
        for lanes in ("each", "int32", "each", "each"):
            one.allreduce(expected, "average", lanes=lanes)
        return array.tobytes() == expected.tobytes()

    for dtype in (np.dtype(np.float32), HALVES[1]):
        assert on_all(ranks, lambda one: calls(one, dtype)) == [True] * RANKS  # noqa: B023


def test_what_these_lanes_cannot_do_is_refused_by_name(fresh_ranks: list[Communicator]) -> None:
    for error in failures(fresh_ranks, lambda one: one.allreduce(np.ones(3, np.float32), "max", lanes="each")):
        assert "each lanes are for sums and averages of floats" in str(error)
    for error in failures(fresh_ranks, lambda one: one.allreduce(np.ones(3), lanes="each")):
        assert "float64" in str(error)

    def differ(one: Communicator) -> object:
        return one.allreduce(np.ones(300, np.float32), "average" if one.rank else "sum", lanes="each")

    for error in failures(fresh_ranks, differ):
        assert isinstance(error, OperationMismatch)
        assert "allreduce (" in str(error)
        assert "each lanes" in str(error)


def test_more_ranks_than_a_lane_has_room_for_are_refused() -> None:
    config = ClusterConfig(workers=65, lanes_per_frame=8, window_slots=2)
    [one, *others] = communicators(1, config=config)
    one.world_size = 65
    with pytest.raises(UsageError, match="lanes='each' work up to 64 ranks, not 65"):
        one.allreduce(np.ones(3, np.float32), lanes="each")
    for each in (one, *others):
        each.close()


def test_zeros_of_all_ranks_do_not_travel_and_an_exponent_takes_a_byte() -> None:
    config = ClusterConfig(workers=2, lanes_per_frame=256, window_slots=8)
    payload = {}
    for kind, values in (("zeros", np.zeros), ("ones", np.ones)):
        made = communicators(2, config=config)
        before = made[0].statistics()
        on_all(made, lambda one: one.allreduce(values(64 * 1024, np.float32), lanes="each"))  # noqa: B023
        payload[kind] = without_repeats(before, made[0].statistics())[0] / (64 * 1024)
        for one in made:
            one.close()
    assert payload["zeros"] < 0.1
    assert 5 < payload["ones"] < 5.6


def test_it_says_what_it_is(ranks: list[Communicator]) -> None:
    operation = Operation.of(np.zeros(3, np.float32), lanes="each", operator="average")
    assert str(operation) == "allreduce (average, each lanes) of float32[3]"
    before = [one.begun for one in ranks]
    on_all(ranks, lambda one: one.allreduce(np.ones(3, np.float32), lanes="each"))
    assert [one.begun for one in ranks] == [count + 2 for count in before]
