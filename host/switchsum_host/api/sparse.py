"""Sparse allreduces: how many rows each rank has decides in which way they are added (`ways.py`).

In a first step ranks tell each other how many rows they have, and a sketch of which ones.  Then they go one of these
ways:

- All have the same rows: their values are added at once, in an ordinary sum.
- Few rows in all: each rank gets the places and values of all others, and adds them (TopkA, and SparCML's allgather).
- Otherwise ranks agree on the union of their rows, and add the rows of the union side by side, in an ordinary sum.
  They find the union by getting each other's coded places, or by an allreduce with "or" of one bit for each row, its
  blocks of zeros skipped as ever.  A block may hold rows from anywhere (OmniReduce's block fusion, SIGCOMM 2021).
- If nearly every row is in the union, all rows are added, empty or not, because moving them would cost more (SparCML's
  switch, SC 2019).

Each of these functions does all but the last step, and returns that one under way: what comes after it in the same job
may begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import SumOverflow, UnsupportedDtype, UsageError
from switchsum_protocol.frame import LANE_BYTES
from switchsum_switch.kernels.loading import address_of

from ..engine.kernels import scan
from ..engine.operation import SKIP_ZEROS, Operation, check
from . import bitmap, dense, owners, scaled
from .bitmap import Indices, Words
from .collectives import Options, Way, check_written, is_integer, is_masked, native_values, returned
from .dense import Own, begin_sum
from .expected import NOTHING, Dense, Expected, first_pairs
from .pairs import Pairs
from .rough import rough_sums
from .steps import LastStep
from .supports import Agreed, Begins, Support, agree, may_pair, unite
from .ways import ROUGH_UP_TO, is_dense

Array = npt.NDArray[Any]
P = ParamSpec("P")
Made = TypeVar("Made")

AUTO_BLOCK: Final = 32
"""Values in the blocks that `block="auto"` looks at: larger ones would take more bytes, smaller ones little fewer."""
AUTO_GAIN: Final = 0.9
"""Blocks of that size are packed together if they take at most this share of what the frames that hold them take."""

MOST_ROWS: Final = 1 << 36
"""Most rows of a sparse array: their bitmap takes 8 GiB."""
EXACT_IN_FLOAT32: Final = 2
"""Bytes of the integers that float32 holds all of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseSum:
    """The sum of sparse arrays, the same bits on every rank.  `allreduce_sparse` returns it."""

    indices: Indices
    """Rows that some rank has, in order, `[m]`."""
    values: Array
    """Their sums, `[m, ...]`."""
    size: int
    """Number of rows."""

    def to_dense(self) -> Array:
        """Return the whole array.

        Returns:
            An array `[size, ...]`, zero in rows that no rank has.

        """
        dense = np.zeros((self.size, *self.values.shape[1:]), self.values.dtype)
        dense[self.indices] = self.values
        return dense


def check_blocks(array: Array, block: int | str, how: Options) -> None:
    """Refuse what `allreduce` does, and what small blocks cannot have; raises UsageError or UnsupportedDtype."""
    if isinstance(block, str) and block != "auto":
        raise UsageError(f"a block is a number of values or 'auto', not {block!r}")
    if not isinstance(block, str) and not (is_integer(block) and 1 <= block <= MOST_ROWS):
        raise UsageError(f"a block has at least one value, not {block!r}")
    check_written("allreduce", array)
    native_values(array, how)
    if how.operator not in SKIP_ZEROS:
        *others, last = map(repr, SKIP_ZEROS)  # quoted: one of them is the word "or"
        raise UsageError(
            f"blocks of zeros can be skipped only if op is {', '.join(others)} or {last}, not {how.operator!r}"
        )
    if array.dtype == np.float64:
        raise UsageError("small blocks of float64 cannot be narrowed: use array.astype(np.float32)")


def given(indices: Array, values: Array, size: int) -> tuple[Array, Array]:
    """Return a caller's indices and values as arrays; raises UsageError for what is no number of rows."""
    if not is_integer(size) or size > MOST_ROWS:
        raise UsageError(f"size must be a number of rows, at most {MOST_ROWS}, not {size!r}")
    if is_masked(indices) or is_masked(values):
        raise UsageError("allreduce_sparse would ignore the mask of an array: pass array.compressed()")
    return np.asarray(indices), np.asarray(values)


def fault_of_keep(keep: int | None, shape: tuple[int, ...]) -> str:
    """Say what is wrong with the number of sums to keep, if anything is."""
    if keep is None or (is_integer(keep) and keep >= 0 and len(shape) == 1):
        return ""
    return f"keep is a number of single values, not {keep!r} of {list(shape)}"


