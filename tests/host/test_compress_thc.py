"""THC: levels of rotated values, four to a word, that the switch adds as they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from switchsum.testing import on_ranks
from switchsum_host.api.communicator import Communicator
from switchsum_host.compress import Thc
from switchsum_host.compress.thc import (
    BLOCK,
    STEPS,
    lengths_of,
    levels_for,
    place,
    place_few,
    rotate,
    rotate_back,
    take,
    take_few,
)
from switchsum_protocol.errors import UsageError

from .moved import without_repeats

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000, 1024, 1025, 5000])
def test_a_rotation_keeps_lengths_and_turns_back(size: int) -> None:
    lengths = lengths_of(size)
    assert 0 <= lengths.sum() - size < 32
    assert all(length & (length - 1) == 0 and 32 <= length <= BLOCK for length in lengths)
    values, turned = RNG.standard_normal(size).astype(np.float32), np.full(int(lengths.sum()), np.nan, np.float32)
    rotate(values, lengths, np.ones(lengths.size, np.float32), 9, turned)
    assert np.linalg.norm(turned) == pytest.approx(float(np.linalg.norm(values)), rel=1e-5)
    back = np.empty_like(values)
    rotate_back(turned, lengths, np.ones(lengths.size, np.float32), 9, back)
    np.testing.assert_allclose(back, values, atol=1e-5)


def test_one_large_value_is_spread_over_its_block() -> None:
    values, turned = np.zeros(2 * BLOCK, np.float32), np.empty(2 * BLOCK, np.float32)
    values[5] = 32
    rotate(values, lengths_of(values.size), np.ones(2, np.float32), 1, turned)
    np.testing.assert_allclose(np.abs(turned[:BLOCK]), 1, rtol=1e-6)
    assert not turned[BLOCK:].any()


def lost(levels: int, step: float) -> float:
    """Return the share of a normal distribution's energy that even levels lose, by numerical integration."""
    x = np.linspace(-8, 8, 400_001)
    level = np.clip(np.floor(x / step), -levels // 2, levels // 2 - 1) + 0.5
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float(np.sum((x - level * step) ** 2 * density) * (x[1] - x[0]))


@pytest.mark.parametrize("levels", STEPS)
def test_steps_are_those_that_lose_least(levels: int) -> None:
    best = lost(levels, STEPS[levels])
    assert best <= min(lost(levels, STEPS[levels] * factor) for factor in (0.98, 1.02))


@pytest.mark.parametrize(("ranks", "levels"), [(1, 256), (2, 128), (3, 64), (4, 64), (8, 32), (9, 16), (16, 16)])
def test_a_digit_holds_the_levels_of_all_ranks(ranks: int, levels: int) -> None:
    assert levels_for(ranks) == levels
    lengths = lengths_of(4 * BLOCK)
    turned = np.where(np.arange(4 * BLOCK) % 3, np.inf, -np.inf).astype(np.float32)
    words, sums = np.empty(BLOCK, np.int32), np.empty(4 * BLOCK, np.float32)
    place(turned, lengths, np.ones(4, np.float32), levels, words)
    most = np.iinfo(np.int32)
    added = words.astype(np.int64) * ranks
    assert most.min <= added.min() <= added.max() <= most.max
    take(added.astype(np.int32), lengths, np.ones(4, np.float32), ranks, levels, sums)
    np.testing.assert_array_equal(sums, np.sign(turned) * ranks * (levels - 1) / 2)


def test_four_bits_hold_sixteen_levels_of_sixteen_ranks() -> None:
    lengths, ones = lengths_of(2 * BLOCK), np.ones(2, np.float32)
    turned = np.concatenate([np.linspace(-10, 10, 2 * BLOCK - 3), [np.inf, -np.inf, np.nan]]).astype(np.float32)
    few, sums = np.empty(2 * BLOCK, np.int8), np.empty(2 * BLOCK, np.float32)
    place_few(turned, lengths, ones, few)
    assert (few.min(), few.max()) == (-8, 7)
    np.testing.assert_array_equal(few[:-1], np.clip(np.floor(turned[:-1]), -8, 7))
    take_few(np.multiply(few, 16), lengths, ones, 16, sums)
    np.testing.assert_array_equal(sums, 16 * (few + np.float32(0.5)))


@pytest.mark.parametrize(("ranks", "bits"), [(16, 8), (4, 4), (16, 4)])
def test_sixteen_levels_lose_little_and_seventeen_ranks_are_refused(ranks: int, bits: int) -> None:
    arrays = [RNG.standard_normal(20_000).astype(np.float32) for _ in range(ranks)]
    found = on_ranks(ranks, lambda comm: Thc(bits=bits).exchange(comm, "x", arrays[comm.rank]))
    for array, one in zip(arrays, found, strict=True):
        assert np.sum((one.own - array) ** 2) <= 0.013 * np.sum(array**2)
        np.testing.assert_allclose(one.mean, np.mean([one.own for one in found], axis=0), atol=1e-5)
    with pytest.raises(UsageError, match="thc adds at most 16 ranks, not 17: use int10"):
        levels_for(17, bits)
    with pytest.raises(UsageError, match="thc sends 4 or 8 bits up, not 5"):
        Thc(bits=5)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e30])
def test_a_gradient_of_any_tail_loses_as_little(scale: float) -> None:
    array = (RNG.standard_normal(50_000) ** 3 * scale).astype(np.float32)
    [one] = on_ranks(1, lambda comm: Thc(bits=4).exchange(comm, "x", array))
    assert np.sum(((one.own - array) / scale) ** 2) <= 0.013 * np.sum((array / scale) ** 2)


@pytest.mark.parametrize(("bits", "most_up"), [(8, 1.1), (4, 0.6)])
def test_a_value_takes_little_more_than_its_bits_each_way(bits: int, most_up: float) -> None:
    size = 1_000_000
    values = RNG.standard_normal(size).astype(np.float32)

    def moved(comm: Communicator) -> tuple[float, float]:
        before = comm.statistics()
        Thc(bits=bits).exchange(comm, "x", values)
        return without_repeats(before, comm.statistics())

    for up, down in on_ranks(2, moved):
        assert up < most_up * size
        assert down < 1.1 * size
