"""What callers do to collectives: arrays of every kind, again and again, and signal handlers that raise anywhere."""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from support.timing import patience
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.missed import SharedArrays
from switchsum_protocol.errors import OperationMismatch, SumOverflow, UsageError

from .checks import RANKS, on_all

EXAMPLES = int(os.environ.get("SWITCHSUM_EXAMPLES", "40"))
Array = npt.NDArray[Any]


def misaligned(base: Array) -> Array:
    array = np.zeros(base.nbytes + 1, np.uint8)[1:].view(base.dtype).reshape(base.shape)
    array[...] = base
    return array


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "contiguous": lambda base: base.copy(),
    "sliced": lambda base: np.repeat(base, 2, axis=1)[:, ::2],
    "reversed": lambda base: base[::-1].copy()[::-1],
    "fortran": lambda base: np.array(base, order="F"),
    "misaligned": misaligned,
}
SUBCLASSES: dict[str, Callable[[Array], Array]] = {
    "array": lambda array: array,
    "matrix": lambda array: array.view(np.matrix),
    "record": lambda array: array.view(np.recarray),
}
DTYPES = ["f4", "f2", "i1", "i2", "i4", "i8", "u1", "u4", "u8", ml_dtypes.bfloat16]
SHAPES = [(1, 3), (3, 2), (6, 50), (3, 400)]
CALLS = ["sum", "max", "reduce", "scatter", "broadcast", "gather", "async", "blocks", "top-k"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """An array as callers have them, and what is done with it."""

    call: str
    dtype: Any
    shape: tuple[int, int]
    layout: str
    subclass: str
    swapped: bool

    def base(self, rank: int, turn: int) -> Array:
        """Return a rank's values, which all dtypes hold, and so are their sums."""
        values = (np.arange(self.shape[0] * self.shape[1]) * (rank + 2) + turn) % 31
        return values.reshape(self.shape).astype(self.dtype)

    def array(self, rank: int, turn: int) -> Array:
        """Return them as the caller has them."""
        base = self.base(rank, turn)
        if self.swapped:
            base = base.astype(base.dtype.newbyteorder())
        return SUBCLASSES[self.subclass](LAYOUTS[self.layout](base))


def kinds() -> list[Kind]:
    every = [
        Kind(call=call, dtype=np.dtype(dtype), shape=shape, layout=layout, subclass=subclass, swapped=swapped)
        for call, dtype, shape, layout, subclass, swapped in itertools.product(
            CALLS, DTYPES, SHAPES, LAYOUTS, SUBCLASSES, (False, True)
        )
        if not (swapped and np.dtype(dtype).byteorder in "|")
        and not (np.dtype(dtype) == ml_dtypes.bfloat16 and (swapped or subclass != "array"))
        and not (call == "scatter" and shape[0] % RANKS)
    ]
    return random.Random(7).sample(every, min(len(every), 4 * EXAMPLES))


def check_call(communicator: Communicator, kind: Kind, turn: int) -> None:
    """Call a collective and compare what comes out with what numpy says."""
    bases = [kind.base(rank, turn) for rank in range(RANKS)]
    array = kind.array(communicator.rank, turn)
    total = np.sum([base.astype(np.float64) for base in bases], axis=0)
    expected, result = total, array
    match kind.call:
        case "sum":
            assert communicator.allreduce(array) is array
        case "max":
            communicator.allreduce(array, "max")
            expected = np.max([base.astype(np.float64) for base in bases], axis=0)
        case "reduce":
            communicator.reduce(array, root=1)
            expected = total if communicator.rank == 1 else bases[communicator.rank].astype(np.float64)
        case "scatter":
            result = communicator.reduce_scatter(array)
            rows = kind.shape[0] // RANKS
            expected = total[rows * communicator.rank :][:rows]
        case "broadcast":
            communicator.broadcast(array, root=2)
            expected = bases[2].astype(np.float64)
        case "gather":
            result, expected = communicator.allgather(array), np.stack(bases).astype(np.float64)
        case "async":
            assert communicator.allreduce_async(array).wait() is array
        case "blocks":
            communicator.allreduce(array, block=32)
        case "top-k":
            communicator.allreduce_topk(array, array.size)
    got = np.asarray(result)
    if kind.dtype.kind in "iu" or kind.call in ("max", "broadcast", "gather"):
        np.testing.assert_array_equal(got.astype(np.float64), expected, err_msg=f"{kind} {turn}")
    else:
        tolerance = 2.0 ** -{2: 7, 4: 20}[kind.dtype.itemsize]
        np.testing.assert_allclose(
            got.astype(np.float64), expected, rtol=tolerance, atol=1e-4, err_msg=f"{kind} {turn}"
        )


def test_every_call_of_every_kind_of_array_gives_what_numpy_gives_every_time(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> None:
        for kind in kinds():
            for turn in range(3):
                check_call(communicator, kind, turn)

    on_all(ranks, call)


@pytest.mark.parametrize("size", [5, 1000])
def test_ranks_may_have_their_arrays_in_different_byte_orders(ranks: list[Communicator], size: int) -> None:
    def call(communicator: Communicator) -> Array:
        array = np.arange(size).astype(">f4" if communicator.rank == 1 else "<f4")
        return communicator.allreduce(communicator.allreduce(array) * 0 + np.arange(size).astype(array.dtype))

    for array in on_all(ranks, call):
        np.testing.assert_allclose(array, 3.0 * np.arange(size), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u8"])
def test_a_repeated_index_overflows_no_integer(fresh_ranks: list[Communicator], dtype: str) -> None:
    most = np.iinfo(dtype).max
    fitting = np.array([most - 7, 3, 4, 1], dtype)
    order = np.array([1, 1, 1, 0])
    parts = [fitting] + [np.zeros_like(fitting)] * (RANKS - 1)
    for total in on_all(fresh_ranks, lambda c: c.allreduce_sparse(order, parts[c.rank], 9)):
        assert total.to_dense()[:3].tolist() == [1, most, 0]

    def call(communicator: Communicator) -> int:
        values = np.array([most, 1], dtype) if communicator.rank == 1 else np.zeros(2, dtype)
        with pytest.raises(SumOverflow, match=rf"repeated index does not fit .* of {np.dtype(dtype).name}\[rows\]"):
            communicator.allreduce_sparse(np.array([3, 3]), values, 9)
        return int(communicator.allreduce(np.ones(1, np.int32))[0])  # nothing is broken

    assert on_all(fresh_ranks, call) == [RANKS] * RANKS


def test_many_values_of_one_index_are_added_as_exactly_as_their_sum_can_be(ranks: list[Communicator]) -> None:
    zeros, ones = np.zeros(5000, np.int64), np.ones(5000, np.float16)
    for total in on_all(ranks, lambda communicator: communicator.allreduce_sparse(zeros, ones, 3)):
        assert total.to_dense().tolist() == [5000 * RANKS, 0, 0]


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
def test_the_largest_integers_are_told_apart(ranks: list[Communicator], dtype: str) -> None:
    base = np.full(1000, 1 << 8 * np.dtype(dtype).itemsize - 4, dtype)
    if dtype[0] == "i":
        base[::3] = -base[::3]
    base[500] += 1 if base[500] > 0 else -1
    for array in on_all(ranks, lambda communicator: communicator.allreduce_topk(base.copy(), 1)):
        assert np.flatnonzero(array).tolist() == [500]


@pytest.mark.parametrize("what", ["size", "keep", "block", "row"])
def test_ranks_that_disagree_about_a_sparse_sum_all_hear_of_it(fresh_ranks: list[Communicator], what: str) -> None:
    def call(communicator: Communicator) -> bool:
        more, rows = int(communicator.rank == 1), np.arange(4)
        values = np.ones((4, 1 + more) if what == "row" else 4, np.int32)
        size, keep = 10 + more * (what == "size"), 1 + more if what == "keep" else None
        with pytest.raises(OperationMismatch, match="another rank issued another "):  # noqa: PT012
            if what == "block":
                communicator.allreduce(np.ones(40, np.int32), block=33 + more)
            else:
                communicator.allreduce_sparse(rows, values, size, keep=keep)
        with pytest.raises(OperationMismatch):
            communicator.barrier()
        return True

    assert all(on_all(fresh_ranks, call))


def test_a_broadcast_or_gather_writes_no_memory_before_its_end(fresh_ranks: list[Communicator]) -> None:
    # Ranks of one machine may share it.
    array, gathered = np.full(700, 7.0, np.float32), np.zeros((RANKS, 9), np.int32)

    def call(communicator: Communicator) -> None:
        communicator.broadcast(array, root=1)
        communicator.barrier()
        communicator.allgather(np.full(9, communicator.rank + 1, np.int32), out=gathered)

    on_all(fresh_ranks, call)
    assert (array == 7).all()
    assert gathered.T.tolist() == [[1, 2, 3]] * 9


STRANGE: dict[tuple[str, str], list[Any]] = {
    ("broadcast", "root"): [0.5, None, "0", 1 << 70],
    ("reduce", "root"): [0.5, None],
    ("allreduce", "op"): [[], None, 3],
    ("allreduce", "lanes"): [[], None],
    ("allreduce", "block"): [1 << 70, 2.5, [], 0],
    ("allreduce_sparse", "size"): [10.5, 1 << 62, None],
    ("allreduce_sparse", "keep"): [2.5, [], -1],
    ("allreduce_sparse", "op"): [[], "max"],
    ("allreduce_topk", "k"): [2.5, "2", -1],
    ("allreduce_topk", "density"): ["1", 0, 2.5],
}


def test_wrong_arguments_are_called_so(fresh_ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> None:
        for (name, option), values in STRANGE.items():
            is_sparse = name == "allreduce_sparse"
            arrays = [np.arange(6), np.ones(6, np.float32)][not is_sparse :]
            others = {"size": 9} if is_sparse else {}
            for value in values:
                with pytest.raises(UsageError):
                    getattr(communicator, name)(*arrays, **others | {option: value})

    on_all(fresh_ranks, call)
    on_all(fresh_ranks, Communicator.barrier)


MASKED: dict[str, Callable[[Communicator, Any], object]] = {
    "allreduce": lambda comm, array: comm.allreduce(array),
    "allreduce, with blocks": lambda comm, array: comm.allreduce(array, block=2),
    "allreduce_async": lambda comm, array: comm.allreduce_async(array).wait(),
    "allreduce_topk": lambda comm, array: comm.allreduce_topk(array, 1),
    "reduce": lambda comm, array: comm.reduce(array),
    "reduce_scatter": lambda comm, array: comm.reduce_scatter(array),
    "broadcast": lambda comm, array: comm.broadcast(array),
    "allgather": lambda comm, array: comm.allgather(array),
    "allgather, out": lambda comm, array: comm.allgather(np.zeros(3), out=np.ma.zeros((RANKS, 3))),
    "allreduce_sparse": lambda comm, array: comm.allreduce_sparse(np.arange(3), array, 9),
    "allreduce_sparse, indices": lambda comm, array: comm.allreduce_sparse(array.astype(int), np.ones(3), 9),
    "share": lambda comm, array: SharedArrays((array,)),
}


@pytest.mark.parametrize("call", MASKED.values(), ids=MASKED)
def test_masked_arrays_are_refused_and_stay_as_they_are(
    fresh_ranks: list[Communicator], call: Callable[[Communicator, Any], object]
) -> None:
    def refused(communicator: Communicator) -> tuple[str, list[float | None], list[float]]:
        array = np.ma.masked_array(np.arange(3.0, dtype=np.float32), [False, True, False])
        with pytest.raises(UsageError) as caught:
            call(communicator, array)
        return str(caught.value), array.tolist(), communicator.allreduce(array.filled(0)).tolist()

    for text, kept, total in on_all(fresh_ranks, refused):
        assert re.search(r"would ignore the mask of .*array: pass array\.(filled\(0\)|compressed\(\))", text)
        assert (kept, total) == ([0.0, None, 2.0], [0.0, 0.0, 2.0 * RANKS])


def test_a_first_sum_imports_nothing_for_masked_arrays() -> None:
    """`numpy.ma` takes 30 ms and more, which a first sum of a job waited for."""
    program = (
        "import sys, numpy, switchsum.testing as t; t.on_ranks(2, lambda c: c.allreduce(numpy.ones(3, numpy.int32))); "
        "sys.exit('numpy.ma' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=patience(120)).returncode == 0


def test_sparse_sums_of_swapped_bytes(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> list[float]:
        order = ">" if communicator.rank == 1 else "<"
        indices, values = np.array([5, 2, 5], f"{order}i4"), np.array([1, 2, 3], f"{order}f4")
        array = np.array([4, 0, 9], f"{order}i4")
        assert communicator.allreduce_topk(array, 1).tolist() == [0, 0, 9 * RANKS]
        return communicator.allreduce_sparse(indices, values, 6).to_dense().tolist()  # type: ignore[no-any-return]

    assert on_all(ranks, call) == [[0, 0, 2.0 * RANKS, 0, 0, 4.0 * RANKS]] * RANKS
