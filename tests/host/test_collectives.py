"""Broadcast, reduce, allgather and reduce-scatter as callers see them, and their forms that do not block."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from support.timing import patience
from switchsum.testing.local import communicators
from switchsum_host.api import collectives
from switchsum_host.api.collectives import Options, native_values
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle
from switchsum_protocol.errors import OperationMismatch, UnsupportedDtype, UsageError
from switchsum_protocol.frame import FRAME_BYTES, LANE_BYTES

from .checks import RANKS, failures, on_all

RNG = np.random.default_rng(12)
ANY_DTYPE = [np.dtype(name) for name in ("?", "i1", "u2", "f2", "i4", "f4", ">f4", "i8", "f8", "c8", "M8[s]", "U3")]
ANY_DTYPE += [np.dtype(ml_dtypes.bfloat16), np.dtype([("a", "i1"), ("b", "f8")])]
Array = npt.NDArray[Any]


def raw(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return an array of random bits: NaN of all kinds, negative zeros, booleans that are neither."""
    size = int(np.prod(shape))
    return RNG.integers(0, 256, size * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


def same_bits(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", ANY_DTYPE, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (700,), (20, 31)])
def test_broadcast_brings_every_bit(ranks: list[Communicator], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    arrays = [raw(dtype, shape) for _ in range(RANKS)]
    expected = arrays[1].copy()
    results = on_all(ranks, lambda communicator: communicator.broadcast(arrays[communicator.rank], root=1))
    for array, result in zip(arrays, results, strict=True):
        assert result is array
        assert same_bits(array, expected)


@pytest.mark.parametrize("dtype", ANY_DTYPE, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (700,), (20, 31)])
def test_allgather_brings_every_bit(ranks: list[Communicator], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    arrays = [raw(dtype, shape) for _ in range(RANKS)]
    kept = [array.copy() for array in arrays]
    for result in on_all(ranks, lambda communicator: communicator.allgather(arrays[communicator.rank])):
        assert result.shape == (RANKS, *shape)
        assert all(same_bits(part, array) for part, array in zip(list(result), arrays, strict=True) if shape)
        assert result.tobytes() == b"".join(array.tobytes() for array in kept)
    assert all(same_bits(*pair) for pair in zip(arrays, kept, strict=True))


def test_arrays_that_lie_otherwise_in_memory(ranks: list[Communicator]) -> None:
    expected = raw(np.dtype(np.float32), (30, 40))

    def broadcast(communicator: Communicator) -> Array:
        array = np.zeros((40, 30), np.float32).T if communicator.rank == 0 else np.zeros((30, 80), np.float32)[:, ::2]
        if communicator.rank == 2:
            array = expected.copy()
            array.flags.writeable = False
        return communicator.broadcast(array, root=2)

    assert all(same_bits(array, expected) for array in on_all(ranks, broadcast))

    def gather(communicator: Communicator) -> Array:
        out = np.full((30, 40, RANKS), 7, np.float32).T
        assert communicator.allgather(expected.T, out=out) is out
        return out

    for out in on_all(ranks, gather):
        assert out.tobytes() == expected.T.tobytes() * RANKS


def test_allgather_where_the_own_part_lies_in_the_result_already(ranks: list[Communicator]) -> None:
    def gather(communicator: Communicator) -> Array:
        out = np.full((RANKS, 500), -1, np.int16)
        out[communicator.rank] = communicator.rank
        return communicator.allgather(out[communicator.rank], out=out)

    for out in on_all(ranks, gather):
        np.testing.assert_array_equal(out, np.repeat(np.arange(RANKS), 500).reshape(RANKS, 500))


def test_reduce_gives_the_root_the_sum_and_leaves_others_alone(ranks: list[Communicator]) -> None:
    arrays = [RNG.integers(-100, 100, 1000).astype(np.int32) for _ in range(RANKS)]
    arrays[0][:256] = 0
    kept = [array.copy() for array in arrays]
    arrays[1].flags.writeable = False
    results = on_all(ranks, lambda communicator: communicator.reduce(arrays[communicator.rank], root=2))
    assert all(result is array for result, array in zip(results, arrays, strict=True))
    np.testing.assert_array_equal(arrays[2], sum(kept))
    for rank in (0, 1):
        np.testing.assert_array_equal(arrays[rank], kept[rank])


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_reduce_scatter_gives_each_rank_its_part(ranks: list[Communicator], dtype: Any) -> None:
    arrays = [RNG.integers(-100, 100, (RANKS * 7, 55)).astype(dtype) for _ in range(RANKS)]
    kept = [array.copy() for array in arrays]
    total = np.sum(arrays, axis=0)
    results = on_all(ranks, lambda communicator: communicator.reduce_scatter(arrays[communicator.rank]))
    for rank, result in enumerate(results):
        np.testing.assert_allclose(result, total[7 * rank : 7 * rank + 7], atol=1e-5)
        np.testing.assert_array_equal(arrays[rank], kept[rank])
    out = np.zeros((7, 110), dtype)[:, ::2]
    again = on_all(
        ranks,
        lambda communicator: communicator.reduce_scatter(
            arrays[communicator.rank], out=out if communicator.rank == 1 else None
        ),
    )
    assert again[1] is out
    np.testing.assert_array_equal(out, results[1])


FRAMES = 40
"""Whole ones of each rank's part."""
COMES_DOWN: dict[str, tuple[Callable[[Communicator, Array], object], int]] = {
    "allreduce": (lambda communicator, array: communicator.allreduce(array), RANKS),
    "reduce_scatter": (lambda communicator, array: communicator.reduce_scatter(array), 1),
    "allgather": (lambda communicator, array: communicator.allgather(array[: len(array) // RANKS]), RANKS - 1),
    "reduce": (lambda communicator, array: communicator.reduce(array), 1),
    "broadcast": (lambda communicator, array: communicator.broadcast(array), RANKS - 1),
}
"""How often a whole array comes down to all ranks together."""


@pytest.mark.parametrize("name", COMES_DOWN)
def test_lanes_come_down_only_to_ranks_that_need_them(ranks: list[Communicator], name: str) -> None:
    call, times = COMES_DOWN[name]
    size = RANKS * FRAMES * ranks[0].lanes_per_frame
    array = np.ones(size, np.float32)
    before = [communicator.statistics() for communicator in ranks]
    on_all(ranks, lambda communicator: call(communicator, array.copy()))
    pairs = list(zip(before, [communicator.statistics() for communicator in ranks], strict=True))
    frames, received, again = (
        sum(getattr(late, field) - getattr(early, field) for early, late in pairs)
        for field in ("frames_received", "bytes_received", "duplicate_frames")
    )
    lanes = received - frames * FRAME_BYTES
    least = times * array.nbytes
    assert least <= lanes <= least + again * ranks[0].lanes_per_frame * LANE_BYTES


@pytest.mark.parametrize("blocks", [0, 1, 2, 7])
@pytest.mark.parametrize("more", [-1, 0, 1, 100])
def test_parts_of_any_size_come_whole(ranks: list[Communicator], blocks: int, more: int) -> None:
    size = blocks * ranks[0].lanes_per_frame + more  # of a part; an allgather's blocks are a quarter as many values
    if size <= 0:
        return
    parts = RNG.standard_normal((RANKS, size)).astype(np.float32)

    def call(communicator: Communicator) -> tuple[Array, Array, Array]:
        rooted = parts[communicator.rank].copy()
        gathered = communicator.allgather(parts[communicator.rank])
        return gathered, communicator.reduce_scatter(parts.copy()), communicator.broadcast(rooted, root=1)

    for rank, (gathered, part, rooted) in enumerate(on_all(ranks, call)):
        np.testing.assert_array_equal(gathered, parts)
        np.testing.assert_allclose(part, RANKS * parts[rank : rank + 1], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(rooted, parts[1])


def test_float64_is_narrowed_where_that_is_allowed(ranks: list[Communicator]) -> None:
    values = RNG.standard_normal(600)

    def call(communicator: Communicator) -> Array:
        with pytest.raises(UnsupportedDtype, match="narrow=True"):
            communicator.allreduce(values.copy())
        part = communicator.reduce_scatter(values, narrow=True)
        assert part.dtype == np.float64
        np.testing.assert_allclose(part, RANKS * values.reshape(RANKS, -1)[communicator.rank], rtol=1e-5, atol=1e-6)
        return communicator.allreduce(values.copy(), "average", narrow=True)

    for result in on_all(ranks, call):
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, values, rtol=1e-5, atol=1e-6)


def test_all_of_them_in_flight_at_once(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> None:
        rank = communicator.rank
        handles: dict[str, Handle] = {}
        for turn in range(5):
            handles[f"sum {turn}"] = communicator.allreduce_async(np.full(700, rank + turn, np.int32))
            handles[f"reduce {turn}"] = communicator.reduce_async(np.full(300, rank + 1, np.int32), turn % RANKS)
            handles[f"scatter {turn}"] = communicator.reduce_scatter_async(np.arange(RANKS * 9, dtype=np.float32))
            handles[f"broadcast {turn}"] = communicator.broadcast_async(np.full(11, rank, np.int8), turn % RANKS)
            handles[f"gather {turn}"] = communicator.allgather_async(np.full(1, rank, np.float64))
            handles[f"barrier {turn}"] = communicator.barrier_async()
        for name, handle in reversed(handles.items()):
            kind, turn = name.split()[0], int(name.split()[1])
            result = handle.wait()
            assert handle.is_done
            if kind == "sum":
                np.testing.assert_array_equal(result, 3 + 3 * turn)
            elif kind == "reduce":
                np.testing.assert_array_equal(result, 6 if rank == turn % RANKS else rank + 1)
            elif kind == "scatter":
                np.testing.assert_allclose(result, 3 * np.arange(9 * rank, 9 * rank + 9), rtol=1e-6)
            elif kind == "broadcast":
                np.testing.assert_array_equal(result, turn % RANKS)
            elif kind == "gather":
                np.testing.assert_array_equal(result, [[0], [1], [2]])
            else:
                assert result is None

    on_all(ranks, call)


def test_a_handle_says_when_it_is_done(ranks: list[Communicator]) -> None:
    handles = [communicator.barrier_async() for communicator in ranks[:2]]
    time.sleep(0.05)
    assert not any(handle.is_done for handle in handles)
    handles.append(ranks[2].barrier_async())
    end = time.monotonic() + patience(20)
    while not all(handle.is_done for handle in handles) and time.monotonic() < end:
        time.sleep(0.005)
    assert all(handle.is_done for handle in handles)
    for handle in handles:
        handle.wait()


Calls = dict[str, Callable[[Communicator], object]]
CALLS: Calls = {
    "sum": lambda communicator: communicator.allreduce(np.ones(300, np.float32)),
    "average": lambda communicator: communicator.allreduce(np.ones(300, np.float32), "average"),
    "other dtype": lambda communicator: communicator.allreduce(np.ones(300, np.int32)),
    "longer": lambda communicator: communicator.allreduce(np.ones(9000, np.float32)),
    "broadcast": lambda communicator: communicator.broadcast(np.ones(300, np.float32)),
    "other root": lambda communicator: communicator.broadcast(np.ones(300, np.float32), root=1),
    "other byte order": lambda communicator: communicator.broadcast(np.ones(300, ">f4")),
    "reduce": lambda communicator: communicator.reduce(np.ones(300, np.float32)),
    "scatter": lambda communicator: communicator.reduce_scatter(np.ones(300, np.float32)),
    "gather": lambda communicator: communicator.allgather(np.ones(300, np.float32)),
    "barrier": lambda communicator: communicator.barrier(),
}


def in_turn(communicator: Communicator, names: tuple[str, ...]) -> None:
    for name in names:
        CALLS[name](communicator)


@pytest.mark.parametrize(
    ("first", "second"), [(name, list(CALLS)[i - d]) for d in (1, 4) for i, name in enumerate(CALLS)]
)
def test_another_order_on_another_rank_is_reported_by_all(first: str, second: str) -> None:
    ranks = communicators(2)

    def call(communicator: Communicator) -> BaseException:
        names = (first, second) if communicator.rank == 0 else (second, first)
        with pytest.raises(OperationMismatch) as caught:
            in_turn(communicator, names)
        return caught.value

    assert len(on_all(ranks, call)) == 2
    for communicator in ranks:
        communicator.close()


def test_what_all_ranks_are_refused_changes_nothing(ranks: list[Communicator]) -> None:
    on_all(ranks, _make_mistakes)
    on_all(ranks, Communicator.barrier)


def _make_mistakes(communicator: Communicator) -> None:
    ones = np.ones(6, np.float32)
    read_only = ones.copy()
    read_only.flags.writeable = False
    wrong: Any = [1.0]
    mistakes: list[tuple[Callable[[], object], str]] = [
        (lambda: communicator.broadcast(ones, root=3), "0 to 2, not 3"),
        (lambda: communicator.reduce(ones, root=-1), "0 to 2, not -1"),
        (lambda: communicator.broadcast(read_only, root=(communicator.rank + 1) % RANKS), "read-only"),
        (lambda: communicator.reduce(read_only, root=communicator.rank), "read-only"),
        (lambda: communicator.reduce_scatter(np.ones(7, np.float32)), "3 parts"),
        (lambda: communicator.reduce_scatter(np.ones((), np.float32)), "3 parts"),
        (lambda: communicator.reduce_scatter(ones, out=np.ones(3, np.float32)), r"float32\[2\], not float32\[3\]"),
        (lambda: communicator.allgather(ones, out=np.ones((3, 6), np.int32)), r"float32\[3, 6\], not int32\[3, 6\]"),
        (lambda: communicator.broadcast(wrong), "numpy array"),
        (lambda: communicator.allgather(wrong), "numpy array"),
    ]
    for call, text in mistakes:
        with pytest.raises(UsageError, match=text):
            call()
    with pytest.raises(UnsupportedDtype, match="Python objects"):
        communicator.broadcast(np.array([{}]))


@pytest.mark.parametrize("kind", ["dtype", "operator", "lanes", "root", "block"])
def test_what_one_rank_is_refused_ends_all_at_once(fresh_ranks: list[Communicator], kind: str) -> None:
    def call(communicator: Communicator) -> None:
        wrong = communicator.rank == 1
        array = np.ones(700, np.float64 if wrong and kind == "dtype" else np.float32)
        if kind == "root":
            communicator.broadcast(array, root=7 if wrong else 0)
        elif kind == "block":
            communicator.allreduce(array, "max" if wrong else "sum", block=32)
        else:
            op, lanes = ("product" if wrong and kind == "operator" else "sum"), ("int4" if wrong else "int32")
            communicator.allreduce(array, op, lanes=lanes if kind == "lanes" else "int32")

    own = UnsupportedDtype if kind == "dtype" else UsageError
    assert [type(error) for error in failures(fresh_ranks, call)] == [OperationMismatch, own, OperationMismatch]
    assert [type(error) for error in failures(fresh_ranks, Communicator.barrier)] == [OperationMismatch] * RANKS


def test_what_narrow_makes_infinite_is_said_once() -> None:
    collectives.warn_of_infinity.cache_clear()
    how = Options(operator="sum", narrow=True)
    with pytest.warns(RuntimeWarning, match="beyond float32"):
        assert native_values(np.array([1.0, 1e300]), how).tolist() == [1.0, np.inf]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        native_values(np.array([1e300]), how)
        collectives.warn_of_infinity.cache_clear()
        native_values(np.array([1.0, np.inf, np.nan, 3e38]), how)  # infinite before
