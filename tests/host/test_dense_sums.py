"""Sums of all rows that begin at once, because the last two calls were such: right, and agreed, whatever comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from switchsum_host.api import dense
from switchsum_host.api.collectives import Way
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.dense import seems_dense
from switchsum_host.api.sparse import SparseSum
from switchsum_protocol.errors import OperationMismatch, SumOverflow, UsageError

from .checks import RANKS, bits, failures, on_all
from .moved import without_repeats

Array = npt.NDArray[Any]
SIZE = 6000
TIMES = 2
"""Calls after which the next one begins at once."""


@pytest.fixture(autouse=True, params=["one value more", "a word"])
def told_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How ranks tell each other that nothing is wrong: floats of small arrays by one value more, others by a word."""
    told: str = request.param
    if told == "a word":
        monkeypatch.setattr(dense, "_MOST_MARKED", 0)
    return told


def drawn(seed: int, dtype: Any = np.float32, size: int = SIZE) -> Array:
    return (np.random.default_rng(seed).standard_normal(size) * 100).astype(dtype)


def topk(one: Communicator, array: Array) -> Array:
    return one.allreduce_topk(array.copy(), array.size)


def blocks(one: Communicator, array: Array) -> Array:
    return one.allreduce(array.copy(), block=32)


def rows(one: Communicator, array: Array) -> Array:
    return one.allreduce_sparse(np.arange(array.size), array, array.size).to_dense()


def background(one: Communicator, array: Array) -> Array:
    result: Array = one.allreduce_topk_async(array.copy(), array.size).wait()
    return result


CALLS = [topk, blocks, rows, background]


def begin_densely(ranks: list[Communicator], call: Callable[[Communicator, Array], Array] = topk) -> None:
    def act(one: Communicator) -> None:
        for number in range(TIMES):
            call(one, drawn(10 * number + one.rank))

    on_all(ranks, act)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, ">f4"])
def test_sums_that_begin_at_once_have_the_bits_of_plain_ones(
    fresh_ranks: list[Communicator], call: Callable[[Communicator, Array], Array], dtype: Any, told_by: str
) -> None:
    def act(one: Communicator) -> tuple[list[Array], list[Array], list[int], list[int]]:
        sums, plain, steps = list[Array](), list[Array](), list[int]()
        for number in range(TIMES + 2):
            array = drawn(10 * number + one.rank, dtype)
            before = one.begun
            sums.append(call(one, array))
            steps.append(one.begun - before)
            plain.append(one.allreduce(array.copy()))
        return sums, plain, steps, one.ways.tolist()

    for sums, plain, steps, went in on_all(fresh_ranks, act):
        for found, right in zip(sums, plain, strict=True):
            native = right.dtype.newbyteorder("=")
            np.testing.assert_array_equal(bits(found.astype(native)), bits(right.astype(native)))
        # The first step, and the sum: from the third call on side by side, or one operation.
        at_once = 2 if told_by == "a word" or dtype is np.int32 else 1
        assert steps == [2] * TIMES + [at_once] * 2
        assert sum(went) == TIMES + 2
        assert went[Way.ALL] >= 2


