"""Blocks in the order of their owners: every rank finds the same one, and sends little more than its own blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum.testing.local import communicators
from switchsum_host.api import bitmap, owners, sparse
from switchsum_host.api.communicator import Communicator

from .checks import RANKS, bits, check_block, on_all

Has = npt.NDArray[np.bool_]


def made(ranks: int, rows: int, density: float, seed: int = 3) -> Has:
    """Return who has which row."""
    return np.random.default_rng([seed, ranks]).random((ranks, rows)) < density


def known(has: Has) -> tuple[npt.NDArray[np.int64], Any]:
    """Return the union, and its rows' owners as the ranks learn them."""
    ranks, rows = has.shape
    union = np.flatnonzero(has.any(axis=0))
    total = np.zeros((ranks, bitmap.words_for(len(union))), np.uint64)
    for rank in range(ranks):
        words = np.zeros(bitmap.words_for(rows), np.uint64)
        bitmap.set_bits(words, np.flatnonzero(has[rank]))
        part = owners.table(rank, ranks, words, union)
        assert not part[np.arange(ranks) != rank].any()
        total |= part
    return union, owners.sets_of(total, len(union))


def frames(sets: Any, ranks: int, together: int) -> npt.NDArray[np.int64]:
    """Return how many frames each rank sends."""
    starts = np.arange(0, len(sets), together)
    return owners.members(np.bitwise_or.reduceat(sets, starts), ranks)


@pytest.mark.parametrize("ranks", [1, 3, 8, 9, 16, 17, 32, 33, 64])
def test_all_learn_who_has_which_row(ranks: int) -> None:
    has = made(ranks, 700, 0.1)
    union, sets = known(has)
    for rank in range(ranks):
        np.testing.assert_array_equal((sets >> sets.dtype.type(rank)) & sets.dtype.type(1) == 1, has[rank, union])
    np.testing.assert_array_equal(owners.members(sets, ranks), has.sum(axis=1))


@given(
    ranks=st.sampled_from([1, 2, 5, 8, 13, 20, 40, 64]),
    rows=st.integers(0, 400),
    density=st.sampled_from([0.0, 0.02, 0.2, 0.6, 1.0]),
    together=st.sampled_from([2, 3, 8, 64]),
    seed=st.integers(0, 99),
)
def test_each_row_has_one_place(ranks: int, rows: int, density: float, together: int, seed: int) -> None:
    _, sets = known(made(ranks, rows, density, seed))
    order = owners.order(sets, ranks, together)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(sets)))
    np.testing.assert_array_equal(owners.order(sets.copy(), ranks, together), order)


def test_sets_are_sorted_by_grays_code() -> None:
    sets = np.arange(32, dtype=np.uint8)
    ordered = sets[np.argsort(owners._keys(sets, np.array([3, 0, 4, 1, 2])))]
    assert (np.bitwise_count(ordered[1:] ^ ordered[:-1]) == 1).all()
    # The first rank in the order has the highest bit: it changes once.
    assert np.count_nonzero(np.diff(ordered >> 3 & 1)) == 1


@pytest.mark.parametrize("together", [8, 64])
def test_blocks_of_one_owner_each_share_no_frame_but_at_the_ends(together: int) -> None:
    ranks, rows = 8, 8000
    sets = np.uint8(1) << np.random.default_rng(1).permutation(np.arange(rows) % ranks).astype(np.uint8)
    sent = frames(sets[owners.order(sets, ranks, together)], ranks, together)
    assert sent.max() <= rows // ranks // together + 2


@pytest.mark.parametrize(
    ("ranks", "density", "most"),
    [(4, 0.01, 1.1), (4, 0.6, 1.02), (8, 0.05, 1.06), (8, 0.6, 1.02), (16, 0.05, 1.15), (16, 0.6, 1.2), (32, 0.1, 2.1)],
)
def test_the_largest_upload_is_little_more_than_what_a_rank_has(ranks: int, density: float, most: float) -> None:
    has = made(ranks, 50_000, density)
    _, sets = known(has)
    sent = frames(sets[owners.order(sets, ranks, 8)], ranks, 8)
    own = has.sum(axis=1).max() / 8
    assert sent.max() <= most * own
    assert sent.max() <= 1.15 * sent.mean()
    assert sent.max() <= 0.9 * frames(sets, ranks, 8).max()


def test_what_does_not_pay_is_left() -> None:
    def pays(counts: list[int], union: int, block_bits: int = 1024) -> bool:
        return owners.pays(counts, union, block_bits)

    assert pays([1000] * 8, 8000)
    assert not pays([8000] + [10] * 7, 8000)  # one rank sends all of it in any case
    assert not pays([10] * 8, 80)  # two kilobytes
    assert not pays([7000] * 32, 8000, 256)  # an eighth of 256 bits, for 32 bits
    assert not pays([1000] * 65, 65_000)
    assert not pays([100_000] * 32, 3_200_000, 256)  # what comes down would be an eighth more
    assert not pays([100_000] * 2, 200_000, 32)  # single values