def largest_wanted(array: Array, k: int | None, density: float | None) -> tuple[int, str]:
    """Return how many of a rank's values are to be added, and what is wrong with what the caller asks for."""
    if (k is None) == (density is None):
        return 0, "allreduce_topk takes either k or density"
    if density is not None:
        if not isinstance(density, float | int | np.floating) or not 0 < density <= 1:
            return 0, f"density must be above 0 and at most 1, not {density!r}"
        return max(1, round(array.size * density)), ""
    if k is None or not is_integer(k) or k < 0:
        return 0, f"k is an integer, not negative, and not {k!r}"
    return k, ""


def allreduce_sparse(
    comm: Begins,
    indices: Array,
    values: Array,
    size: int,
    how: Options,
    background: bool,
    *,
    keep: int | None = None,
    fault: str = "",
    name: str = "allreduce_sparse",
    call: str = "",
) -> LastStep:
    """See `Communicator.allreduce_sparse`; with a `fault` this rank only tells the others of it, and raises it.

    `name` and `call` describe the call of which this one is a part: ranks must agree in them.
    """
    size = max(size, 0)
    indices, values = _native(indices), _native(values)
    indices, values, fault, overflow = _checked(indices, values, size, fault or _fault_of_shapes(indices, values, how))
    called = call or _called(name, how, values.dtype, ("rows", *values.shape[1:]), size=size, keep=keep)
    key = (name, size, how.label)
    expected = comm.expected.get(key, first_pairs(size, comm.world_size))
    if expected.sum_at_once is not None:
        own = Own(
            called=called,
            present=len(indices),
            rows=size,
            values=lambda room: _spread(indices, values, size, room),
            seems_dense=is_dense(len(indices), size),
            fault=fault,
            overflow=overflow,
        )
        begun = dense.begin(comm, key, expected.sum_at_once, own, background, lambda sums: _of_all(sums, size))
        if begun is not None:
            return begun
        expected = first_pairs(size, comm.world_size)
    support = Support(size, indices=indices)
    width = math.prod(values.shape[1:])
    is_rough = keep is not None and values.dtype.kind not in "iu"
    is_paired = not fault and may_pair(values.dtype, how)
    rows = values.reshape(len(values), width) if is_paired else np.zeros((0, 1), np.float32)
    has_scales = is_paired and values.dtype == np.float32
    pairs = Pairs(comm, support, rows, how, called)
    scales = values if has_scales else None
    agreed = _first_step(
        comm, pairs, support, called, fault, expected, is_paired=is_paired, values=scales, overflow=overflow
    )

    def chosen(union: Indices, sums: Array) -> SparseSum:
        kept = slice(None) if keep is None else largest(sums, keep)
        return SparseSum(indices=union[kept], values=sums[kept], size=size)

    def added(union: Indices, sums: Array) -> SparseSum:
        return chosen(union, sums.reshape(len(union), *values.shape[1:]))

    sent = pairs.sent(agreed.each) if is_paired else ()
    whole = (
        None if keep is not None else Dense(called=called, dtype=values.dtype, shape=(size, *values.shape[1:]), how=how)
    )
    way = agreed.way(comm, key, values.dtype, how, width, keep=keep if is_rough else None, sent=sent, dense=whole)
    if way.way is Way.PAIRS:
        return pairs.begin(agreed.each, background, added)
    union = unite(comm, support, agreed, way, called)
    compacted = np.zeros((len(union), *values.shape[1:]), values.dtype)
    bitmap.place(union, indices, _as_rows(values), _as_rows(compacted))
    order = _order_of_rows(comm, support.words, union, compacted, agreed.each, how) if keep is None else None
    if order is not None:
        compacted = compacted[order]
    if keep is not None and is_rough and keep < ROUGH_UP_TO * len(union):
        large = largest(rough_sums(comm, compacted), keep)
        union, compacted = union[large], compacted[large]
    elif agreed.exponents is not None and way.way is Way.SAME:
        divisor = comm.world_size if how.operator == "average" else 1
        known = agreed.exponents
        step = scaled.begin(comm, compacted, known, divisor, background, lambda sums: chosen(union, sums))
        pairs.end_early()
        return step
    handle = begin_sum(comm, compacted, how, background)
    pairs.end_early()

    def finish() -> SparseSum:
        if order is not None:
            sums = np.empty_like(compacted)
            sums[order] = compacted
            return SparseSum(indices=union, values=sums, size=size)
        return chosen(union, compacted)

    return LastStep(handle=handle, finish=finish)


