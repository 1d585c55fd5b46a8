"""Several values to a word: what comes out is the sum of what ranks said, and as near as promised."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from checks.bench import accuracy
from switchsum_host.api.communicator import Communicator
from switchsum_host.compress import Packed, Part
from switchsum_host.compress.packed import Layout
from switchsum_host.compress.small_blocks import FINE, magnitudes, scales_of, units_of
from switchsum_protocol.errors import UsageError
from switchsum_protocol.lanes import mixed
from switchsum_switch.kernels.constants import GOLDEN

from .checks import RANKS

Array = npt.NDArray[Any]


def blocks_of(layout: Layout, values: Array) -> Array:
    """Return values as `[groups, per_word, block]`, zeros behind them."""
    whole = layout.per_word * layout.block
    padded = np.zeros(-(-values.size // whole) * whole, np.float32)
    padded[: values.size] = values
    return padded.reshape(-1, layout.per_word, layout.block)


def digits_of(layout: Layout, values: Array, scales: Array, steps: int, seed: int, turn: int) -> Array:
    """Return what is written to words, `[groups, per_word, block]`, in numpy."""
    blocks = blocks_of(layout, values)
    factors = (steps / scales).astype(np.float32).reshape(*blocks.shape[:2], 1)
    drawn = mixed(np.uint32(seed) + np.arange(blocks.size, dtype=np.uint32) * np.uint32(GOLDEN)) + np.uint32(turn)
    share = (drawn >> 8).astype(np.float32) * np.float32(2.0**-24)
    placed = np.floor(blocks * factors + share.reshape(blocks.shape))
    clipped: Array = np.clip(placed, -steps, steps).astype(np.int64)
    return clipped


def words_of(layout: Layout, digits: Array) -> Array:
    """Return whole words of digits `[groups, per_word, block]`."""
    total: Array = (digits * layout.base ** np.arange(layout.per_word)[:, None]).sum(axis=1)
    return total.reshape(-1)


def scales_for(layout: Layout, values: Array) -> Array:
    return scales_of(magnitudes(values, layout.block, layout.blocks(values.size), FINE), FINE)


@pytest.mark.parametrize("per_word", [2, 3, 4])
@pytest.mark.parametrize("ranks", [2, 3, 16, 32])
def test_no_digit_of_a_sum_runs_into_the_next(per_word: int, ranks: int) -> None:
    layout = Layout(per_word=per_word, block=8)
    steps = layout.steps(ranks)
    random = np.random.default_rng([per_word, ranks])
    digits = random.integers(-steps, steps + 1, (ranks, 40, per_word, 8))
    digits[:, :4] = np.array([steps, -steps, 0, steps])[:, None, None]
    digits[:, 4:8] = np.where(np.arange(per_word) % 2, steps, -steps)[:, None]
    total = np.zeros(40 * 8, np.int64)
    for one in digits:
        total += words_of(layout, one)
        assert np.abs(total).max() < 1 << 31  # nor does a sum on its way leave a lane
    found = np.empty(digits[0].size, np.float32)
    layout.unpack(total.astype(np.int32), np.ones(40 * per_word, np.float32), found)
    np.testing.assert_array_equal(found, digits.sum(axis=0).reshape(-1))


@pytest.mark.parametrize("per_word", [2, 3, 4])
@pytest.mark.parametrize("size", [1, 95, 96, 4_999])
def test_words_have_the_bits_of_their_definition(per_word: int, size: int) -> None:
    layout = Layout(per_word=per_word, block=32)
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    scales, steps, seed = scales_for(layout, values), layout.steps(3), 0xFFFF_FF00
    has_scale = np.where(scales > 0, scales, 1)  # blocks behind the end have none
    digits = digits_of(layout, values, has_scale, steps, seed, 3 << 30)
    digits *= (scales > 0).reshape(-1, per_word, 1)
    words = layout.pack(values, scales, steps, seed, 3 << 30)
    np.testing.assert_array_equal(words, words_of(layout, digits))
    units, found = np.float32(1) / np.arange(1, len(scales) + 1, dtype=np.float32), np.empty(size, np.float32)
    layout.unpack(words, units, found)
    expected = digits.astype(np.float32) * units.reshape(-1, per_word, 1)
    np.testing.assert_array_equal(found, expected.reshape(-1)[:size])


def test_rounding_is_right_in_the_mean_and_off_by_less_than_a_step() -> None:
    layout = Layout(per_word=3, block=32)
    values = np.random.default_rng(1).standard_normal(4_800).astype(np.float32)
    scales, total, turns = scales_for(layout, values), np.zeros(values.size), 200
    step = np.repeat(scales / 50, 32)
    for seed in range(turns):
        found = np.empty(values.size, np.float32)
        layout.unpack(layout.pack(values, scales, 50, seed, 5), units_of(scales, 50), found)
        assert (np.abs(found - values) < step * 1.001).all()
        total += found
    assert (np.abs(total / turns - values) < 6 * step / 2 / turns**0.5).all()


@pytest.mark.parametrize(("ranks", "most"), [(4, 0.005), (8, 0.01), (16, 0.021)])
def test_sums_of_normal_values_are_within_two_percent_up_to_16_ranks(ranks: int, most: float) -> None:
    arrays = accuracy.draw("normal", ranks, np.dtype(np.float32), 16_384)
    layout = accuracy.WORDS["Packed(3)"]
    found = accuracy.Error.of(accuracy.in_words(layout, arrays), accuracy.exact_sum(arrays))
    assert found.relative < most
    assert accuracy.bytes_in_words(layout) < 1.53  # up, and down


def on_all(ranks: list[Communicator], call: Any) -> list[Any]:
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(call, ranks))


def test_the_switchs_sum_is_the_one_that_the_table_has_and_takes_as_many_bytes(ranks: list[Communicator]) -> None:
    arrays = accuracy.draw("heavy", RANKS, np.dtype(np.float32), 16_384)
    before = [one.statistics() for one in ranks]

    def call(communicator: Communicator) -> Array:
        return Packed().exchange(communicator, "x", arrays[communicator.rank]).mean

    found = on_all(ranks, call)
    exact = accuracy.exact_sum(arrays) / RANKS
    wanted = accuracy.Error.of(accuracy.in_words(accuracy.WORDS["Packed(3)"], arrays) / RANKS, exact).relative
    assert accuracy.Error.of(found[0], exact).relative == pytest.approx(wanted, rel=0.05)
    for one, old in zip(ranks, before, strict=True):
        spent = one.statistics().bytes_sent - old.bytes_sent
        layout = Layout(per_word=3, block=32)
        assert spent < 1.1 * accuracy.bytes_in_words(layout, one.lanes_per_frame) * 16_384 or one.statistics().repeats


def test_it_is_under_way_when_it_has_begun_and_the_same_as_an_exchange(ranks: list[Communicator]) -> None:
    arrays = [np.random.default_rng(rank).standard_normal(700).astype(np.float32) for rank in range(RANKS)]
    parts = (Part(key="x", shape=(500,)), Part(key="y", shape=(200,)))

    def call(communicator: Communicator) -> tuple[Array, Array]:
        begun = Packed().begin_parts(communicator, parts, arrays[communicator.rank])
        for handle in begun.handles:
            handle.wait()
        begun.finish()
        later = begun.finish().copy()  # as often as one likes
        return later, Packed().exchange_parts(communicator, parts, arrays[communicator.rank]).mean

    for begun, exchanged in on_all(ranks, call):
        np.testing.assert_array_equal(begun, exchanged)


def test_what_is_infinite_or_nothing(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> Array:
        values = np.ones(400, np.float32)
        values[32:64] = 1e-38
        values[64:96] = 0
        if communicator.rank == 1:
            values[100], values[130] = np.inf, np.nan
        return Packed().exchange(communicator, "x", values).mean

    for mean in on_all(ranks, call):
        assert np.isnan(mean[96:160]).all()
        assert not mean[32:96].any()
        np.testing.assert_allclose(mean[[0, 31, 160, 399]], 1, rtol=0.02)


def test_the_largest_finite_values_stay_finite(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> Array:
        values = np.ones(64, np.float32)
        values[:3] = np.finfo(np.float32).max, -3.395e38, 1e38
        return Packed().exchange(communicator, "x", values).mean

    for mean in on_all(ranks, call):
        np.testing.assert_allclose(mean[:3], [3.4e38, -3.395e38, 1e38], rtol=0.02)
        np.testing.assert_allclose(mean[32:], 1, rtol=0.02)


def test_too_many_ranks_for_a_word_are_refused() -> None:
    with pytest.raises(UsageError, match="per_word=4 leaves too few bits for 64 ranks"):
        Layout(per_word=4, block=32).steps(64)
