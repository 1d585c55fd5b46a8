"""Compressors of buckets: what is remembered is each parameter's own, and what travels is as little as promised."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from support.timing import patience
from switchsum_host.api.sparse import SparseSum
from switchsum_host.compress import (
    Compressor,
    DeepGradientCompression,
    ErrorFeedback,
    Exchanged,
    GlobalTopK,
    Part,
    PowerSgd,
    Qsgd,
    TernGrad,
    ThresholdTopK,
    TopK,
)
from switchsum_host.compress.base import Reduced
from switchsum_protocol.errors import UsageError

RANKS = 3
Array = npt.NDArray[Any]


class Meeting:
    """Ranks that add arrays in this process, and count what they are given."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(RANKS, timeout=patience(50))
        self.given: list[Array] = [np.empty(0)] * RANKS


class Counting:
    """A rank's communicator."""

    world_size = RANKS

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting = meeting
        self.rank = rank
        self.values = 0
        self.bytes = 0

    def allreduce(self, array: Reduced, op: str = "sum", *, lanes: str = "int32", label: str = "") -> Reduced:
        """Combine arrays in place."""
        self.values += array.size
        self.bytes += array.nbytes
        self.meeting.given[self.rank] = array.copy()
        self.meeting.barrier.wait()
        rows = np.stack(self.meeting.given)
        self.meeting.barrier.wait()
        if op == "average":
            array[...] = rows.astype(np.float64).mean(axis=0)
        else:
            array[...] = rows.max(axis=0) if op == "max" else rows.sum(axis=0, dtype=array.dtype)
        return array

    def allreduce_sparse(
        self,
        indices: Array,
        values: Array,
        size: int,
        op: str = "sum",
        *,
        lanes: str = "int32",
        keep: int | None = None,
        label: str = "",
    ) -> SparseSum:
        """Add sparse arrays."""
        whole = np.zeros(size, np.float32)
        whole[indices] = values
        self.allreduce(whole, op)
        found = np.flatnonzero(whole)
        return SparseSum(indices=found, values=whole[found], size=size)


def on_all(call: Callable[[Counting], Any]) -> list[Any]:
    """Call a function on each rank, in threads of their own."""
    meeting = Meeting()
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(call, [Counting(meeting, rank) for rank in range(RANKS)]))


SHAPES = {"a": (11, 7), "b": (13,), "c": (40, 9), "d": (3, 4, 5)}
PARTS = {key: Part(key=key, shape=shape) for key, shape in SHAPES.items()}
FIRST = ["dc", "ba"]
"""Buckets as they come first: in the other order, of a few parameters each."""
LATER = ["cad", "b"]

MAKERS: dict[str, Callable[[], Compressor]] = {
    "feedback of top-k": lambda: ErrorFeedback(TopK(0.2)),
    "feedback of k of all ranks": lambda: ErrorFeedback(GlobalTopK(0.2)),
    "feedback of thresholds": lambda: ErrorFeedback(ThresholdTopK(0.2, period=8)),
    "feedback of powersgd": lambda: ErrorFeedback(PowerSgd(1)),
    "feedback of qsgd": lambda: ErrorFeedback(Qsgd(bucket=50)),
    "dgc": lambda: DeepGradientCompression(0.2, momentum=0.0, warm_up=4),
}


def gradient_of(key: str, rank: int, step: int) -> Array:
    """Return what a backward pass leaves for a parameter."""
    seed = [*key.encode(), rank, step]
    return np.random.default_rng(seed).standard_normal(PARTS[key].size).astype(np.float32)


def exchange(comm: Counting, compressor: Compressor, bucket: str, step: int) -> Exchanged:
    """Exchange the gradients of a bucket's parameters."""
    values = np.concatenate([gradient_of(key, comm.rank, step) for key in bucket])
    kept = values.copy()
    exchanged = compressor.exchange_parts(comm, [PARTS[key] for key in bucket], values)
    np.testing.assert_array_equal(values, kept)
    return exchanged


