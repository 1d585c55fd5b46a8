"""Ways of sparse sums: which one is chosen, what its sums are, and what it moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.timing import eventually
from switchsum_host.api import places, ways
from switchsum_host.api.collectives import Way
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.expected import MOST_OCTETS, Expected, note
from switchsum_host.api.sparse import SparseSum, largest
from switchsum_host.api.ways import Facts
from switchsum_protocol.errors import SumOverflow, UsageError

from .checks import RANKS, bits, failures, on_all
from .moved import without_repeats

Array = npt.NDArray[Any]
FLOATS = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
FRAME_BITS = 8192


def facts(counts: list[int], union: int, rows: int = 1_000_000, **more: Any) -> Facts:
    known: dict[str, Any] = {"is_same": False, "pair_bits": 32, "sum_bits": 32, "frame_bits": FRAME_BITS}
    return Facts(rows=rows, counts=counts, union=union, **(known | more))


NAMES = ("sparse_same", "sparse_pairs", "sparse_places", "sparse_bitmaps", "sparse_whole")


def random_rows(random: np.random.Generator, size: int, counts: list[int]) -> list[Array]:
    return [random.choice(size, count, replace=False) for count in counts]


def gone(one: Communicator) -> Array:
    return one.ways.copy()


def test_statistics_count_the_ways(fresh_ranks: list[Communicator]) -> None:
    random = np.random.default_rng(1)
    size = 200_000
    cases = {
        "sparse_pairs": random_rows(random, size, [500] * RANKS),
        "sparse_same": [np.arange(0, size, 100)] * RANKS,
        "sparse_bitmaps": random_rows(random, size, [size // 3] * RANKS),
        "sparse_whole": random_rows(random, size, [size, 5, 0]),
    }

    def call(one: Communicator) -> list[str]:
        taken = []
        for rows in cases.values():
            before = one.statistics()
            one.allreduce_sparse(rows[one.rank], np.ones(len(rows[one.rank]), np.float32), size)
            after = one.statistics()
            taken += [name for name in NAMES if getattr(after, name) > getattr(before, name)]
        places_before = one.statistics().sparse_places
        own = cases["sparse_pairs"][one.rank]
        one.allreduce_sparse(own, np.ones(len(own), np.int32), size)  # integers have no pairs
        assert one.statistics().sparse_places == places_before + 1
        return taken

    assert on_all(fresh_ranks, call) == [list(cases)] * RANKS


def test_what_is_under_way_is_called_by_its_way(fresh_ranks: list[Communicator]) -> None:
    """Errors and `explain` name what a rank waits for."""
    random, size = np.random.default_rng(1), 200_000
    cases: dict[str, tuple[list[Array], Any]] = {
        "pairs": (random_rows(random, size, [5000] * RANKS), np.float32),
        "places": (random_rows(random, size, [500] * RANKS), np.int32),
        "bitmaps": (random_rows(random, size, [size // 3] * RANKS), np.float32),
        "all rows": ([np.arange(size)] * RANKS, np.float32),
    }

    def call(one: Communicator) -> dict[str, set[str]]:
        names: dict[str, set[str]] = {}
        enqueue = one.queue.enqueue
        for name, (rows, dtype) in cases.items():

            def noted(handle: Any, name: str = name, **how: Any) -> None:
                names.setdefault(name, set()).add(str(handle.operation))
                enqueue(handle, **how)

            one.queue.enqueue = noted  # type: ignore[method-assign]
            for _ in range(3):
                one.allreduce_sparse(rows[one.rank], np.ones(len(rows[one.rank]), dtype), size, label=f"layer {name}")
        return names

    for names in on_all(fresh_ranks, call):
        for way in cases:
            assert any(one.startswith(f"layer {way}: allreduce_sparse") and way in one[20:] for one in names[way]), way


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(4200, 120_000),
    shares=st.lists(st.sampled_from([0.0, 1e-4, 1e-3, 0.01, 0.1, 0.5]), min_size=RANKS, max_size=RANKS),
    dtype=st.sampled_from(FLOATS),
    row=st.sampled_from([(), (3,), (2, 2), (0,)]),
    op=st.sampled_from(["sum", "average"]),
    keep=st.sampled_from([None, 0, 7, 1000]),
    seed=st.integers(0, 1 << 32),
)
def test_floats_add_up_on_every_way(
    ranks: list[Communicator],
    size: int,
    shares: list[float],
    dtype: np.dtype[Any],
    row: tuple[int, ...],
    op: str,
    keep: int | None,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    rows = random_rows(random, size, [round(size * share) for share in shares])
    values = [(random.standard_normal((len(own), *row)) * 100).astype(dtype) for own in rows]
    keep = keep if row == () else None
    total = np.zeros((size, *row))
    for own, part in zip(rows, values, strict=True):
        total[own] += part.astype(np.float64)
    total /= RANKS if op == "average" else 1

    def call(one: Communicator) -> tuple[SparseSum, Way]:
        before = gone(one)
        result = one.allreduce_sparse(rows[one.rank], values[one.rank], size, op, keep=keep)
        return result, Way(int(np.flatnonzero(gone(one) - before)[0]))

    (first, way), *others = on_all(ranks, call)
    for result, other in others:
        assert other is way
        np.testing.assert_array_equal(result.indices, first.indices)
        np.testing.assert_array_equal(bits(result.values), bits(first.values))
    union = np.unique(np.concatenate(rows))
    if keep is None and way is not Way.ALL and len(union) < ways.DENSE_FROM * size:
        np.testing.assert_array_equal(first.indices, union)
    expected = total[first.indices]
    if way is Way.PAIRS:
        if keep is not None:
            np.testing.assert_array_equal(first.indices, union[largest(total[union].astype(dtype), keep)])
        exact = (expected.astype(np.float32) + np.float32(0)).astype(dtype) + dtype.type(0)
        np.testing.assert_array_equal(bits(first.values), bits(exact))
    else:
        tolerance = EPS[dtype.name] * 2
        np.testing.assert_allclose(first.values.astype(np.float64), expected, rtol=tolerance, atol=1e-4)


def test_infinity_and_nan_spoil_no_other_sum_of_pairs(ranks: list[Communicator]) -> None:
    size = 100_000
    rows = np.arange(0, 600, 2)

    def call(one: Communicator) -> SparseSum:
        values = np.full(300, 1.5, np.float32)
        values[:4] = [(np.inf, np.nan, np.inf, 3e38), (1, 2, -np.inf, 3e38), (1, 2, 0, -0.0)][one.rank]
        values[4] = -0.0
        return one.allreduce_sparse(rows + one.rank // 2 * 1000, values, size)

    results = on_all(ranks, call)
    for result in results:
        np.testing.assert_array_equal(bits(result.values), bits(results[0].values))
        assert result.values[:3].tolist()[0] == np.inf
        assert np.isnan(result.values[1:3]).all()
        assert result.values[3] == np.inf
        np.testing.assert_array_equal(bits(result.values[4:5]), [0])
        np.testing.assert_array_equal(result.values[5:300], 3)
        np.testing.assert_array_equal(result.values[-295:], 1.5)
    assert ranks[0].statistics().sparse_pairs > 0


def test_an_average_of_pairs_is_finite_where_their_sum_is_not(ranks: list[Communicator]) -> None:
    rows = [np.arange(own, 300, 3) for own in range(RANKS)]
    rows[1] = rows[0] + 3

    def call(one: Communicator) -> SparseSum:
        return one.allreduce_sparse(rows[one.rank], np.full(len(rows[one.rank]), 3e38, np.float32), 50_000, "average")

    for result in on_all(ranks, call):
        assert np.isfinite(result.values).all()
        assert result.values.max() == np.float32(np.float64(np.float32(3e38)) * 2 / 3)


@pytest.mark.parametrize("lanes", ["each", "int16", "int8"])
def test_lanes_of_their_own_are_added_by_the_switch(ranks: list[Communicator], lanes: str) -> None:
    random = np.random.default_rng(2)
    size = 60_000
    rows = random_rows(random, size, [300] * RANKS)
    values = [random.standard_normal(300).astype(np.float32) for _ in range(RANKS)]
    dense = [np.zeros(size, np.float32) for _ in range(RANKS)]
    for array, own, part in zip(dense, rows, values, strict=True):
        array[own] = part

    def call(one: Communicator) -> tuple[Array, Array]:
        before = gone(one)
        result = one.allreduce_sparse(rows[one.rank], values[one.rank], size, lanes=lanes).to_dense()
        assert (gone(one) - before)[Way.PAIRS] == 0
        return result, one.allreduce(dense[one.rank].copy(), lanes=lanes)

    for sparse, whole in on_all(ranks, call):
        if lanes == "each":
            np.testing.assert_array_equal(bits(sparse), bits(whole))
        else:
            np.testing.assert_allclose(sparse, whole, atol=0.2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64])
def test_integers_of_few_rows_overflow_on_all_ranks(ranks: list[Communicator], dtype: Any) -> None:
    size, most = 60_000, np.iinfo(dtype).max
    rows = [np.arange(0, 3000, 30) + own % 2 for own in range(RANKS)]

    def call(one: Communicator) -> None:
        one.allreduce_sparse(rows[one.rank], np.full(100, most // 3 - 1, dtype), size)
        with pytest.raises(SumOverflow):
            one.allreduce_sparse(rows[one.rank], np.full(100, most - 3, dtype), size)
        one.barrier()

    on_all(ranks, call)


@settings(max_examples=25, deadline=None)
@given(
    blocks=st.integers(1, 9000),
    last=st.integers(1, 32),
    share=st.sampled_from([0.0005, 0.01, 0.08, 0.4]),
    op=st.sampled_from(["sum", "average"]),
    block=st.sampled_from([32, "auto"]),
    seed=st.integers(0, 1 << 32),
)
def test_small_blocks_of_floats_add_up_on_every_way(
    ranks: list[Communicator], blocks: int, last: int, share: float, op: str, block: int | str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    size = 32 * (blocks - 1) + last
    arrays = []
    for _ in range(RANKS):
        kept = np.repeat(random.random(blocks) < share, 32)[:size]
        arrays.append(np.where(kept, random.standard_normal(size), -0.0).astype(np.float32))
    total = np.sum(arrays, axis=0, dtype=np.float64) / (RANKS if op == "average" else 1)
    outputs = [array.copy() for array in arrays]
    on_all(ranks, lambda one: one.allreduce(outputs[one.rank], op, block=block))
    for output in outputs:
        np.testing.assert_array_equal(bits(output), bits(outputs[0]))
        np.testing.assert_allclose(output, total, atol=1e-6)
        assert not np.signbit(output[output == 0]).any()


def test_pairs_move_little_more_than_places_and_values(ranks: list[Communicator]) -> None:
    size, count = 1_000_000, 3000
    rows = random_rows(np.random.default_rng(3), size, [count] * RANKS)

    def call(one: Communicator) -> tuple[float, float]:
        before = one.statistics()
        one.allreduce_sparse(rows[one.rank], np.ones(count, np.float32), size)
        return without_repeats(before, one.statistics())

    part = ways.part_octets(count, size, 32)
    for sent, received in on_all(ranks, call):
        # A header of 90 bytes for each frame, and for each one of another rank; the first step has a frame.
        assert part < sent < 1.3 * part + 4000
        assert (RANKS - 1) * part < received < 1.2 * (RANKS - 1) * part + 4000


def test_the_way_follows_from_what_all_ranks_know() -> None:
    chosen = {
        Way.PAIRS: facts([1000] * 2, 2000),
        Way.SAME: facts([10_000] * 16, 10_000, is_same=True),
        Way.BITMAPS: facts([100_000] * 16, 815_000),
        Way.ALL: facts([1_000_000, 5], 1_000_000),
        Way.PLACES: facts([1000] * 4, 3900, pair_bits=0),
    }
    assert {ways.choose(one).way: one for one in chosen.values()} == chosen


@given(
    rows=st.integers(0, 1 << 30),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    extra=st.floats(0, 1),
    pair_bits=st.sampled_from([0, 16, 32, 2048]),
    keep=st.sampled_from([None, 0, 10, 10_000]),
)
def test_some_way_is_always_chosen_and_none_is_cheaper(
    rows: int, shares: list[float], extra: float, pair_bits: int, keep: int | None
) -> None:
    counts = [int(rows * share) for share in shares]
    union = max(counts) + int(extra * (min(rows, sum(counts)) - max(counts)))
    one = facts(counts, union, rows, pair_bits=pair_bits, sum_bits=max(32, pair_bits), keep=keep)
    chosen = ways.choose(one)
    assert chosen.bits(FRAME_BITS) == min(cost.bits(FRAME_BITS) for cost in ways.costs(one))
    assert pair_bits or chosen.way is not Way.PAIRS
    assert ways.choose(replace(one, is_same=True)).bits(FRAME_BITS) <= chosen.bits(FRAME_BITS)
    assert chosen.levels == 0 or chosen.way is Way.BITMAPS


@given(st.integers(1, 1 << 36).flatmap(lambda rows: st.tuples(st.just(rows), st.sets(st.integers(0, rows - 1)))))
def test_places_are_decoded_as_they_were(case: tuple[int, set[int]]) -> None:
    rows, chosen = case
    indices = np.array(sorted(chosen), np.int64)
    words = places.code(indices, rows)
    assert len(words) * 8 == places.octets_for(len(indices), rows)
    np.testing.assert_array_equal(places.decode(words, len(indices), rows), indices)
    if len(indices):
        # Elias and Fano: less than two bits more than the logarithm, three where the shift is rounded; two whole words.
        assert 8 * len(words) * 8 <= len(indices) * (np.log2(rows / len(indices)) + 3) + 2 * 64


@pytest.mark.parametrize("count", [0, 1, 30, 200, 320, 5000, 100_000])
@pytest.mark.parametrize("step", [0, 1, 64])
def test_the_size_of_a_union_is_estimated(count: int, step: int) -> None:
    random = np.random.default_rng(count)
    off = []
    for _ in range(10):
        sketch, digests = np.zeros(places.SKETCH_WORDS, np.uint64), np.zeros(RANKS, np.uint64)
        start = int(random.integers(1 << 30))
        indices = (
            np.sort(random.choice(1 << 24, count, replace=False)) if step == 0 else start + step * np.arange(count)
        )
        for rank in range(RANKS):
            own, stretches = indices[rank // 2 :], np.zeros(places.STRETCH_WORDS, np.uint64)
            places.describe(own, digests[rank : rank + 1], sketch, stretches, 1 << 24)
            expected = np.zeros(places.STRETCH_WORDS, np.uint64)
            for bit in np.unique(own >> 24).tolist():
                expected[bit >> 6] |= np.uint64(1 << (bit & 63))
            np.testing.assert_array_equal(stretches, expected)
        assert digests[0] == digests[1]
        assert count == 0 or digests[2] != digests[0]
        off.append(places.estimate(sketch) / max(1, count) - (count > 0))
    assert abs(np.mean(off)) < 0.06
    assert np.max(np.abs(off)) < 0.35


@pytest.mark.parametrize("counts", [[100] * RANKS, [5000] * RANKS, [70_000] * RANKS, [199_000] * RANKS])
def test_what_is_begun_in_the_background_ends_though_nobody_waits(
    fresh_ranks: list[Communicator], counts: list[int]
) -> None:
    rows = random_rows(np.random.default_rng(1), 200_000, counts)

    def call(one: Communicator) -> bool:
        own = np.sort(rows[one.rank])
        handle = one.allreduce_sparse_async(own, np.ones(len(own), np.float32), 200_000)
        is_over = eventually(lambda: handle.is_done)
        handle.wait()
        return is_over

    assert all(on_all(fresh_ranks, call))


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 300, 17_000, 50_003])
@pytest.mark.parametrize("spread", ["random", "side by side", "in heaps"])
@pytest.mark.parametrize("rows", [50_003, 60_000, 1_000_000, 40_000_000, 1 << 36])
def test_many_places_are_coded_and_described_as_one_by_one(count: int, spread: str, rows: int) -> None:
    random = np.random.default_rng([count, rows])
    if spread == "random":
        indices = np.unique(random.integers(0, rows, count))
    else:
        heaps = 1 if spread == "side by side" else max(1, count // 100)
        starts = random.integers(0, rows - count // heaps + 1, heaps)
        indices = np.unique((starts[:, None] + np.arange(count // heaps)).reshape(-1))
    lower, upper, shift = places._words(len(indices), rows)
    bits = np.zeros((lower + upper) * 64, np.uint8)
    if len(indices):
        lows = (indices[:, None] >> np.arange(shift)) & 1
        bits[: lows.size] = lows.reshape(-1)
        bits[64 * lower + (indices >> shift) + np.arange(len(indices))] = 1
    np.testing.assert_array_equal(places.code(indices, rows).view(np.uint8), np.packbits(bits, bitorder="little"))

    hashes = indices.astype(np.uint64) + np.uint64(1)
    for factor in (0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93):
        hashes = hashes * np.uint64(factor)
        hashes ^= hashes >> np.uint64(32)
    expected = np.zeros(2 * places.SKETCH_WORDS, np.uint64)
    levels = (hashes & np.uint64(0xFFFF_FFFF)) | np.uint64(1 << 31)
    np.bitwise_or.at(expected, (hashes >> np.uint64(57)).astype(int), levels & (~levels + np.uint64(1)))
    digest, sketch = np.zeros(1, np.uint64), np.zeros(places.SKETCH_WORDS, np.uint64)
    stretches, stretch = np.zeros(places.STRETCH_WORDS, np.uint64), places.stretch_of(rows, 1000)
    places.describe(indices, digest, sketch, stretches, stretch)
    assert digest[0] == np.sum(hashes, dtype=np.uint64)
    np.testing.assert_array_equal(
        np.unpackbits(stretches.view(np.uint8), bitorder="little").nonzero()[0], np.unique(indices // stretch)
    )
    found = sketch.view(np.uint32).astype(np.uint64)
    assert not np.any(expected & ~found)  # the lowest bits may be set without a look
    assert np.bitwise_count(found ^ expected).sum() <= 3


def test_ranks_that_differ_in_rows_alone_hear_of_it(fresh_ranks: list[Communicator]) -> None:
    def call(one: Communicator) -> None:
        one.allreduce_sparse(np.arange(9), np.ones(9, np.float32), 100_000 + one.rank // 2)

    assert {type(error).__name__ for error in failures(fresh_ranks, call)} == {"OperationMismatch"}


@settings(max_examples=15, deadline=None)
@given(
    size=st.sampled_from([5000, 40_000, 300_000]),
    steps=st.lists(
        st.tuples(st.sampled_from([0.0, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0]), st.booleans()), min_size=2, max_size=6
    ),
    kinds=st.lists(st.sampled_from([np.float32, np.float16, np.int32]), min_size=1, max_size=2),
    seed=st.integers(0, 1 << 32),
)
def test_what_was_expected_changes_no_sum(
    ranks: list[Communicator], size: int, steps: list[tuple[float, bool]], kinds: list[Any], seed: int
) -> None:
    """Supports, their likeness and dtypes change from call to call, so that most guesses are wrong."""
    random = np.random.default_rng(seed)
    for number, (share, is_same) in enumerate(steps):
        dtype = kinds[number % len(kinds)]
        rows = [np.flatnonzero(random.random(size) < share) for _ in range(RANKS)]
        rows = [rows[0]] * RANKS if is_same else rows
        values = [random.integers(1, 50, len(own)).astype(dtype) for own in rows]
        total = np.zeros(size)
        for own, part in zip(rows, values, strict=True):
            total[own] += part

        def call(one: Communicator, rows: Any = rows, values: Any = values) -> tuple[Array, Array]:
            sparse = one.allreduce_sparse(rows[one.rank], values[one.rank], size).to_dense()
            blocks = np.zeros(size, values[one.rank].dtype)
            blocks[rows[one.rank]] = values[one.rank]
            return sparse, one.allreduce(blocks, block=8)

        for sparse, blocks in on_all(ranks, call):
            np.testing.assert_array_equal(sparse, total.astype(dtype))
            np.testing.assert_array_equal(blocks, total.astype(dtype))


def test_the_second_call_takes_fewer_steps(fresh_ranks: list[Communicator]) -> None:
    size = 300_000
    random = np.random.default_rng(4)
    cases = {
        Way.PAIRS: random_rows(random, size, [2500] * RANKS),
        Way.BITMAPS: random_rows(random, size, [size // 2] * RANKS),
    }

    def call(one: Communicator) -> dict[Way, list[int]]:
        taken: dict[Way, list[int]] = {}
        for way, rows in cases.items():
            for _ in range(2):
                before, gone_before = one.begun, gone(one)
                one.allreduce_sparse(rows[one.rank], np.ones(len(rows[one.rank]), np.float32), size, label=way.name)
                assert (gone(one) - gone_before)[way] == 1
                taken.setdefault(way, []).append(one.begun - before)
        return taken

    for taken in on_all(fresh_ranks, call):
        assert taken[Way.PAIRS] == [3, 2]
        assert taken[Way.BITMAPS][1] < taken[Way.BITMAPS][0]


def test_a_rank_that_is_refused_disturbs_no_expected_pairs(fresh_ranks: list[Communicator]) -> None:
    size, rows = 100_000, random_rows(np.random.default_rng(5), 100_000, [900] * RANKS)

    def call(one: Communicator) -> Array:
        own = rows[one.rank]
        one.allreduce_sparse(own, np.ones(len(own), np.float32), size)
        wrong = own.astype(np.float64) if one.rank == 1 else own
        with pytest.raises(UsageError):
            one.allreduce_sparse(wrong, np.ones(len(own), np.float32), size)
        return one.allreduce_sparse(own, np.ones(len(own), np.float32), size).to_dense()

    total = np.zeros(size, np.float32)
    for own in rows:
        total[own] += 1
    for found in on_all(fresh_ranks, call):
        np.testing.assert_array_equal(found, total)


@settings(max_examples=20, deadline=None)
@given(
    count=st.integers(1, 2500),
    scale=st.sampled_from([1.0, 1e-42, 1e30]),
    special=st.sampled_from([0.0, -0.0, 3e38, np.inf, np.nan]),
    op=st.sampled_from(["sum", "average"]),
    seed=st.integers(0, 1 << 32),
)
def test_exponents_that_went_along_change_no_bit(
    ranks: list[Communicator], count: int, scale: float, special: float, op: str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(4000, count, replace=False))
    values = [(random.standard_normal(count) * scale).astype(np.float32) for _ in range(RANKS)]
    values[seed % RANKS][seed % count] = special

    def call(one: Communicator) -> tuple[Array, Array, bool]:
        before = gone(one)
        sparse = one.allreduce_sparse(rows, values[one.rank], 4000, op, label=f"{count} {seed}").values
        is_same = bool((gone(one) - before)[Way.SAME])
        return sparse, one.allreduce(values[one.rank].copy(), op), is_same

    for sparse, whole, is_same in on_all(ranks, call):
        if is_same and count > 100:  # fewer values travel exactly in an ordinary sum
            np.testing.assert_array_equal(bits(sparse), bits(whole))
        assert is_same or count <= 500


@settings(max_examples=50, deadline=None)
@given(
    rows=st.integers(1, 30_000),
    shares=st.lists(st.sampled_from([0.0, 1e-4, 0.01, 0.12, 1.0]), min_size=1, max_size=5),
    width=st.sampled_from([0, 1, 3, 64, 5000]),
    divisor=st.sampled_from([1.0, 3.0]),
    seed=st.integers(0, 1 << 32),
)
def test_parts_add_up_in_their_order(rows: int, shares: list[float], width: int, divisor: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    own = [np.flatnonzero(random.random(rows) < (share if width < 64 else share / 50)) for share in shares]
    values = [random.standard_normal((len(one), width)).astype(np.float32) for one in own]
    parts = [places.Part(places.code(one, rows), part, len(one)) for one, part in zip(own, values, strict=True)]
    members, sums = places.add(parts, rows, width, divisor)
    np.testing.assert_array_equal(members, np.unique(np.concatenate(own)))
    total = np.zeros((len(members), width))
    for one, part in zip(own, values, strict=True):
        total[np.searchsorted(members, one)] += part
    np.testing.assert_array_equal(bits(sums), bits((total / divisor).astype(np.float32) + np.float32(0)))


def test_bitmaps_of_a_part_of_the_array_are_reckoned_so() -> None:
    far = facts([1444] * 8, 8000, 144_448, occupied=16_384)
    whole = replace(far, occupied=None)
    assert ways.choose(far).way is Way.BITMAPS
    assert ways.choose(whole).way is Way.PLACES


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000)), min_size=1, max_size=30))
def test_what_is_remembered_has_a_bound_and_is_the_newest(calls: list[tuple[int, int]]) -> None:
    known: dict[Any, Expected] = {}
    for name, count in calls:
        note(known, ("call", name, ""), facts([count] * 4, min(4 * count, 1_000_000)))
    for name, count in dict(calls).items():
        found = known["call", name, ""]
        assert 4 * found.octets <= MOST_OCTETS
        assert found.octets in (0, ways.part_octets(count, 1_000_000, 32))