def _first_step(
    comm: Begins,
    pairs: Pairs,
    support: Support,
    called: str,
    fault: str,
    expected: Expected,
    *,
    is_paired: bool,
    values: Array | None = None,
    overflow: bool = False,
) -> Agreed:
    """Do the first step, with what is expected to go along; raises what `agree` does.

    What goes along may still be under way: if it has not what is wanted, the next step need not wait for it.
    """
    try:
        agreed = agree(
            comm,
            support,
            called,
            fault,
            expected=expected,
            values=values,
            overflow=overflow,
            meanwhile=lambda: pairs.begin_early(expected, is_empty=not is_paired),
        )
    except (UsageError, SumOverflow):
        pairs.end_early()
        raise
    return agreed


def _order_of_rows(
    comm: Begins, own: Words, union: Indices, compacted: Array, counts: Sequence[int], how: Options
) -> Indices | None:
    """Return the order by owners in which rows of many values travel, or None where it does not pay."""
    width = compacted.size // max(1, len(union))
    lane_format = Operation.of(compacted, "rows", operator=how.operator, lanes=how.lanes).format
    per_frame = comm.ranks.lanes_per_frame * LANE_BYTES * 8 // lane_format.bits
    if width >= per_frame or not owners.pays(counts, len(union), width * lane_format.value_bits):
        return None
    return _by_owners(comm, own, union, round(per_frame / width))


def _of_all(sums: Array, size: int) -> SparseSum:
    return SparseSum(indices=np.arange(size), values=sums, size=size)


def _spread(indices: Indices, values: Array, size: int, room: Array | None) -> Array:
    """Return an array of all rows, zero where there are no values: `room`, which is zero, or a new one.

    Indices are in order, and each is there once.
    """
    if room is None and len(indices) == size:
        return values.copy()
    whole = np.zeros((size, *values.shape[1:]), values.dtype) if room is None else room
    if len(indices) == size:
        whole[:] = values
    else:
        whole[indices] = values
    return whole


def _placed(flat: Array, room: Array | None) -> Array:
    """Return a whole array itself, or what is in it in another one."""
    if room is None:
        return flat
    room[:] = flat
    return room


def _as_rows(values: Array) -> Array:
    """View values as rows of unsigned integers of their size, of which kernels have few kinds."""
    width = math.prod(values.shape[1:])
    return np.ascontiguousarray(values).reshape(len(values), width).view(f"u{values.dtype.itemsize}")


def allreduce_topk(
    comm: Begins,
    array: Array,
    k: int,
    how: Options,
    background: bool,
    *,
    keep: int | None = None,
    fault: str = "",
) -> LastStep:
    """See `Communicator.allreduce_topk`."""
    flat = _native(array.view(np.ndarray).reshape(-1))
    fault = fault or _fault_of_kind(array.dtype, how)  # before values are compared that have no order
    call = _called("allreduce_topk", how, array.dtype, array.shape, keep=keep)
    key = ("allreduce_topk", array.size, how.label)
    known = comm.expected.get(key, NOTHING).sum_at_once
    if known is not None and known.called == call and not fault and k >= array.size:
        own = Own(
            called=call,
            present=array.size,
            rows=array.size,
            values=lambda room: _placed(flat, room),
            seems_dense=True,
        )
        begun = dense.begin(comm, key, known, own, background, lambda sums: returned(sums, array))
        if begun is not None:
            return begun
    chosen = largest(flat, 0 if fault else k)
    step = allreduce_sparse(
        comm,
        chosen,
        flat[chosen],
        array.size,
        how,
        background,
        keep=keep,
        fault=fault,
        name="allreduce_topk",
        call=call,
    )

    def finish() -> Array:
        total: SparseSum = step.finish()
        plain = array.view(np.ndarray)
        result = plain.reshape(-1) if plain.flags.c_contiguous else np.empty(array.size, array.dtype)
        result[:] = 0
        result[total.indices] = total.values
        return returned(result, array)

    return LastStep(handle=step.handle, finish=finish)


