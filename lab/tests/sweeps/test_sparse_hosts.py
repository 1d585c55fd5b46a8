"""Sparse and dense sums of hosts alone are right, too: sweeps and measurements compare ours with them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import pytest

from support.timing import patience
from switchsum_lab.sweeps.sparse_hosts import (
    Array,
    Octets,
    OkTopk,
    Peers,
    Stream,
    dequantised,
    quantised,
    recursive_doubling,
    ring,
    sparcml_doubling,
    sparcml_split,
)

SIZE = 2_000
RNG = np.random.default_rng(21)
Result = TypeVar("Result")


class Threads:
    """Ranks that are threads, with a queue for each pair."""

    def __init__(self, rank: int, queues: dict[tuple[int, int], queue.Queue[Octets]], ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        self._queues = queues

    def swap(self, outgoing: Mapping[int, Octets], sources: Sequence[int]) -> dict[int, Octets]:
        for rank, octets in outgoing.items():
            self._queues[self.rank, rank].put(octets.copy())
        return {rank: self._queues[rank, self.rank].get(timeout=patience(20)) for rank in sources}


def on_all(ranks: int, function: Callable[[Peers], Result]) -> list[Result]:
    queues: dict[tuple[int, int], queue.Queue[Octets]] = {
        (one, other): queue.Queue() for one in range(ranks) for other in range(ranks)
    }
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(lambda rank: function(Threads(rank, queues, ranks)), range(ranks)))


def streams(ranks: int, density: float) -> tuple[list[Stream], Array]:
    """Return sparse arrays of all ranks, and their sum."""
    own, total = [], np.zeros(SIZE, np.float32)
    for _ in range(ranks):
        indices = np.flatnonzero(RNG.random(SIZE) < density).astype(np.uint32)
        own.append(Stream(indices, RNG.integers(1, 9, len(indices)).astype(np.float32)))
        total[indices] += own[-1].values
    return own, total


def whole(total: Stream | Array) -> Array:
    return total.to_dense(0, SIZE) if isinstance(total, Stream) else total


@pytest.mark.parametrize(("reduce", "ranks"), [(ring, 1), (ring, 3), (recursive_doubling, 1), (recursive_doubling, 8)])
def test_dense(reduce: Callable[[Peers, Array], None], ranks: int) -> None:
    arrays = [RNG.integers(-9, 9, SIZE).astype(np.float32) for _ in range(ranks)]
    expected = np.sum(arrays, axis=0)
    on_all(ranks, lambda peers: reduce(peers, arrays[peers.rank]))
    for array in arrays:
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("density", [0.0, 0.01, 0.2, 0.45, 1.0])
def test_sparcml(density: float) -> None:
    own, expected = streams(4, density)
    for total in on_all(4, lambda peers: sparcml_doubling(peers, own[peers.rank], SIZE)):
        assert isinstance(total, Stream) == (density < 0.2)
        np.testing.assert_array_equal(whole(total), expected)
    for parts in on_all(4, lambda peers: sparcml_split(peers, own[peers.rank], SIZE)):
        bounds = [SIZE * part // 4 for part in range(5)]
        for part, first, last in zip(parts, bounds, bounds[1:], strict=False):
            dense = part.to_dense(first, last) if isinstance(part, Stream) else part
            np.testing.assert_array_equal(dense, expected[first:last])


@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 7, 11])
@pytest.mark.parametrize("density", [0.01, 0.3])
def test_sparcml_folds_ranks_beyond_a_power_of_two(ranks: int, density: float) -> None:
    own, expected = streams(ranks, density)
    for total in on_all(ranks, lambda peers: sparcml_doubling(peers, own[peers.rank], SIZE)):
        np.testing.assert_array_equal(whole(total), expected)


def _split(own: list[Stream], peers: Peers) -> list[Stream | Array]:
    return sparcml_split(peers, own[peers.rank], SIZE, is_quantised=True)


def test_sparcml_quantises_parts_that_are_dense_and_no_others() -> None:
    errors = []
    for density in (0.01, 1.0):
        own, expected = streams(4, density)
        for parts in on_all(4, partial(_split, own)):
            assert [isinstance(part, Stream) for part in parts] == [density < 1] * 4
            bounds = [SIZE * part // 4 for part in range(5)]
            dense = [
                part.to_dense(first, last) if isinstance(part, Stream) else part
                for part, first, last in zip(parts, bounds, bounds[1:], strict=False)
            ]
            errors.append(float(np.abs(np.concatenate(dense) - expected).max()))
    assert errors[:4] == [0.0] * 4
    assert 0 < max(errors) <= float(expected.max()) / 7  # within a level of the bucket's largest value


def test_quantising_has_no_bias_and_takes_an_eighth() -> None:
    values = RNG.standard_normal(5000).astype(np.float32)
    made = [quantised(values, np.random.default_rng(seed)) for seed in range(200)]
    assert len(made[0]) == 4 * 5 + 5 * 1024 // 2
    mean = np.mean([dequantised(one, len(values)) for one in made], axis=0)
    assert float(np.abs(mean - values).max()) < 0.25
    np.testing.assert_array_equal(np.abs(values).argmax(), np.abs(dequantised(made[0], len(values))).argmax())
    assert dequantised(quantised(np.zeros(7, np.float32), np.random.default_rng(0)), 7).tolist() == [0] * 7


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("is_skewed", [False, True])
def test_ok_topk_gives_the_largest_sums(ranks: int, is_skewed: bool) -> None:
    own, expected = streams(ranks, 0.1)
    if is_skewed:  # one part has all the large sums, so that the ranks have to even them out
        for stream in own:
            stream.values[stream.indices < SIZE // ranks // 2] += 100
        expected = np.sum([stream.to_dense(0, SIZE) for stream in own], axis=0)
    k = 100
    threshold = np.sort(expected)[-k]

    def call(peers: Peers) -> list[Stream]:
        ok = OkTopk(peers, SIZE, k)
        return [ok.allreduce(own[peers.rank]) for _ in range(2)]

    for totals in on_all(ranks, call):
        for total in totals:
            np.testing.assert_array_equal(whole(total), np.where(expected >= threshold, expected, 0))
            assert (np.diff(total.indices.astype(np.int64)) > 0).all()
