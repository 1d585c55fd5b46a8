"""Sparse allreduces: all ranks agree on the union of their supports first, then add the values there.

The union is an allreduce with "or" of one bit for each row (`switchsum.host.bitmap`), its blocks of zeros skipped as
ever.  The sum is an ordinary one of the union's rows, side by side: no index travels, it is exact and in the same order
everywhere, and its blocks hold values that belong together or not (OmniReduce's block fusion, SIGCOMM 2021).

Where nearly every row is in the union, all of them are added, empty or not: the rest is not worth the moving (SparCML's
switch, SC 2019; with bits for indices, a sparse sum never takes more than 1/27 more bytes than the dense one).

Each of these functions does all but the last step, and returns that one under way: what comes after it in the same job
may begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum.host import bitmap
from switchsum.host.bitmap import Indices, Words
from switchsum.host.collectives import How
from switchsum.host.handle import Handle
from switchsum.host.kernels import scan
from switchsum.host.operation import Operation, check
from switchsum.protocol.errors import SumOverflow, UnsupportedDtype, UsageError
from switchsum.protocol.memory import address_of
from switchsum.protocol.wire import LANE_BYTES

Array = npt.NDArray[Any]

MAX_BITS_IN_ONE_STEP: Final = 1 << 19
"""Bitmaps of at most this many bits, 64 kB, are united at once: they take about as long as two more round trips."""
DENSE_FROM: Final = 31 / 32
"""From this share of rows on all are added: fewer bytes than the bitmap's own are saved by leaving the rest out."""
ROUGH_UP_TO: Final = 3 / 4
"""Sums of which a smaller share is kept are found out roughly first: a byte for each, and then four for those kept."""
AUTO_BLOCK: Final = 32
"""Values in the blocks that `block="auto"` looks at: larger ones would take more bytes, smaller ones little fewer."""
AUTO_GAIN: Final = 0.9
"""Blocks of that size are packed together if they take at most this share of what the frames that hold them take."""


