"""Rough sums: a byte a value, near enough to say which are large, the same on all ranks."""

from __future__ import annotations

import numpy as np
import pytest

from checks.lab.counting import Counting, Model, on_all
from switchsum_host.api.rough import BLOCK, rough_sums


@pytest.mark.parametrize("ranks", [1, 3, 42, 43])
def test_sums_are_off_by_less_than_a_step_of_each_rank(ranks: int) -> None:
    random = np.random.default_rng(ranks)
    size = 2 * BLOCK + 7
    arrays = [(random.standard_normal(size) * np.repeat([1e-30, 1e4, 0], BLOCK)[:size]) for _ in range(ranks)]
    arrays = [array.astype(np.float32) for array in arrays]
    network = Counting(ranks, 256)
    found = [np.zeros(0, np.float32)] * ranks

    def call(rank: int) -> None:
        found[rank] = rough_sums(Model(network, rank), arrays[rank])

    on_all(ranks, call)
    assert len({sums.tobytes() for sums in found}) == 1
    exact, most = np.sum(arrays, axis=0, dtype=np.float64), np.abs(arrays).max(axis=0)
    for start in range(0, size, BLOCK):
        scale = most[start : start + BLOCK].max()
        steps = (127 if ranks <= 42 else 32767) // ranks
        off = np.abs(found[0] - exact)[start : start + BLOCK]
        assert off.max() <= ranks * scale / steps
        assert scale == 0 or off.max() > 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_all_hear_of_what_is_not_finite(bad: float) -> None:
    network = Counting(2, 256)
    found = [np.zeros(0, np.float32)] * 2

    def call(rank: int) -> None:
        values = np.ones(2 * BLOCK, np.float32)
        values[3] = bad if rank == 1 else 1
        found[rank] = rough_sums(Model(network, rank), values)

    on_all(2, call)
    for sums in found:
        assert np.isnan(sums[:BLOCK]).all()
        assert (sums[BLOCK:] == 2).all()
