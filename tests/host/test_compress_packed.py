"""Several values to a word: what comes out is the sum of what ranks said, and as near as promised."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from checks.bench import accuracy
from switchsum.host.api.communicator import Communicator
from switchsum.host.compress import Packed, Part, packed
from switchsum.host.compress.packed import Layout, digits_of, magnitudes, scales_of
from switchsum.protocol.errors import UsageError

from .checks import RANKS

Array = npt.NDArray[Any]


@pytest.mark.parametrize("per_word", [2, 3, 4])
@pytest.mark.parametrize("ranks", [2, 3, 16, 32])
def test_no_digit_of_a_sum_runs_into_the_next(per_word: int, ranks: int) -> None:
    layout = Layout(per_word=per_word, block=8)
    steps = layout.steps(ranks)
    random = np.random.default_rng([per_word, ranks])
    digits = random.integers(-steps, steps + 1, (ranks, 40, per_word, 8)).astype(np.int32)
    digits[:, :4] = np.array([steps, -steps, 0, steps])[:, None, None]
    digits[:, 4:8] = np.where(np.arange(per_word) % 2, steps, -steps)[:, None]
    total = np.zeros(40 * 8, np.int64)
    for one in digits:
        total += layout.join(one)
        assert np.abs(total).max() < 1 << 31  # nor does a sum on its way leave a lane
    np.testing.assert_array_equal(layout.part(total.astype(np.int32)), digits.sum(axis=0))


def test_values_stay_where_they_are() -> None:
    layout = Layout(per_word=3, block=32)
    values = np.arange(1, 1001, dtype=np.float32)
    blocks = layout.blocks_of(values)
    np.testing.assert_array_equal(blocks.reshape(-1)[:1000], values)
    assert not blocks.reshape(-1)[1000:].any()
    np.testing.assert_array_equal(blocks[0, 1], values[32:64])


def test_chunks_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(per_word=3, block=32)
    blocks = layout.blocks_of(np.random.default_rng(2).standard_normal(5000).astype(np.float32))
    scales, found = scales_of(magnitudes(blocks)), []
    for size in (1, 500, 1 << 16):
        monkeypatch.setattr(packed, "CHUNK_VALUES", size)
        words, values = layout.pack(blocks, scales, 50, 7), np.empty(5000, np.float32)
        layout.unpack(words, scales, values)
        found.append((words.tobytes(), values.tobytes()))
    assert len({*found}) == 1
    np.testing.assert_array_equal(layout.part(layout.pack(blocks, scales, 50, 7)), digits_of(blocks, scales, 50, 7))


def test_rounding_is_right_in_the_mean_and_off_by_less_than_a_step() -> None:
    blocks = np.random.default_rng(1).standard_normal((50, 3, 32)).astype(np.float32)
    scales, total = scales_of(magnitudes(blocks)), np.zeros(blocks.shape)
    assert (np.abs(blocks) <= scales).all()
    assert (scales <= np.abs(blocks).max(axis=2, keepdims=True) * (1 + 2**-7)).all()
    turns = 200
    for seed in range(turns):
        found = digits_of(blocks, scales, 50, seed) * (scales / 50)
        assert (np.abs(found - blocks) < scales / 50 * 1.001).all()
        total += found
    assert (np.abs(total / turns - blocks) < 6 * scales / 50 / 2 / turns**0.5).all()


@pytest.mark.parametrize(("ranks", "most"), [(4, 0.007), (8, 0.015), (16, 0.03)])
def test_sums_of_normal_values_are_within_three_percent_up_to_16_ranks(ranks: int, most: float) -> None:
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
    with pytest.raises(UsageError, match="4 values to a word leave too few bits for 64 ranks"):
        Layout(per_word=4, block=32).steps(64)