def row_of(state: Any, keys: str) -> Array:
    """Return what is kept of parameters, side by side."""
    return np.concatenate([np.asarray(state[key]).reshape(-1) for key in keys])


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_lost_where_buckets_are_made_anew(name: str) -> None:
    def train(comm: Counting) -> None:
        compressor = MAKERS[name]()
        given, said = (
            {key: np.zeros(PARTS[key].size) for key in PARTS},
            {key: np.zeros(PARTS[key].size) for key in PARTS},
        )
        for step in range(5):
            for bucket in FIRST if step == 0 else LATER:
                own = exchange(comm, compressor, bucket, step).own
                ends = np.cumsum([PARTS[key].size for key in bucket])[:-1]
                for key, values in zip(bucket, np.split(own, ends), strict=True):
                    given[key] += gradient_of(key, comm.rank, step)
                    said[key] += values
            if step == 2:  # a checkpoint, and another process
                state = compressor.state_dict()
                compressor = MAKERS[name]()
                compressor.load_state_dict(state)
        state = compressor.state_dict()
        # One residual for each parameter, and no other.
        kept = state["accumulated"] if name == "dgc" else state["lost"]
        assert kept.keys() == PARTS.keys()
        for key in PARTS:
            np.testing.assert_allclose(said[key] + kept[key].reshape(-1), given[key], atol=1e-4)
        if name == "dgc":
            assert state["steps"] == dict.fromkeys(PARTS, 5)  # the warm-up does not begin again

    on_all(train)


@pytest.mark.parametrize("name", MAKERS)
def test_a_checkpoint_is_resumed_by_other_buckets(name: str) -> None:
    """DistributedDataParallel makes its first buckets again in the process that resumes."""

    def train(comm: Counting) -> None:
        one = MAKERS[name]()
        for bucket in LATER:
            exchange(comm, one, bucket, 0)
        other = MAKERS[name]()
        other.load_state_dict(one.state_dict())
        kept = other.state_dict()["accumulated" if name == "dgc" else "lost"]
        before = {key: np.asarray(kept[key]).reshape(-1).copy() for key in PARTS}
        for bucket in FIRST:
            own = exchange(comm, other, bucket, 1).own
            after = other.state_dict()["accumulated" if name == "dgc" else "lost"]
            given = np.concatenate([gradient_of(key, comm.rank, 1) for key in bucket])
            expected = row_of(before, bucket) + given
            np.testing.assert_allclose(own + row_of(after, bucket), expected, atol=1e-4)

    on_all(train)


@pytest.mark.parametrize("size", [997, 4001, 9973, 65537, 99991])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_powersgd_makes_every_size_smaller(size: int, rank: int) -> None:
    def call(comm: Counting) -> int:
        compressor = PowerSgd(rank)
        gradient = np.random.default_rng([comm.rank, size]).standard_normal(size).astype(np.float32)
        compressor.exchange(comm, "prime", gradient)
        assert comm.values == compressor.values_of((size,))
        return comm.values

    # Factors of a square matrix have two roots of the size, and a row more where that is no whole number.
    for travelled in on_all(call):
        assert travelled <= rank * (2 * size**0.5 + 3)


def test_powersgd_takes_parameters_as_the_matrices_that_they_are() -> None:
    parts = [Part(key="weight", shape=(30, 20)), Part(key="bias", shape=(30,)), Part(key="thin", shape=(1, 400))]

    def call(comm: Counting) -> None:
        alone, together = PowerSgd(2), PowerSgd(2)
        for step in range(3):
            random = np.random.default_rng([comm.rank, step])
            rows = [random.standard_normal(part.size).astype(np.float32) for part in parts]
            mean = together.exchange_parts(comm, parts, np.concatenate(rows)).mean
            means = [
                alone.exchange(comm, part.key, row.reshape(part.shape)).mean
                for part, row in zip(parts, rows, strict=True)
            ]
            np.testing.assert_array_equal(mean, np.concatenate([one.reshape(-1) for one in means]))
        assert together.values_of((30, 20)) == 2 * 50
        assert together.values_of((30,)) == 2 * 11
        assert together.values_of((1, 400)) == 2 * 40
        assert comm.values == 2 * 3 * (100 + 22 + 80)

    on_all(call)


@pytest.mark.parametrize("size", [10, 1000, (1 << 20) + 1])
def test_terngrad_sends_a_byte_a_value_and_a_scale(size: int) -> None:
    def call(comm: Counting) -> int:
        TernGrad().exchange(comm, "x", np.full(size, 1 + comm.rank, np.float32))
        return comm.bytes

    assert on_all(call) == [size + 4 * -(-size // (1 << 20))] * RANKS


def test_parts_that_are_not_the_values_are_refused() -> None:
    with pytest.raises(UsageError, match="parts of"):
        on_all(lambda comm: PowerSgd().exchange_parts(comm, [PARTS["a"]], np.ones(5, np.float32)))
