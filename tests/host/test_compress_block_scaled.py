"""Narrow lanes with a scale for each small block: near the exact sum also where tails are heavy, for as few bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from checks.bench import accuracy
from switchsum.testing.local import communicators
from switchsum_host.api.communicator import Communicator
from switchsum_host.compress import BlockScaled, ErrorFeedback, Part
from switchsum_host.compress.block_scaled import quotients_of
from switchsum_host.compress.small_blocks import COARSE, FINE, NO_NUMBER, magnitudes, scales_of, turn_of
from switchsum_protocol.frame import FRAME_BYTES
from switchsum_protocol.lane_scales import FRACTION_BITS
from switchsum_protocol.lanes import mixed
from switchsum_switch.kernels.constants import GOLDEN

from .checks import RANKS, on_all

Array = npt.NDArray[Any]


@pytest.fixture(scope="module", params=[1, 2, 5])
def worlds(request: pytest.FixtureRequest) -> Iterator[list[Communicator]]:
    made = communicators(request.param)
    yield made
    for one in made:
        one.close()


@pytest.mark.parametrize("kind", accuracy.INPUTS)
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_sums_of_8_bits_are_within_three_percent_up_to_16_ranks(kind: str, ranks: int) -> None:
    arrays = accuracy.draw(kind, ranks, np.dtype(np.float32))
    found = accuracy.Error.of(accuracy.in_blocks("int8", arrays), accuracy.exact_sum(arrays))
    assert found.relative < {"normal": 0.01, "heavy": 0.03, "mixed": 0.012}[kind]
    up, down = accuracy.bytes_in_blocks("int8", 64)
    assert up < 1.2
    assert down < 2.2


@pytest.mark.parametrize("kind", accuracy.INPUTS)
@pytest.mark.parametrize("ranks", [2, 16, 32])
def test_sums_of_16_bits_are_no_worse_than_bfloat16_around_a_ring(kind: str, ranks: int) -> None:
    arrays = accuracy.draw(kind, ranks, np.dtype(np.float32), 16_384)
    exact = accuracy.exact_sum(arrays)
    halves = [array.astype(accuracy.DTYPES["bfloat16"][1]) for array in arrays]
    ring = accuracy.Error.of(accuracy.around_a_ring(halves), accuracy.exact_sum(halves))
    assert accuracy.Error.of(accuracy.in_blocks("int16", arrays), exact).relative < ring.relative


@pytest.mark.parametrize("lanes", ["int8", "int16"])
@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_what_the_switch_adds_is_what_the_table_has_for_as_many_bytes(
    worlds: list[Communicator], lanes: str, kind: str
) -> None:
    ranks, size = len(worlds), 131_072
    arrays = accuracy.draw(kind, ranks, np.dtype(np.float32), size)
    exact = accuracy.exact_sum(arrays) / ranks
    before = [one.statistics() for one in worlds]
    found = on_all(worlds, lambda one: BlockScaled(lanes, 64).exchange(one, "x", arrays[one.rank]).mean)
    assert len({mean.tobytes() for mean in found}) == 1
    wanted = accuracy.Error.of(accuracy.in_blocks(lanes, arrays, 64) / ranks, exact).relative
    assert accuracy.Error.of(found[0], exact).relative == pytest.approx(wanted, rel=0.1)
    for one, old in zip(worlds, before, strict=True):
        after = one.statistics()
        if ranks == 1 or after.repeats > old.repeats:
            continue  # nobody hears of the other, or frames went twice
        # And exponents are announced for a window of frames before the first ones, and the largest block of all.
        widths = accuracy.bytes_in_blocks(lanes, 64, one.lanes_per_frame)
        up, down = (size * width + 30 * FRAME_BYTES + 1_200 for width in widths)
        assert after.bytes_sent - old.bytes_sent < up
        assert after.bytes_received - old.bytes_received < down


@pytest.mark.parametrize("lanes", ["int8", "int16"])
def test_what_ranks_say_adds_up_to_the_mean(worlds: list[Communicator], lanes: str) -> None:
    def call(one: Communicator) -> tuple[Array, Array]:
        values = np.random.default_rng(one.rank).standard_t(2, 1_000).astype(np.float32)
        exchanged = BlockScaled(lanes, block=24).exchange(one, "x", values)
        return exchanged.own, exchanged.mean

    found = on_all(worlds, call)
    exact = np.mean([own.astype(np.float64) for own, _ in found], axis=0)
    steps = {"int8": 1e6, "int16": 10_000}[lanes]  # of 16 bits the lanes may take a step off
    blocks = np.repeat(np.abs(exact[: 24 * 41]).reshape(-1, 24).max(axis=1), 24)
    assert (np.abs(found[0][1] - exact)[: 24 * 41] < blocks * 4 * len(worlds) / steps + 1e-7).all()


def test_it_is_under_way_when_it_has_begun_and_the_same_in_every_run(ranks: list[Communicator]) -> None:
    arrays = [np.random.default_rng(rank).standard_normal(7_000).astype(np.float32) for rank in range(RANKS)]
    parts = (Part(key="x", shape=(5_000,)), Part(key="y", shape=(2_000,)))

    def call(one: Communicator) -> tuple[Array, Array, Array, Array]:
        begun = BlockScaled().begin_parts(one, parts, arrays[one.rank])
        assert begun.handles
        for handle in begun.handles:
            handle.wait()
        begun.finish()
        again = BlockScaled()
        first = again.exchange_parts(one, parts, arrays[one.rank]).mean
        second = again.exchange_parts(one, parts, arrays[one.rank]).mean
        other = BlockScaled(seed=1).exchange_parts(one, parts, arrays[one.rank]).mean
        return begun.finish(), first, second, other  # as often as one likes

    for begun, first, second, other in on_all(ranks, call):
        np.testing.assert_array_equal(begun, first)
        assert (first != second).any()
        assert (first != other).any()


def test_a_checkpoint_goes_on_where_it_was(ranks: list[Communicator]) -> None:
    def call(one: Communicator) -> None:
        made, values = ErrorFeedback(BlockScaled()), np.random.default_rng(one.rank).standard_normal(300)
        for _ in range(2):
            made.exchange(one, "x", values.astype(np.float32))
        other = ErrorFeedback(BlockScaled())
        other.load_state_dict(made.state_dict())
        mean = made.exchange(one, "x", values.astype(np.float32)).mean
        np.testing.assert_array_equal(other.exchange(one, "x", values.astype(np.float32)).mean, mean)

    on_all(ranks, call)


@pytest.mark.parametrize("lanes", ["int8", "int16"])
def test_what_is_infinite_or_nothing(ranks: list[Communicator], lanes: str) -> None:
    def call(one: Communicator) -> Array:
        values = np.ones(400, np.float32)
        values[32:64], values[64:96], values[200] = 1e-38, 0, np.finfo(np.float32).max
        if one.rank == 1:
            values[100], values[130] = np.inf, np.nan
        return BlockScaled(lanes, block=32).exchange(one, "x", values).mean

    for mean in on_all(ranks, call):
        assert np.isnan(mean[96:160]).all()
        assert not mean[32:96].any()
        np.testing.assert_allclose(mean[200], np.finfo(np.float32).max, rtol=0.02)
        assert np.isfinite(mean[192:224]).all()


def test_values_far_below_the_largest_are_right_in_the_mean() -> None:
    class Alone:
        rank, world_size = 0, 1

        def allreduce(self, array: Array, op: str = "sum", *, lanes: str = "int32", label: str = "") -> Array:
            return array

    values = np.full(8_192, 1e-3, np.float32)
    values[:64] = 2.0**31
    made, mean = BlockScaled(), np.zeros(len(values))
    for _ in range(20):
        mean += made.exchange(Alone(), "x", values).mean / 20  # type: ignore[arg-type]
    assert mean[64:].mean() == pytest.approx(1e-3, rel=0.1)


@pytest.mark.parametrize(("shift", "above"), [(FINE, 2**-7), (COARSE, 2**-3)])
def test_scales_are_at_least_the_magnitudes(shift: int, above: float) -> None:
    random = np.random.default_rng(4)
    values = (random.standard_normal(4_000) * 2.0 ** random.integers(-90, 120, 4_000)).astype(np.float32)
    scales = scales_of(magnitudes(values, 1, 4_001, shift), shift)
    largest = np.append(np.abs(values), 0)
    assert (scales >= largest).all()
    assert (scales <= largest * (1 + above)).all()
    last = np.array([np.finfo(np.float32).max, -np.inf, np.nan], np.float32)
    tops = magnitudes(last, 1, 3, shift)
    assert list(tops == NO_NUMBER) == [False, True, True]
    np.testing.assert_equal(scales_of(tops, shift), [2.0**128, np.nan, np.nan])


def reference(values: Array, scale: float, steps: int, seed: int, turn: int) -> Array:
    """Return what one block's quotients are, in numpy."""
    factor = np.float32((steps << FRACTION_BITS) / scale)
    fixed = np.rint(values * factor).astype(np.int64)
    drawn = mixed(np.uint32(seed) + np.arange(len(values), dtype=np.uint32) * np.uint32(GOLDEN))
    drawn = (drawn + np.uint32(turn)) >> np.uint32(32 - FRACTION_BITS)
    whole = ((fixed + drawn) >> FRACTION_BITS).astype(np.float32)
    quotients: Array = np.clip(whole / np.float32(steps), -(1 - 2.0**-24), 1 - 2.0**-24).astype(np.float32)
    return quotients