class Reduces(Protocol):
    """What a sparse allreduce needs of a communicator."""

    world_size: int
    supports: npt.NDArray[np.int64]
    """Rows that this rank had so far, that some rank had, and of the whole arrays."""
    lanes: int
    """32-bit lanes in a frame."""

    def allreduce(self, array: Array, op: str = "sum", *, lanes: str = "int32") -> Array:
        """Combine arrays in place."""
        ...

    def allreduce_async(
        self, array: Array, op: str = "sum", *, lanes: str = "int32", saturate: bool = False, background: bool = True
    ) -> Handle:
        """Begin to combine arrays in place."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStep:
    """What is still under way, and what makes the result of it."""

    handle: Handle
    finish: Callable[[], Any]

    def result(self) -> Any:
        """Wait, and return the result; raises what the last step failed with."""
        try:
            self.handle.wait()
        except SumOverflow:
            self.finish()
            raise
        return self.finish()


def allreduce_sparse(
    comm: Reduces,
    indices: Array,
    values: Array,
    size: int,
    how: How,
    background: bool,
    *,
    keep: int | None = None,
    fault: str = "",
) -> LastStep:
    """See `CollectiveCalls.allreduce_sparse`; with a `fault` this rank only tells the others of it, and raises it."""
    size = max(size, 0)
    words = np.zeros(bitmap.words_for(size), np.uint64)
    fault = fault or _fault(indices, values, size, how)
    if not fault:
        indices, values = _sorted(indices, values)
        bitmap.set_bits(words, indices)
    union = unite(comm, words, size, fault)
    compacted = np.zeros((len(union), *values.shape[1:]), values.dtype)
    bitmap.place(union, indices, _as_rows(values), _as_rows(compacted))
    if keep is not None and keep < ROUGH_UP_TO * len(union) and values.dtype.kind not in "iu":
        rough = compacted.copy()
        comm.allreduce(rough, how.operator, lanes="int8")
        chosen = largest(rough, keep)
        union, compacted = union[chosen], compacted[chosen]
    handle = comm.allreduce_async(compacted, how.operator, lanes=how.lanes, background=background)

    def finish() -> SparseSum:
        chosen = slice(None) if keep is None else largest(compacted, keep)
        return SparseSum(indices=union[chosen], values=compacted[chosen], size=size)

    return LastStep(handle=handle, finish=finish)


def _as_rows(values: Array) -> Array:
    """View values as rows of unsigned integers of their size, of which kernels have few kinds."""
    width = int(np.prod(values.shape[1:]))
    return np.ascontiguousarray(values).reshape(len(values), width).view(f"u{values.dtype.itemsize}")


def allreduce_topk(
    comm: Reduces, array: Array, k: int, how: How, background: bool, *, keep: int | None = None, fault: str = ""
) -> LastStep:
    """See `CollectiveCalls.allreduce_topk`."""
    flat = array.reshape(-1)
    chosen = largest(flat, 0 if fault else k)
    step = allreduce_sparse(comm, chosen, flat[chosen], array.size, how, background, keep=keep, fault=fault)

    def finish() -> Array:
        total: SparseSum = step.finish()
        result = array.reshape(-1) if array.flags.c_contiguous else np.empty(array.size, array.dtype)
        result[:] = 0
        result[total.indices] = total.values
        if not np.may_share_memory(result, array):
            array[...] = result.reshape(array.shape)
        return array

    return LastStep(handle=step.handle, finish=finish)


def allreduce_blocks(comm: Reduces, array: Array, block: int | str, how: How, background: bool) -> LastStep:
    """Add arrays in place, of which only blocks of `block` values travel that are not zero on all ranks."""
    fault = _fault_of_block(block)
    size = AUTO_BLOCK if block == "auto" or fault else int(block)
    whole = array.reshape(-1) if array.flags.c_contiguous and array.flags.aligned else array.flatten()
    operation = Operation(kind="blocks", operator=how.operator, lanes=how.lanes, values=whole)
    blocks = -(-whole.size // size)
    words = np.zeros(bitmap.words_for(blocks), np.uint64)
    if not fault:
        bitmap.set_blocks(words, scan.address, operation.code, address_of(whole), whole.size, size)
    union = unite(comm, words, blocks, fault)
    per_frame = comm.lanes * LANE_BYTES * 8 // operation.format.bits
    if len(union) == blocks or (block == "auto" and not _gains(union, size, per_frame)):
        handle = _begin(comm, whole, how, background)
        return LastStep(handle=handle, finish=lambda: _written(whole, array))
    compacted = take_blocks(whole, size, union)

    def finish() -> Array:
        put_blocks(whole, size, union, compacted)
        return _written(whole, array)

    return LastStep(handle=_begin(comm, compacted, how, background), finish=finish)


def take_blocks(whole: Array, block: int, chosen: Indices) -> Array:
    """Return chosen blocks of a flat array as rows; the array's last one may have fewer values, and zeros then."""
    full = len(whole) // block
    inside = chosen[chosen < full]
    rows = np.zeros((len(chosen), block), whole.dtype)
    np.take(whole[: full * block].reshape(-1, block), inside, axis=0, out=rows[: len(inside)])
    if len(inside) < len(chosen):
        rows[-1, : len(whole) - full * block] = whole[full * block :]
    return rows


def put_blocks(whole: Array, block: int, chosen: Indices, rows: Array) -> None:
    """Put blocks back where `take_blocks` has them from."""
    full = len(whole) // block
    inside = chosen[chosen < full]
    whole[: full * block].reshape(-1, block)[inside] = rows[: len(inside)]
    if len(inside) < len(chosen):
        whole[full * block :] = rows[-1, : len(whole) - full * block]


def _begin(comm: Reduces, array: Array, how: How, background: bool) -> Handle:
    return comm.allreduce_async(array, how.operator, lanes=how.lanes, saturate=how.saturate, background=background)


