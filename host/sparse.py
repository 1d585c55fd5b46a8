"""Sparse allreduces: all ranks agree on the union of their supports first, then add the values there.

The union is an allreduce with "or" of one bit for each row, its blocks of zeros skipped as ever.  Large bitmaps take
two steps, so that what is empty costs a 64th of a bit: first a bit for each 64-bit word that is not zero, then those
words.
The sum is an ordinary one of the union's rows, side by side: no index travels, it is exact and in the same order
everywhere, and its blocks hold values that belong together or not (OmniReduce's block fusion, SIGCOMM 2021).

Where nearly every row is in the union, all of them are added, empty or not: the rest is not worth the moving (SparCML's
switch, SC 2019; with bits for indices, a sparse sum never takes more than 1/20 more bytes than the dense one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import UsageError

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

MAX_BITS_IN_ONE_STEP: Final = 1 << 19
"""Bitmaps of at most this many bits, 64 kB, are united at once: they take about as long as the further round trip."""
DENSE_FROM: Final = 31 / 32
"""From this share of rows on all are added: fewer bytes than the bitmap's own are saved by leaving the rest out."""


class Reduces(Protocol):
    """What a sparse allreduce needs of a communicator."""

    world_size: int
    supports: npt.NDArray[np.int64]
    """Rows that this rank had so far, that some rank had, and of the whole arrays."""

    def allreduce(self, array: Array, op: str = "sum", *, lanes: str = "int32", saturate: bool = False) -> Array:
        """Combine arrays in place."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseSum:
    """The sum of sparse arrays, the same bits on every rank."""

    indices: Indices
    """Rows that some rank has, in order, `[m]`."""
    values: Array
    """Their sums, `[m, ...]`."""
    size: int
    """Number of rows."""

    def to_dense(self) -> Array:
        """Return the array `[size, ...]`, zero outside the union."""
        dense = np.zeros((self.size, *self.values.shape[1:]), self.values.dtype)
        dense[self.indices] = self.values
        return dense


def allreduce_sparse(comm: Reduces, indices: Array, values: Array, size: int, op: str, lanes: str) -> SparseSum:
    """See `SparseCalls.allreduce_sparse`."""
    fault = _fault(indices, values, size, op)
    present = np.zeros(max(size, 0), np.bool_)
    if not fault:
        indices, values = _sorted(indices, values)
        present[indices] = True
    union = unite(comm, present, fault)
    compacted = np.zeros((len(union), *values.shape[1:]), values.dtype)
    compacted[np.searchsorted(union, indices)] = values
    comm.allreduce(compacted, op, lanes=lanes)
    return SparseSum(indices=union, values=compacted, size=size)


def allreduce_blocks(comm: Reduces, array: Array, block: int, op: str, lanes: str, saturate: bool) -> Array:
    """Add arrays in place, of which only blocks of `block` values travel that are not zero on all ranks."""
    if block < 1:
        raise UsageError(f"a block has at least one value, not {block}")
    if op not in ("sum", "average", "or"):
        raise UsageError(f"blocks of zeros can be skipped in sums, averages and unions, not in op={op!r}")
    whole = array.reshape(-1) if array.flags.c_contiguous else array.flatten()
    end = array.size // block * block
    rows = whole[:end].reshape(-1, block)
    rest = np.zeros(block if end < array.size else 0, array.dtype)
    rest[: array.size - end] = whole[end:]
    present = np.append(rows.any(axis=1), rest.any() if len(rest) else [])
    union = unite(comm, present.astype(np.bool_), "")
    compacted = np.empty((len(union), block), array.dtype)
    inside = union[union < len(rows)]
    np.take(rows, inside, axis=0, out=compacted[: len(inside)])
    if len(inside) < len(union):
        compacted[-1] = rest
    comm.allreduce(compacted, op, lanes=lanes, saturate=saturate)
    # What is in no rank's support may still hold negative zeros.
    whole[:] = 0
    rows[inside] = compacted[: len(inside)]
    if len(inside) < len(union):
        whole[end:] = compacted[-1, : array.size - end]
    if not np.may_share_memory(whole, array):
        array[...] = whole.reshape(array.shape)
    return array


def unite(comm: Reduces, present: npt.NDArray[np.bool_], fault: str) -> Indices:
    """Return the indices that are present on any rank; raises UsageError if there is a fault on any.

    A rank that cannot go on takes part until here, so that the others hear of it.
    """
    bits = len(present)
    words = np.zeros(-(-bits // 64) + 1, np.uint64)
    words.view(np.uint8)[: -(-bits // 8)] = np.packbits(present, bitorder="little")
    words[-1] = bool(fault)  # the others' rank hears of it
    if bits <= MAX_BITS_IN_ONE_STEP:
        comm.allreduce(words, "or")
    else:
        used = np.packbits(words != 0, bitorder="little")
        comm.allreduce(used, "or")
        which = np.flatnonzero(np.unpackbits(used, count=len(words), bitorder="little"))
        some = words[which]
        comm.allreduce(some, "or")
        words[which] = some
    if fault:
        raise UsageError(fault)
    if words[-1]:
        raise UsageError("another rank gave indices or values that cannot be added; its own error says which")
    union = np.flatnonzero(np.unpackbits(words[:-1].view(np.uint8), count=bits, bitorder="little"))
    comm.supports += np.array([np.count_nonzero(present), len(union), bits])
    return np.arange(bits) if len(union) >= DENSE_FROM * bits else union


def _fault(indices: Array, values: Array, size: int, op: str) -> str:
    """Say what is wrong with a rank's values, which the others cannot know."""
    if op not in ("sum", "average"):
        return f"sparse arrays have a sum and an average, not op={op!r}: absent rows are zero"
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        return f"indices are one-dimensional integers, not {indices.dtype}{list(indices.shape)}"
    if values.ndim < 1 or len(values) != len(indices):
        return f"{len(indices)} indices have as many values, not {list(values.shape)}"
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= size):
        return f"indices lie in 0 to {size - 1}, not {int(indices.min())} to {int(indices.max())}"
    return ""


def _sorted(indices: Array, values: Array) -> tuple[Indices, Array]:
    """Return indices in rising order with their values, those of repeated ones added up."""
    indices = indices.astype(np.int64, copy=False)
    if (np.diff(indices) > 0).all():
        return indices, values
    distinct, where = np.unique(indices, return_inverse=True)
    added = np.zeros((len(distinct), *values.shape[1:]), values.dtype)
    np.add.at(added, where, values)
    return distinct, added


def largest(values: Array, k: int) -> Indices:
    """Return the indices, in order, of the `k` values of largest magnitude; of equal ones any, NaN before all."""
    if k == 0 or k >= values.size:
        return np.arange(min(k, values.size))
    magnitudes = np.abs(values.astype(np.float32, copy=False))
    magnitudes[np.isnan(magnitudes)] = np.inf
    return np.sort(np.argpartition(magnitudes, values.size - k)[values.size - k :])