def inputs(overlap: str, size: int, block: int, dtype: Any, ranks: int = RANKS) -> list[npt.NDArray[Any]]:
    """Return an array for each rank, a tenth of whose blocks are not zero; its last one is short and is not."""
    random = np.random.default_rng(17)
    blocks = -(-size // block)
    order = random.permutation(blocks)
    arrays = []
    for rank in range(ranks):
        first = rank * (blocks // 10) if overlap == "none" else 0
        own = np.zeros(blocks, np.bool_)
        own[(random.permutation(blocks) if overlap == "random" else order)[first : first + blocks // 10]] = True
        own[-1] = rank == 1
        array = (random.standard_normal(size) * 100).astype(dtype)
        array[~np.repeat(own, block)[:size]] = 0
        arrays.append(array)
    return arrays


@pytest.mark.parametrize("overlap", ["all", "random", "none"])
@pytest.mark.parametrize(
    ("dtype", "lanes", "block"), [("i4", "int32", 32), ("f4", "int32", 100), ("f2", "int16", 64), ("f4", "int8", 200)]
)
def test_sums_are_the_same_and_each_rank_sends_about_its_own(
    ranks: list[Communicator], overlap: str, dtype: str, lanes: str, block: int
) -> None:
    size = 400_003
    arrays = inputs(overlap, size, block, dtype)
    outputs = [array.copy() for array in arrays]
    before = [one.statistics() for one in ranks]
    on_all(ranks, lambda one: one.allreduce(outputs[one.rank], block=block, lanes=lanes))
    after = [one.statistics() for one in ranks]
    for output in outputs[1:]:
        np.testing.assert_array_equal(bits(output), bits(outputs[0]))
    value_bits = 8 * outputs[0].itemsize if dtype == "i4" else int(lanes[3:])
    if dtype == "i4":
        np.testing.assert_array_equal(outputs[0], sum(arrays))
    else:
        # No frame's exponent is greater than that of all values.
        check_block([array.astype(np.float32) for array in arrays], outputs[0], 1, value_bits)
    one_rank = max(np.count_nonzero(np.add.reduceat(a != 0, np.arange(0, size, block))) for a in arrays)
    union = after[0].sparse_union_rows - before[0].sparse_union_rows
    payload = block * value_bits // 8
    sent = max(now.bytes_sent - then.bytes_sent for now, then in zip(after, before, strict=True))
    # A header of 90 bytes for each frame of 1,024, or 512; bitmaps, exponents of 16 columns, frames that are filled up.
    headers = union * payload * 90 / (512 if lanes == "int8" else 1024)
    assert sent < 1.1 * one_rank * payload + headers + 16_000
    if overlap != "all":
        assert sent < 0.7 * union * payload + headers


@pytest.mark.parametrize(
    ("dtype", "lanes", "shape"), [("f4", "int32", (64,)), ("i8", "int32", (4, 10)), ("f4", "int16", (50,))]
)
def test_wide_rows_of_sparse_arrays_are_sorted_too(
    ranks: list[Communicator], dtype: str, lanes: str, shape: tuple[int, ...]
) -> None:
    size, own = 20_000, 1_000
    order = np.random.default_rng(5).permutation(size)
    indices = [np.sort(order[rank * own : (rank + 1) * own + 50]) for rank in range(RANKS)]
    values = [np.random.default_rng(rank).integers(-99, 99, (own + 50, *shape)).astype(dtype) for rank in range(RANKS)]
    expected = np.zeros((size, *shape), dtype)
    for where, part in zip(indices, values, strict=True):
        expected[where] += part
    before = [one.statistics() for one in ranks]
    totals = on_all(ranks, lambda one: one.allreduce_sparse(indices[one.rank], values[one.rank], size, lanes=lanes))
    for one, earlier, total in zip(ranks, before, totals, strict=True):
        np.testing.assert_array_equal(bits(total.values), bits(totals[0].values))
        np.testing.assert_array_equal(total.indices, np.flatnonzero(expected.reshape(size, -1).any(axis=1)))
        np.testing.assert_allclose(total.to_dense(), expected, atol=1e-4 if lanes == "int32" else 0.1)
        sent = one.statistics().bytes_sent - earlier.bytes_sent
        payload = values[0].nbytes * (0.5 if lanes == "int16" else 1)
        assert sent < 1.1 * payload + 0.09 * RANKS * payload + 16_000


def test_all_find_the_same_order_on_a_network_that_loses_frames() -> None:
    made = communicators(RANKS, loss=0.01, seed=4)
    arrays = inputs("random", 120_000, 32, "f4")
    expected = [array.copy() for array in arrays]
    ideal = communicators(RANKS)
    on_all(ideal, lambda one: one.allreduce(expected[one.rank], block=32))
    on_all(made, lambda one: one.allreduce(arrays[one.rank], block=32))
    for array in arrays:
        np.testing.assert_array_equal(bits(array), bits(expected[0]))
    assert sum(one.statistics().repeats for one in made) > 0
    for one in made + ideal:
        one.close()


def test_blocks_that_are_found_automatically_are_not_sorted(ranks: list[Communicator]) -> None:
    arrays = inputs("none", 400_000, 32, "i4")
    expected = sum(arrays)

    def call(one: Communicator) -> int:
        before = one.statistics().collectives
        one.allreduce(arrays[one.rank], block="auto")
        return one.statistics().collectives - before

    assert on_all(ranks, call) == [3] * RANKS  # counts, the union, the sum
    for array in arrays:
        np.testing.assert_array_equal(array, expected)


def test_a_last_block_that_is_short_stays_last() -> None:
    whole = np.arange(1, 101, dtype=np.int32)
    rows = sparse.take_blocks(whole, 32, np.array([2, 0, 3]))
    np.testing.assert_array_equal(rows[2], [97, 98, 99, 100, *[0] * 28])
    copy = np.zeros_like(whole)
    sparse.put_blocks(copy, 32, np.array([2, 0, 3]), rows)
    np.testing.assert_array_equal(copy, np.where((whole > 32) & (whole <= 64), 0, whole))