def test_the_wait_for_the_first_step_is_saved(fresh_ranks: list[Communicator]) -> None:
    begin_densely(fresh_ranks)

    def act(one: Communicator) -> float:
        more = []
        for _ in range(5):
            before = one.statistics()
            topk(one, drawn(one.rank))
            after = one.statistics()
            one.allreduce(drawn(one.rank))
            more.append(without_repeats(before, after)[0] - without_repeats(after, one.statistics())[0])
        return min(more)

    assert max(on_all(fresh_ranks, act)) < 700  # a header, where the lanes of a frame are 1,024 bytes


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("who", [[1], [0, 1, 2]])
def test_fewer_rows_are_added_too_and_the_next_call_asks_again(
    fresh_ranks: list[Communicator], call: Callable[[Communicator, Array], Array], who: list[int]
) -> None:
    begin_densely(fresh_ranks, call)

    def act(one: Communicator) -> list[Array]:
        found = []
        for number in range(3):
            assert any(known.sum_at_once for known in one.expected.values()) == (number == 0)
            array = drawn(50 + 10 * number + one.rank)
            if one.rank in who:
                array[np.arange(SIZE) // 64 % 20 > 0] = 0
            kept = np.flatnonzero(array)
            if call is rows:
                found.append(one.allreduce_sparse(kept, array[kept], SIZE).to_dense())
            elif call is blocks:
                found.append(blocks(one, array))
            else:
                found.append(one.allreduce_topk(array.copy(), len(kept)))
        return found

    results = on_all(fresh_ranks, act)
    for number in range(3):
        total = np.zeros(SIZE)
        for rank in range(RANKS):
            array = drawn(50 + 10 * number + rank).astype(np.float64)
            total += np.where(np.arange(SIZE) // 64 % 20 > 0, 0, array) if rank in who else array
        for one in results:
            np.testing.assert_allclose(one[number], total, atol=1e-3)
            np.testing.assert_array_equal(bits(one[number]), bits(results[0][number]))


WRONG: dict[str, Callable[[Communicator], object]] = {
    "k": lambda one: one.allreduce_topk(drawn(one.rank), -1),
    "density": lambda one: one.allreduce_topk(drawn(one.rank), density=0.0),
    "dtype": lambda one: one.allreduce_topk(drawn(one.rank, np.float64), SIZE),
    "operator": lambda one: one.allreduce_topk(drawn(one.rank), SIZE, "max"),
    "keep": lambda one: one.allreduce_topk(drawn(one.rank), SIZE, keep=-1),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("is_same", [True, False])
def test_what_one_rank_refuses_all_raise_and_go_on(fresh_ranks: list[Communicator], kind: str, is_same: bool) -> None:
    begin_densely(fresh_ranks)

    def act(one: Communicator) -> None:
        if one.rank == 1:
            WRONG[kind](one)
        else:
            topk(one, drawn(one.rank, np.float32 if is_same else np.int16))

    assert {type(error) for error in failures(fresh_ranks, act)} == {UsageError}
    begin_densely(fresh_ranks)
    on_all(fresh_ranks, Communicator.barrier)


def test_an_index_that_is_wrong_is_raised_by_all(fresh_ranks: list[Communicator]) -> None:
    begin_densely(fresh_ranks, rows)

    def act(one: Communicator) -> SparseSum:
        return one.allreduce_sparse(np.arange(SIZE) + (one.rank == 2), np.ones(SIZE, np.float32), SIZE)

    assert {type(error) for error in failures(fresh_ranks, act)} == {UsageError}
    begin_densely(fresh_ranks, rows)


def test_all_ranks_may_call_something_else(fresh_ranks: list[Communicator]) -> None:
    begin_densely(fresh_ranks)

    def act(one: Communicator) -> tuple[Array, Array]:
        whole = topk(one, np.arange(SIZE, dtype=np.int32) + one.rank)
        return whole, one.allreduce_topk(np.arange(SIZE, dtype=np.float32), SIZE, "average")

    for whole, average in on_all(fresh_ranks, act):
        np.testing.assert_array_equal(whole, 3 * np.arange(SIZE) + 3)
        np.testing.assert_allclose(average, np.arange(SIZE), rtol=1e-6)


@pytest.mark.parametrize("call", [topk, blocks, rows])
def test_ranks_that_differ_raise_a_mismatch(
    fresh_ranks: list[Communicator], call: Callable[[Communicator, Array], Array]
) -> None:
    begin_densely(fresh_ranks, call)
    errors = failures(fresh_ranks, lambda one: call(one, drawn(one.rank, np.float16 if one.rank else np.float32)))
    assert {type(error) for error in errors} == {OperationMismatch}


def test_integers_that_do_not_fit_are_raised_by_all(fresh_ranks: list[Communicator]) -> None:
    def add(value: int) -> Callable[[Communicator], object]:
        return lambda one: one.allreduce_sparse(np.arange(SIZE), np.full(SIZE, value, np.int8), SIZE)

    for _ in range(TIMES):
        on_all(fresh_ranks, add(30))
    for _ in range(2):
        assert {type(error) for error in failures(fresh_ranks, add(100))} == {SumOverflow}

    def repeat(one: Communicator) -> object:
        indices = np.append(np.arange(SIZE), 5 if one.rank == 1 else SIZE - 1)
        return one.allreduce_sparse(indices, np.full(SIZE + 1, 70 if one.rank == 1 else 1, np.int8), SIZE)

    assert {type(error) for error in failures(fresh_ranks, repeat)} == {SumOverflow}
    for result in on_all(fresh_ranks, add(40)):
        assert isinstance(result, SparseSum)
        np.testing.assert_array_equal(result.values, 120)


def test_many_in_the_background_are_agreed_in_their_order(fresh_ranks: list[Communicator]) -> None:
    """Fewer rows in the midst of many calls under way: all ranks ask again in the same call."""

    def act(one: Communicator) -> list[Array]:
        handles = []
        for number in range(8):
            k = 10 if number in (3, 6) and one.rank == number % RANKS else SIZE
            handles.append(one.allreduce_topk_async(drawn(10 * number + one.rank), k))
        return [handle.wait() for handle in handles]

    results = on_all(fresh_ranks, act)
    for number in range(8):
        total = np.zeros(SIZE)
        for rank in range(RANKS):
            array = drawn(10 * number + rank).astype(np.float64)
            few = number in (3, 6) and rank == number % RANKS
            kept = np.argsort(-np.abs(array), kind="stable")[: 10 if few else SIZE]
            total[kept] += array[kept]
        for one in results:
            np.testing.assert_allclose(one[number], total, atol=1e-3)


def test_two_arrays_that_take_turns_are_never_taken_for_dense(fresh_ranks: list[Communicator]) -> None:
    def act(one: Communicator) -> int:
        for number in range(6):
            one.allreduce_topk(drawn(number), SIZE if number % 2 else 20)
        return int(one.ways[Way.ALL])

    assert on_all(fresh_ranks, act) == [3] * RANKS


@pytest.mark.parametrize(("size", "block"), [(0, 32), (5, 32), (64, 32), (100_000, 32), (100_000, 4096), (3000, 1)])
def test_a_look_at_some_blocks_tells_dense_arrays(size: int, block: int) -> None:
    array = np.ones(size, np.float32)
    assert seems_dense(array, block)
    array[: len(array) // 2] = 0
    assert not seems_dense(array, block) or size < 4 * block


@pytest.mark.parametrize("lanes", ["each", "int16", "int8"])
@pytest.mark.parametrize("op", ["sum", "average"])
def test_lanes_and_averages_are_kept(fresh_ranks: list[Communicator], lanes: str, op: str) -> None:
    def act(one: Communicator) -> tuple[Array, Array]:
        for _ in range(TIMES + 1):
            found = one.allreduce_topk(drawn(one.rank), SIZE, op, lanes=lanes)
        return found, one.allreduce(drawn(one.rank), op, lanes=lanes)

    for found, plain in on_all(fresh_ranks, act):
        if lanes == "each":
            np.testing.assert_array_equal(bits(found), bits(plain))
        else:  # rounded at random
            np.testing.assert_allclose(found, plain, atol=30)


@pytest.mark.parametrize("call", CALLS)
def test_values_that_are_no_numbers_are_added_as_ever(
    fresh_ranks: list[Communicator], call: Callable[[Communicator, Array], Array]
) -> None:
    """A NaN in the last frame looks like the mark of a rank that something is wrong with."""

    def act(one: Communicator) -> tuple[list[Array], list[Array]]:
        found, plain = [], []
        for number in range(2 * TIMES + 2):
            array = drawn(10 * number + one.rank)
            if number >= TIMES and one.rank == 1:
                array[-1] = np.nan
            found.append(call(one, array))
            plain.append(one.allreduce(array.copy()))
        return found, plain

    for found, plain in on_all(fresh_ranks, act):
        for one, other in zip(found, plain, strict=True):
            np.testing.assert_array_equal(bits(one), bits(other))