def _gains(union: Indices, block: int, per_frame: int) -> bool:
    """Whether small blocks that are not empty, packed together, take clearly fewer frames than lying where they are."""
    frames = len(np.unique(union * block // per_frame))
    return len(union) * block <= AUTO_GAIN * frames * per_frame


def _written(whole: Array, array: Array) -> Array:
    if not np.may_share_memory(whole, array):
        array[...] = whole.reshape(array.shape)
    return array


def unite(comm: Reduces, words: Words, bits: int, fault: str) -> Indices:
    """Return the rows that are in any rank's bitmap, in order; raises UsageError if there is a fault on any.

    A rank that cannot go on takes part until here, so that the others hear of it.
    """
    own = bitmap.count(words)
    first = words if bits <= MAX_BITS_IN_ONE_STEP else _packed(words)
    first = np.append(first, np.uint64(bool(fault)))  # the others' rank hears of it
    comm.allreduce(first, "or")
    if fault:
        raise UsageError(fault)
    if first[-1]:
        raise UsageError("another rank gave what cannot be added; its own error says what")
    if bits <= MAX_BITS_IN_ONE_STEP:
        words = first[:-1]
    else:
        which = bitmap.members(first[:-1])
        masks = np.empty(len(which), np.uint8)
        bitmap.masks_of(words, which, masks)
        comm.allreduce(masks, "or")
        octets = np.empty(int(np.bitwise_count(masks).sum()), np.uint8)
        bitmap.take_octets(words, which, masks, octets)
        comm.allreduce(octets, "or")
        bitmap.put_octets(words, which, masks, octets)
    union = bitmap.members(words)
    comm.supports += np.array([own, len(union), bits])
    return np.arange(bits) if len(union) >= DENSE_FROM * bits else union


def _packed(words: Words) -> Words:
    """Return a bitmap of the words that are not zero."""
    packed = np.zeros(bitmap.words_for(len(words)), np.uint64)
    octets = np.packbits(words != 0, bitorder="little")
    packed.view(np.uint8)[: len(octets)] = octets
    return packed


def _fault(indices: Array, values: Array, size: int, how: How) -> str:
    """Say what is wrong with a rank's values, which the others cannot know."""
    if how.operator not in ("sum", "average"):
        return f"sparse arrays have a sum and an average, not op={how.operator!r}: absent rows are zero"
    try:
        check(values.dtype, how.operator, how.lanes)
    except (UsageError, UnsupportedDtype) as error:
        return str(error)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        return f"indices are one-dimensional integers, not {indices.dtype}{list(indices.shape)}"
    if values.ndim < 1 or len(values) != len(indices):
        return f"{len(indices)} indices have as many values, not {list(values.shape)}"
    if len(indices):
        least, most, _ = bitmap.examine(indices)
        if least < 0 or most >= size:
            return f"indices lie in 0 to {size - 1}, not {least} to {most}"
    return ""


def _fault_of_block(block: int | str) -> str:
    if isinstance(block, str):
        return "" if block == "auto" else f"a block is a number of values or 'auto', not {block!r}"
    return "" if block >= 1 else f"a block has at least one value, not {block}"


def _sorted(indices: Array, values: Array) -> tuple[Indices, Array]:
    """Return indices in rising order with their values, those of repeated ones added up."""
    indices = indices.astype(np.int64, copy=False)
    if not len(indices) or bitmap.examine(indices)[2]:
        return indices, values
    distinct, where = np.unique(indices, return_inverse=True)
    added = np.zeros((len(distinct), *values.shape[1:]), values.dtype)
    np.add.at(added, where, values)
    return distinct, added


def largest(values: Array, k: int) -> Indices:
    """Return the numbers, in order, of the `k` values of largest magnitude; of equal ones the first, NaN before all."""
    if k <= 0 or k >= values.size:
        return np.arange(max(0, min(k, values.size)))
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    chosen = np.empty(k, np.int64)
    bitmap.select(bits, k, np.empty(1 << 16, np.int64), chosen)
    return chosen
