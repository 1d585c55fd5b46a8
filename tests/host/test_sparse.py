"""Sparse allreduces and small blocks: what comes out, what travels, what is refused."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.timing import patience
from switchsum_host.api import bitmap, places, sparse, supports, ways
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.sparse import SparseSum
from switchsum_protocol.errors import OperationMismatch, SumOverflow, UsageError, WorkerLost

from .checks import RANKS, failures, on_all
from .moved import without_repeats

RNG = np.random.default_rng(14)
Array = npt.NDArray[Any]


def indices_of(size: int, pattern: str) -> list[Array]:
    """Return each rank's indices."""
    match pattern:
        case "random":
            return [np.flatnonzero(RNG.random(size) < 0.03) for _ in range(RANKS)]
        case "clustered":
            return [np.arange(size // 3, min(size, size // 3 + 40 + rank)) for rank in range(RANKS)]
        case "disjoint":
            return [np.arange(rank, size, 7 * RANKS) for rank in range(RANKS)]
        case "dense":
            return [np.arange(size)] * RANKS
        case "none":
            return [np.zeros(0, np.int64)] * RANKS
    return [np.arange(size) if rank == 1 else np.zeros(0, np.int32) for rank in range(RANKS)]


@pytest.mark.parametrize("pattern", ["random", "clustered", "disjoint", "dense", "none", "one rank"])
@pytest.mark.parametrize("size", [1, 64, 5000, supports.MAX_BITS_IN_FIRST_STEP + 100])
@pytest.mark.parametrize("row", [(), (3,)])
def test_the_sum_over_the_union(ranks: list[Communicator], size: int, pattern: str, row: tuple[int, ...]) -> None:
    if size > 5000 and pattern in ("dense", "one rank", "disjoint"):
        size, row = supports.MAX_BITS_IN_FIRST_STEP // 2, ()
    chosen = indices_of(size, pattern)
    values = [RNG.integers(-1000, 1000, (len(indices), *row)).astype(np.int32) for indices in chosen]
    expected = np.zeros((size, *row), np.int64)
    for indices, part in zip(chosen, values, strict=True):
        expected[indices] += part
    union = np.unique(np.concatenate(chosen))

    def call(communicator: Communicator) -> SparseSum:
        return communicator.allreduce_sparse(chosen[communicator.rank], values[communicator.rank], size)

    for total in on_all(ranks, call):
        np.testing.assert_array_equal(total.to_dense(), expected)
        if len(union) < ways.DENSE_FROM * size:
            np.testing.assert_array_equal(total.indices, union)
        assert total.values.shape == (len(total.indices), *row)


def test_bytes_follow_the_union(ranks: list[Communicator]) -> None:
    size = 1 << 21
    chosen = [np.sort(RNG.choice(size, size // 1000, replace=False)) for _ in range(RANKS)]

    def call(communicator: Communicator) -> tuple[float, float]:
        before = communicator.statistics()
        mine = chosen[communicator.rank]
        communicator.allreduce_sparse(mine, np.ones(len(mine), np.float32), size)
        return without_repeats(before, communicator.statistics())

    before = [communicator.statistics() for communicator in ranks]
    union = len(np.unique(np.concatenate(chosen)))
    # A bit for each word of the bitmap, the words that somebody uses, the values; frames are filled up.
    expected = size / 512 + 8 * union + 4 * union
    for sent, received in on_all(ranks, call):
        assert sent < 1.3 * expected
        assert received < 1.3 * expected
        assert expected < 0.02 * 4 * size
    for communicator, earlier in zip(ranks, before, strict=True):
        statistics = communicator.statistics()
        assert statistics.sparse_rows - earlier.sparse_rows == size // 1000
        assert statistics.sparse_union_rows - earlier.sparse_union_rows == union
        assert statistics.sparse_all_rows - earlier.sparse_all_rows == size


def test_indices_in_any_order_and_repeated(ranks: list[Communicator]) -> None:
    indices = np.array([9, 2, 2, 7, 9], np.uint16)
    values = np.array([1, 2, 3, 4, 5], np.float32)
    for total in on_all(ranks, lambda communicator: communicator.allreduce_sparse(indices, values, 10)):
        assert total.indices.tolist() == [2, 7, 9]
        np.testing.assert_allclose(total.values, [15, 12, 18], rtol=1e-6)


@pytest.mark.parametrize("kind", ["too large", "negative", "too many", "floats", "two-dimensional", "maximum"])
def test_what_is_wrong_on_one_rank_is_raised_on_all_and_nothing_breaks(ranks: list[Communicator], kind: str) -> None:
    def call(communicator: Communicator) -> str:
        indices, values, op = np.array([1, 5]), np.ones(2, np.float32), "sum"
        if communicator.rank == 1:
            match kind:
                case "too large":
                    indices = np.array([1, 10])
                case "negative":
                    indices = np.array([-1, 5])
                case "too many":
                    values = np.ones(3, np.float32)
                case "floats":
                    indices = np.array([1.0, 5.0])
                case "two-dimensional":
                    indices = np.array([[1, 5]])
                case "maximum":
                    op = "max"
        with pytest.raises(UsageError) as caught:
            communicator.allreduce_sparse(indices, values, 10, op)
        return str(caught.value)

    texts = on_all(ranks, call)
    assert texts[0] == texts[2]
    assert "another rank" in texts[0]
    assert "another rank" not in texts[1]
    on_all(ranks, Communicator.barrier)


def test_topk_adds_the_largest_of_each_rank(ranks: list[Communicator]) -> None:
    arrays = [RNG.standard_normal((40, 50)).astype(np.float32) for _ in range(RANKS)]
    expected = np.zeros(2000)
    for array in arrays:
        flat = array.reshape(-1).astype(np.float64)
        kept = np.argsort(-np.abs(flat))[:100]
        expected[kept] += flat[kept]
    outputs = [array.copy() for array in arrays]
    on_all(ranks, lambda communicator: communicator.allreduce_topk(outputs[communicator.rank], density=0.05))
    for output in outputs:
        np.testing.assert_allclose(output.reshape(-1), expected, atol=1e-6)
        np.testing.assert_array_equal(output, outputs[0])


@pytest.mark.parametrize("k", [0, 1, 49, 50, 1000])
def test_any_k(ranks: list[Communicator], k: int) -> None:
    def call(communicator: Communicator) -> Array:
        return communicator.allreduce_topk(np.arange(50, dtype=np.int32), k + communicator.rank)

    expected = np.zeros(50, np.int64)
    for rank in range(RANKS):
        expected[max(0, 50 - k - rank) :] += np.arange(50)[max(0, 50 - k - rank) :]
    for array in on_all(ranks, call):
        np.testing.assert_array_equal(array, expected)


MISTAKES: dict[str, Callable[[Communicator], object]] = {
    "neither k nor density": lambda one: one.allreduce_topk(np.ones(10, np.float32)),
    "both": lambda one: one.allreduce_topk(np.ones(10, np.float32), 3, density=0.1),
    "no density": lambda one: one.allreduce_topk(np.ones(10, np.float32), density=0.0),
    "too much": lambda one: one.allreduce_topk(np.ones(10, np.float32), density=1.5),
    "negative k": lambda one: one.allreduce_topk(np.ones(10, np.float32), -1),
    "no such lanes": lambda one: one.allreduce_topk(np.ones(10, np.float32), 3, lanes="int4"),
    "no such dtype": lambda one: one.allreduce_sparse(np.arange(3), np.ones(3), 10),
    "no order": lambda one: one.allreduce_topk(np.array(["a", "b"]), 1),
    "negative keep": lambda one: one.allreduce_topk(np.ones(10, np.float32), 3, keep=-1),
    "rows to keep": lambda one: one.allreduce_sparse(np.arange(3), np.ones((3, 2), np.float32), 10, keep=2),
    "no such operator": lambda one: one.allreduce_topk(np.ones(10, np.float32), 3, "max"),
}


@pytest.mark.parametrize("kind", MISTAKES)
@pytest.mark.parametrize("alone", [True, False])
def test_one_ranks_mistake_is_raised_on_all_and_nothing_breaks(
    ranks: list[Communicator], kind: str, alone: bool
) -> None:
    def call(communicator: Communicator) -> None:
        if alone and communicator.rank != 1:
            communicator.allreduce_topk(np.ones(10, np.float32), 2)
        else:
            MISTAKES[kind](communicator)

    assert [type(error) for error in failures(ranks, call)] == [UsageError] * RANKS
    on_all(ranks, Communicator.barrier)


def test_different_sizes_and_dtypes_are_a_mismatch_on_all(fresh_ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> None:
        values = np.ones(3, np.float32 if communicator.rank else np.float16)
        communicator.allreduce_sparse(np.arange(3), values, 10)

    assert [type(error) for error in failures(fresh_ranks, call)] == [OperationMismatch] * RANKS


def test_nan_and_infinity_make_their_frame_nan_on_all_ranks(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> SparseSum:
        values = np.ones(600, np.float32)
        values[[0, 100]] = (np.inf, np.nan) if communicator.rank == 1 else (1, 1)
        return communicator.allreduce_sparse(np.arange(0, 1200, 2), values, 1200)

    for total in on_all(ranks, call):
        assert np.isnan(total.values[:256]).all()
        np.testing.assert_allclose(total.values[256:], RANKS, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("keep", [0, 20, 130, 10_000])
def test_the_largest_sums_are_kept(ranks: list[Communicator], keep: int, dtype: Any) -> None:
    # The large ones differ from the others by more than lanes of 8 bits may be off.
    size, large = 3000, 20
    indices = [np.sort(RNG.choice(size, 100, replace=False)) for _ in range(RANKS)]
    values = [RNG.integers(1, 9, 100).astype(dtype) for _ in range(RANKS)]
    common = np.sort(RNG.choice(size, large, replace=False))
    arrays = [np.zeros(size, dtype) for _ in range(RANKS)]
    for array, own, part in zip(arrays, indices, values, strict=True):
        array[own] = part
        array[common] = 1000
    total = np.sum(arrays, axis=0)

    def call(communicator: Communicator) -> SparseSum:
        own = np.flatnonzero(arrays[communicator.rank])
        return communicator.allreduce_sparse(own, arrays[communicator.rank][own], size, keep=keep)

    for result in on_all(ranks, call):
        assert len(result.indices) == min(keep, np.count_nonzero(total))
        np.testing.assert_allclose(result.values, total[result.indices], rtol=1e-6)
        if keep >= large:
            assert np.isin(common, result.indices).all()


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_the_largest_are_chosen_exactly(special: float, dtype: Any) -> None:
    values = (RNG.standard_normal(3000) * 100).astype(dtype)
    values[::7] = 5
    if dtype != np.int32:
        values[[70, 2000]] = special
    for k in (0, 1, 2, 500, 2999, 3000, 4000):
        chosen = sparse.largest(values, k)
        assert len(chosen) == len(np.unique(chosen)) == min(k, 3000)
        assert (np.diff(chosen) > 0).all()
        magnitudes = np.nan_to_num(np.abs(values.astype(np.float64)), nan=np.inf)
        np.testing.assert_array_equal(np.sort(magnitudes[chosen]), np.sort(magnitudes)[len(magnitudes) - len(chosen) :])


def test_of_equal_values_the_first_are_chosen() -> None:
    np.testing.assert_array_equal(sparse.largest(np.array([1, -2, 2, 1, 2, -2], np.float32), 3), [1, 2, 4])


@given(
    st.integers(0, 5000).flatmap(
        lambda size: st.tuples(st.just(size), st.lists(st.integers(0, max(0, size - 1)), max_size=min(size, 300)))
    )
)
def test_a_bitmap_goes_through_its_steps_unchanged(case: tuple[int, list[int]]) -> None:
    size, chosen = case
    indices = np.unique(np.array(chosen, np.int64))
    words = np.zeros(bitmap.words_for(size), np.uint64)
    bitmap.set_bits(words, indices)
    np.testing.assert_array_equal(bitmap.members(words), indices)
    which = np.flatnonzero(words)
    masks = np.empty(len(which), np.uint8)
    bitmap.masks_of(words, which, masks)
    octets = np.empty(int(np.bitwise_count(masks).sum()), np.uint8)
    bitmap.take_octets(words, which, masks, octets)
    assert (octets != 0).all()
    again = np.zeros_like(words)
    bitmap.put_octets(again, which, masks, octets)
    np.testing.assert_array_equal(again, words)


def test_sparse_collectives_in_the_background_keep_their_place_among_others(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> None:
        rank = communicator.rank
        for turn in range(3):
            first = communicator.allreduce_async(np.full(300, rank, np.int32))
            top = communicator.allreduce_topk_async(np.arange(50, dtype=np.int32), 2)
            ended: queue.Queue[bool] = queue.Queue()
            top.add_done_callback(lambda handle, ended=ended: ended.put(handle.is_done))  # type: ignore[misc]
            some = communicator.allreduce_sparse_async(np.array([turn, 9]), np.ones(2, np.float32), 10)
            blocks = communicator.allreduce_async(np.full(64, turn, np.int32), block=32)
            last = communicator.allreduce(np.full(5, rank, np.int32))
            np.testing.assert_array_equal(blocks.wait(), RANKS * turn)
            np.testing.assert_array_equal(np.flatnonzero(top.wait()), [48, 49])
            assert top.wait()[49] == 49 * RANKS
            assert some.wait().indices.tolist() == [turn, 9]
            np.testing.assert_array_equal(first.wait(), 3)
            np.testing.assert_array_equal(last, 3)
            assert ended.get(timeout=patience(20))
            wrong = communicator.allreduce_sparse_async(np.array([10]), np.ones(1, np.float32), 10)
            for _ in range(2):
                with pytest.raises(UsageError, match="0 to 9"):
                    wrong.wait()
            assert wrong.is_done

    on_all(ranks, call)


def test_closing_ends_what_is_in_the_background(fresh_ranks: list[Communicator]) -> None:
    handle = fresh_ranks[0].allreduce_topk_async(np.ones(50, np.float32), 2)
    fresh_ranks[0].queue.membership.error = WorkerLost("rank 2 of job 'x' is gone", 2)
    with pytest.raises(WorkerLost):
        handle.wait()
    fresh_ranks[0].close()


@pytest.mark.parametrize("share", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("unit", [32, 256])
def test_blocks_are_packed_where_that_takes_fewer_frames(ranks: list[Communicator], share: float, unit: int) -> None:
    size, per_frame = 40 * 256 + 5, 256
    kept = RNG.random(-(-size // unit)) < share
    kept[0] |= share > 0
    array = np.where(np.repeat(kept, unit)[:size], np.int32(1), np.int32(0))
    outputs = [array.copy() for _ in range(RANKS)]
    before = ranks[0].statistics().rounds
    on_all(ranks, lambda communicator: communicator.allreduce(outputs[communicator.rank], block="auto"))
    for output in outputs:
        np.testing.assert_array_equal(output, RANKS * array)
    small = np.add.reduceat(array, np.arange(0, size, 32)).astype(bool).sum()
    whole = np.add.reduceat(array, np.arange(0, size, per_frame)).astype(bool)
    packed = 32 * small <= sparse.AUTO_GAIN * per_frame * whole.sum()
    frames = -(-32 * small // per_frame) if packed else whole[1:].sum() + 16
    # One column of the window's 16 more at most, and the bitmap's.
    assert ranks[0].statistics().rounds - before <= frames + 3


@pytest.mark.parametrize("block", [1, 32, 100, 2048])
@pytest.mark.parametrize("size", [1, 31, 5000, 40_000])
@pytest.mark.parametrize("density", [0.0, 0.05, 1.0])
def test_small_blocks_share_frames(ranks: list[Communicator], block: int, size: int, density: float) -> None:
    arrays = [RNG.integers(-99, 99, size).astype(np.int32) for _ in range(RANKS)]
    for array in arrays:
        for start in range(0, size, block):
            if RNG.random() >= density:
                array[start : start + block] = 0
    expected = sum(array.astype(np.int64) for array in arrays)
    outputs = [array.copy() for array in arrays]
    before = ranks[0].statistics().rounds
    on_all(ranks, lambda communicator: communicator.allreduce(outputs[communicator.rank], block=block))
    for output in outputs:
        np.testing.assert_array_equal(output, expected)
    present = [np.add.reduceat(np.abs(array), np.arange(0, size, block)) != 0 for array in arrays]
    union = int(np.any(present, axis=0).sum())
    values = union * block if union < ways.DENSE_FROM * -(-size // block) else size + block
    frames = max(1, -(-values // 256)) + max(1, -(-(-(-size // block) // 64 + 1) // 128))
    # Of many rows of which a rank has few, the first step only says how many, and places or a bitmap follow.
    follow = (
        sum(places.octets_for(int(own.sum()), own.size) for own in present) // 1024 + 1 if size // block > 4096 else 0
    )
    assert ranks[0].statistics().rounds - before <= frames + follow + 2


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 3000),
    block=st.sampled_from([None, 1, 7, 32, 256, "auto"]),
    dtype=st.sampled_from(["i1", "u1", "i2", "i4", "i8"]),
    density=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    is_large=st.booleans(),
    seed=st.integers(0, 1 << 32),
)
def test_blocks_of_any_size_add_up_or_overflow_on_all_ranks(
    ranks: list[Communicator],
    size: int,
    block: int | str | None,
    dtype: str,
    density: float,
    is_large: bool,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    arrays = [random.integers(limits.min // 4, limits.max // 4, size).astype(dtype) for _ in range(RANKS)]
    for array in arrays:
        array[random.random(size) >= density] = 0
        if is_large:
            array[random.integers(0, size, 2)] = [limits.min, limits.max]
    exact = sum(array.astype(object) for array in arrays)
    expected = np.clip(exact, limits.min, limits.max).astype(dtype)
    overflows = bool(np.any(exact != expected))

    def call(communicator: Communicator) -> tuple[bool, Array]:
        array = arrays[communicator.rank].copy()
        try:
            communicator.allreduce(array, block=block)
        except SumOverflow:
            return True, array
        return False, array

    for raised, array in on_all(ranks, call):
        assert raised == overflows
        np.testing.assert_array_equal(array, expected)


def test_small_blocks_of_strided_floats(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> Array:
        array = np.zeros((100, 20), np.float32)[:, ::2]
        array[communicator.rank] = -0.0
        array[50:60] = communicator.rank
        assert communicator.allreduce(array, block=32) is array
        return array

    for array in on_all(ranks, call):
        np.testing.assert_array_equal(array[50:60], 3)
        assert not np.signbit(array).any()
        assert np.count_nonzero(array) == 100