@pytest.mark.parametrize("steps", [127, 16_383])
def test_quotients_have_the_bits_of_their_definition(steps: int) -> None:
    values = np.random.default_rng(steps).uniform(-3, 3, 1_001).astype(np.float32)
    values[:2] = 3, -3
    found = quotients_of(values, 1_001, np.array([3.0]), steps, 0xFFFF_FF00, 3 << 30)
    np.testing.assert_array_equal(found, reference(values, 3.0, steps, 0xFFFF_FF00, 3 << 30))


@pytest.mark.parametrize("ranks", [2, 16])
def test_each_rank_is_right_in_the_mean_and_ranks_make_up_for_one_another(ranks: int) -> None:
    random, turns, size = np.random.default_rng(ranks), 400, 128
    arrays = [random.uniform(-1, 1, size).astype(np.float32) for _ in range(ranks)]
    scales, first, off = np.ones(2), np.zeros(size), np.zeros(size)
    for seed in range(turns):
        rounded = [
            quotients_of(one, 64, scales, 127, 977 * seed, turn_of(rank, ranks)).astype(np.float64)
            for rank, one in enumerate(arrays)
        ]
        first += rounded[0]
        off += (np.sum(rounded, axis=0) - np.sum(arrays, axis=0)) ** 2
    assert (np.abs(first / turns - arrays[0]) < 6 / 2 / 127 / turns**0.5).all()
    # Of ranks that draw for themselves each has a variance of a sixth of a squared step.
    assert off.mean() / turns * 127**2 == pytest.approx((ranks + 1) / 12, rel=0.25)