def allreduce_blocks(comm: Begins, array: Array, block: int | str, how: Options, background: bool) -> LastStep:
    """Add arrays in place, of which only blocks of `block` values travel that are not zero on all ranks."""
    size = AUTO_BLOCK if block == "auto" else int(block)
    plain = array.view(np.ndarray)
    flags = plain.flags
    whole = plain.reshape(-1) if flags.c_contiguous and flags.aligned and plain.dtype.isnative else plain.flatten()
    whole = _native(whole)
    operation = Operation.of(whole, "blocks", operator=how.operator, lanes=how.lanes, shape=())
    blocks = -(-whole.size // size)
    called = _called("allreduce", how, array.dtype, array.shape, block=block)
    key = ("allreduce", whole.size, how.label)
    expected = comm.expected.get(key, NOTHING)
    if (known := expected.sum_at_once) is not None:
        seems_dense = known.called == called and dense.seems_dense(whole, size)
        own = Own(
            called=called,
            present=blocks,
            rows=blocks,
            values=lambda room: _placed(whole, room),
            seems_dense=seems_dense,
        )
        begun = dense.begin(comm, key, known, own, background, lambda sums: returned(sums, array))
        if begun is not None:
            return begun
        expected = NOTHING
    words = np.zeros(bitmap.words_for(blocks), np.uint64)
    bitmap.set_blocks(words, scan.address, operation.code, address_of(whole), whole.size, size)
    support = Support(blocks, words=words)
    is_paired = may_pair(whole.dtype, how)
    rows = (
        take_blocks(whole, size, support.indices) if is_paired and support.is_few else np.zeros((0, size), np.float32)
    )
    pairs = Pairs(comm, support, rows, how, called)
    agreed = _first_step(comm, pairs, support, called, "", expected, is_paired=is_paired)
    sent = pairs.sent(agreed.each) if is_paired else ()
    all_rows = Dense(called=called, dtype=whole.dtype, shape=whole.shape, how=how)
    way = agreed.way(comm, key, whole.dtype, how, size, sent=sent, dense=all_rows)
    if way.way is Way.PAIRS:

        def put(union: Indices, sums: Array) -> Array:
            put_blocks(whole, size, union, sums)
            return returned(whole, array)

        return pairs.begin(agreed.each, background, put)
    union = unite(comm, support, agreed, way, called)
    per_frame = comm.ranks.lanes_per_frame * LANE_BYTES * 8 // operation.format.bits
    own_bits = size * operation.format.value_bits
    if block != "auto" and size < per_frame and owners.pays(agreed.each, len(union), own_bits):
        is_short = int(union[-1]) == whole.size // size
        union = union[_by_owners(comm, words, union, round(per_frame / size), but_last=is_short)]
    elif len(union) == blocks or (block == "auto" and not _gains(union, size, per_frame)):
        handle = begin_sum(comm, whole, how, background)
        pairs.end_early()
        return LastStep(handle=handle, finish=lambda: returned(whole, array))
    compacted = take_blocks(whole, size, union)
    handle = begin_sum(comm, compacted, how, background)
    pairs.end_early()

    def finish() -> Array:
        put_blocks(whole, size, union, compacted)
        return returned(whole, array)

    return LastStep(handle=handle, finish=finish)


def _by_owners(comm: Begins, own: Words, union: Indices, together: int, *, but_last: bool = False) -> Indices:
    """Return an order of the union in which `together` rows, a frame, have few owners; the last may have to stay."""
    bits = owners.table(comm.ranks.rank, comm.ranks.world_size, own, union)
    comm.allreduce(bits, "or")
    sets = owners.sets_of(bits, len(union))[: len(union) - but_last]
    order = owners.order(sets, comm.ranks.world_size, max(2, together))
    return np.append(order, np.arange(len(sets), len(union)))


def take_blocks(whole: Array, block: int, chosen: Indices) -> Array:
    """Return chosen blocks of a flat array as rows; the array's last one may have fewer values, and zeros then."""
    full = len(whole) // block
    inside = chosen[chosen < full]
    rows = np.zeros((len(chosen), block), whole.dtype)
    np.take(whole[: full * block].reshape(-1, block), inside, axis=0, out=rows[: len(inside)], mode="clip")
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


def _gains(union: Indices, block: int, per_frame: int) -> bool:
    """Whether small blocks that are not empty, packed together, take clearly fewer frames than lying where they are."""
    frames = len(np.unique(union * block // per_frame))
    return len(union) * block <= AUTO_GAIN * frames * per_frame


def _native(array: Array) -> Array:
    """Return an array in the machine's byte order, the only one that kernels know: itself, or a copy."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _remembered(function: Callable[P, Made]) -> Callable[P, Made]:
    """Keep what a function has made of the latest arguments: to describe a call takes as long as to add few values."""
    known = lru_cache(typed=True)(function)

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> Made:
        try:
            return known(*arguments, **options)  # type: ignore[arg-type] # what has no hash is raised
        except TypeError:  # an argument that is none, and has no hash
            return function(*arguments, **options)

    return call


@_remembered
def _called(call: str, how: Options, dtype: np.dtype[Any], shape: tuple[object, ...], **facts: object) -> str:
    """Describe a call: what all ranks must agree in, and what errors say that a rank has issued."""
    lanes = () if how.lanes == "int32" else (f"{how.lanes} lanes",)
    options = ", ".join(map(str, (how.operator, *lanes, *how.switches)))
    given = "".join(f", {name}={value!r}" for name, value in facts.items() if value is not None)
    label = f"{how.label}: " if how.label else ""
    return f"{label}{call} ({options}) of {dtype.name}[{', '.join(map(str, shape))}]{given}"


@_remembered
def _fault_of_kind(dtype: np.dtype[Any], how: Options) -> str:
    if how.operator not in ("sum", "average"):
        return f"sparse arrays have a sum and an average, not op={how.operator!r}: absent rows are zero"
    try:
        check(dtype, how.operator, how.lanes)
    except (UsageError, UnsupportedDtype) as error:
        return str(error)
    return ""


def _fault_of_shapes(indices: Array, values: Array, how: Options) -> str:
    """Say what is wrong with dtypes and shapes of a rank's values, which the others cannot know."""
    if fault := _fault_of_kind(values.dtype, how):
        return fault
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        return f"indices are one-dimensional integers, not {indices.dtype}{list(indices.shape)}"
    if values.ndim < 1 or len(values) != len(indices):
        return f"{len(indices)} indices have as many values, not {list(values.shape)}"
    return ""


def _checked(indices: Array, values: Array, size: int, fault: str) -> tuple[Indices, Array, str, bool]:
    """Return indices in rising order with their values, what is wrong with them, and if a sum of some does not fit."""
    rises = True
    if not fault and len(indices):
        least, most, rises = bitmap.examine(indices)
        if least < 0 or most >= size:
            fault = f"indices lie in 0 to {size - 1}, not {least} to {most}"
    if fault:
        return np.zeros(0, np.int64), values, fault, False
    if rises:
        return indices.astype(np.int64, copy=False), values, "", False
    indices, values, overflow = _sorted(indices, values)
    return indices, values, "", overflow


def _sorted(indices: Array, values: Array) -> tuple[Indices, Array, bool]:
    """Return indices in rising order with their values, those of repeated ones added up, and if a sum does not fit."""
    indices = indices.astype(np.int64, copy=False)
    order = np.argsort(indices, kind="stable")
    distinct, starts = np.unique(indices[order], return_index=True)
    values = values[order]
    if len(distinct) == len(indices):
        return distinct, values, False
    if values.dtype.kind not in "iu":
        with np.errstate(over="ignore", invalid="ignore"):
            sums = np.add.reduceat(values.astype(np.float64), starts, axis=0)
            return distinct, sums.astype(values.dtype), False
    # Halves of 32 bits, of which 2**31 add up without overflow in 64.
    bits = np.int64(values.dtype.itemsize * 8)
    wide = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64)
    low = np.add.reduceat((wide & wide.dtype.type(0xFFFF_FFFF)).astype(np.int64), starts, axis=0)
    high = np.add.reduceat((wide >> wide.dtype.type(32)).astype(np.int64), starts, axis=0) + (low >> 32)
    limits = np.iinfo(values.dtype)
    low &= 0xFFFF_FFFF
    fits = (high >= limits.min >> 32) & (high <= limits.max >> 32)
    if bits < 64:
        total = (high << 32) + low
        fits &= (total >= limits.min) & (total <= limits.max)
    total = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    return distinct, total.astype(values.dtype), not bool(fits.all())


def largest(values: Array, k: int) -> Indices:
    """Return the numbers, in order, of the `k` values of largest magnitude; of equal ones the first, NaN before all."""
    if k <= 0 or k >= values.size:
        return np.arange(max(0, min(k, values.size)))
    if values.dtype.kind in "iu" and values.dtype.itemsize > EXACT_IN_FLOAT32:
        return _largest_integers(values, k)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    chosen = np.empty(k, np.int64)
    bitmap.select(bits, k, np.empty(1 << 16, np.int64), chosen)
    return chosen


def _largest_integers(values: Array, k: int) -> Indices:
    """Do so with integers that float32 would round."""
    magnitudes = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    if values.dtype.kind == "i":
        magnitudes = np.where(values < 0, np.uint64(0) - magnitudes, magnitudes)
    last = np.partition(magnitudes, len(magnitudes) - k)[len(magnitudes) - k]
    larger = np.flatnonzero(magnitudes > last)
    equal = np.flatnonzero(magnitudes == last)[: k - len(larger)]
    return np.sort(np.concatenate([larger, equal]))
