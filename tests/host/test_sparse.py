"""Sparse allreduces and small blocks: what comes out, what travels, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from switchsum.host import sparse
from switchsum.host.communicator import Communicator
from switchsum.host.sparse import SparseSum
from switchsum.protocol.errors import UsageError
from switchsum.testing.local import communicators

RANKS = 3
RNG = np.random.default_rng(14)
Array = npt.NDArray[Any]
Result = TypeVar("Result")


@pytest.fixture(scope="module")
def ranks() -> Iterator[list[Communicator]]:
    made = communicators(RANKS)
    yield made
    for communicator in made:
        communicator.close()


def on_all(ranks: list[Communicator], function: Callable[[Communicator], Result]) -> list[Result]:
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(function, ranks))


def supports(size: int, pattern: str) -> list[Array]:
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
@pytest.mark.parametrize("size", [1, 64, 5000, sparse.MAX_BITS_IN_ONE_STEP + 100])
@pytest.mark.parametrize("row", [(), (3,)])
def test_the_sum_over_the_union(ranks: list[Communicator], size: int, pattern: str, row: tuple[int, ...]) -> None:
    if size > 5000 and pattern in ("dense", "one rank", "disjoint"):
        size, row = sparse.MAX_BITS_IN_ONE_STEP // 8, ()
    chosen = supports(size, pattern)
    values = [RNG.integers(-1000, 1000, (len(indices), *row)).astype(np.int32) for indices in chosen]
    expected = np.zeros((size, *row), np.int64)
    for indices, part in zip(chosen, values, strict=True):
        expected[indices] += part
    union = np.unique(np.concatenate(chosen))

    def call(communicator: Communicator) -> SparseSum:
        return communicator.allreduce_sparse(chosen[communicator.rank], values[communicator.rank], size)

    for total in on_all(ranks, call):
        np.testing.assert_array_equal(total.to_dense(), expected)
        if len(union) < sparse.DENSE_FROM * size:
            np.testing.assert_array_equal(total.indices, union)
        assert total.values.shape == (len(total.indices), *row)


def test_bytes_follow_the_union(ranks: list[Communicator]) -> None:
    size = 1 << 21
    chosen = [np.sort(RNG.choice(size, size // 1000, replace=False)) for _ in range(RANKS)]

    def call(communicator: Communicator) -> tuple[int, int]:
        before = communicator.statistics()
        mine = chosen[communicator.rank]
        communicator.allreduce_sparse(mine, np.ones(len(mine), np.float32), size)
        after = communicator.statistics()
        return after.bytes_sent - before.bytes_sent, after.bytes_received - before.bytes_received

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


def test_topk_refuses_what_it_cannot_mean(ranks: list[Communicator]) -> None:
    array = np.ones(10, np.float32)
    calls: list[Callable[[], object]] = [
        lambda: ranks[0].allreduce_topk(array),
        lambda: ranks[0].allreduce_topk(array, 3, density=0.1),
        lambda: ranks[0].allreduce_topk(array, density=0.0),
        lambda: ranks[0].allreduce_topk(array, density=1.5),
        lambda: ranks[0].allreduce_topk(array, -1),
        lambda: ranks[0].allreduce(array, block=0),
        lambda: ranks[0].allreduce(array, "max", block=32),
    ]
    for call in calls:
        with pytest.raises(UsageError):
            call()


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
    values = union * block if union < sparse.DENSE_FROM * -(-size // block) else size + block
    frames = max(1, -(-values // 256)) + max(1, -(-(-(-size // block) // 64 + 1) // 128))
    assert ranks[0].statistics().rounds - before <= frames + 2


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
