"""Supports of sparse arrays, which rows a rank has: what ranks tell each other first, and the union of all.

The first step is an allreduce with "or" of a few words: how many rows each rank has, a digest and a sketch of which
ones.  A bitmap of few rows takes the sketch's place, and one of up to 8 kB comes along where all ranks have many rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, Final, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import OperationMismatch, SumOverflow, SwitchsumError, UsageError
from switchsum_protocol.frame import LANE_BYTES, LaneFormat

from ..engine.operation import Operation
from . import bitmap, each, places, ragged, scaled
from .bitmap import Indices, Words
from .collectives import Array, Collective, Options, Way
from .expected import Dense, Expected, Key, note
from .operation_queue import Handle
from .ragged import Gathering
from .ways import DENSE_FROM, Cost, Facts, choose, has_few, is_dense

MAX_BITS_IN_FIRST_STEP: Final = 1 << 16
"""Bitmaps of at most this many bits, 8 kB, travel in the first step if every rank has many rows.

Else a round trip more might be a fiftieth of the time in which these rows are added.  If ranks have few rows, this
costs them a header for each of the bitmap's frames.
"""
_FLAG_BITS: Final = 2
_WORD: Final = (1 << bitmap.WORD_BITS) - 1
FAULT: Final = 1
OVERFLOW: Final = 2
"""Flags that ranks exchange with their bitmaps: a fault, an overflow."""


class Begins(ragged.Begins, Protocol):
    """What these steps need of a communicator."""

    rank: int
    world_size: int
    supports: npt.NDArray[np.int64]
    ways: npt.NDArray[np.int64]
    expected: dict[Key, Expected]

    @property
    def queue(self) -> each.Queues:
        """What is in flight."""
        ...

    def allreduce(self, array: Array, op: str = "sum", *, label: str = "") -> Array:
        """Combine arrays in place."""
        ...

    def allreduce_async(
        self,
        array: Array,
        op: str = "sum",
        *,
        lanes: str = "int32",
        saturate: bool = False,
        label: str = "",
        background: bool = True,
    ) -> Handle:
        """Begin to combine arrays in place."""
        ...

    def break_off(self, error: SwitchsumError) -> NoReturn:
        """Break the communicator, and raise why."""
        ...


class Support:
    """The rows that a rank has, as numbers and as a bitmap: of one, the other is made when it is needed."""

    def __init__(self, rows: int, *, indices: Indices | None = None, words: Words | None = None) -> None:
        """Take numbers in rising order, or a bitmap, of an array of so many rows."""
        self.rows = rows
        if indices is not None:
            self.indices = np.ascontiguousarray(indices, np.int64)
        if words is not None:
            self.words = words
        self.count = len(indices) if indices is not None else bitmap.count(self.words)

    @cached_property
    def indices(self) -> Indices:
        """Numbers of the rows, in order."""
        return bitmap.members(self.words)

    @cached_property
    def words(self) -> Words:
        """A bit for each row."""
        words = np.zeros(bitmap.words_for(self.rows), np.uint64)
        bitmap.set_bits(words, self.indices)
        return words

    @property
    def is_few(self) -> bool:
        """Whether it has so few rows that their places may be coded."""
        return has_few(self.count, self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What all ranks know of each other's rows after the first step."""

    each: Sequence[int]
    """How many rows each rank has."""
    rows: int
    union: int
    """About how many rows some rank has."""
    occupied: int
    """Rows in the stretches of the array in which some rank has a row, as far as that is known."""
    is_same: bool
    """Whether all ranks have the same rows."""
    words: Words | None
    """A bit for each row that some rank has, if these came in the first step."""
    exponents: Sequence[int] | None = None
    """Exponents of the values in each frame, if all ranks have the same rows and could tell each other."""

    def way(
        self,
        comm: Begins,
        key: Key,
        dtype: np.dtype[Any],
        how: Options,
        width: int,
        *,
        keep: int | None = None,
        sent: Sequence[int] = (),
        dense: Dense | None = None,
    ) -> Cost:
        """Choose the way of a sum of rows of so many values, count it, and remember it for the next such call.

        `dense` is what the call comes to if all rows are added.
        """
        lane_format = _format_of(dtype, how.operator, how.lanes)
        facts = Facts(
            rows=self.rows,
            counts=self.each,
            union=self.union,
            occupied=self.occupied,
            is_same=self.is_same,
            pair_bits=8 * dtype.itemsize * width if may_pair(dtype, how) else 0,
            sum_bits=lane_format.bits * width,
            frame_bits=8 * LANE_BYTES * comm.ranks.lanes_per_frame,
            keep=keep,
            is_known=self.words is not None,
            sent=sent,
            has_exponents=self.exponents is not None,
        )
        note(comm.expected, key, facts, dense)
        way = choose(facts)
        comm.ways[way.way] += 1
        return way


@lru_cache
def _format_of(dtype: np.dtype[Any], operator: str, lanes: str) -> LaneFormat:
    """Return the format of the lanes in which values travel."""
    return Operation.of(np.zeros(0, dtype), "rows", operator=operator, lanes=lanes).format


def may_pair(dtype: np.dtype[Any], how: Options) -> bool:
    """Tell whether ranks may add values themselves: floats that are asked for in no other lanes than those of 32 bits.

    Sums of integers may overflow, as lanes do, and other lanes promise other things.
    """
    return how.lanes == "int32" and how.operator in ("sum", "average") and dtype.kind not in "iub"


def agree(
    comm: Begins,
    support: Support,
    called: str,
    fault: str,
    *,
    expected: Expected,
    values: Array | None = None,
    overflow: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> Agreed:
    """Tell all ranks of each other's rows, in one step, while what `meanwhile` begins is under way.

    Exponents of `values`, those of this rank's rows, go along where a frame has room for them.

    A rank that cannot go on takes part until here, so that the others hear of it. Raises UsageError if there is a
    fault on any rank, SumOverflow if the values of one rank alone do not fit, and OperationMismatch if `called`
    differs.
    """
    rows = support.rows
    is_small = rows <= places.SKETCH_WORDS * bitmap.WORD_BITS
    lanes = comm.ranks.lanes_per_frame
    is_sketched = not (is_small or expected.has_words)  # a bit for each row says more
    digest = np.zeros(1 if is_sketched else 0, np.uint64)
    sketch = np.zeros(places.SKETCH_WORDS if is_small or is_sketched else 0, np.uint64)
    whole = np.zeros(0, np.uint64)
    if is_small:
        sketch[: bitmap.words_for(rows)] = support.words
    elif not is_sketched or rows <= MAX_BITS_IN_FIRST_STEP:
        has_them = expected.has_words or not (support.is_few or is_dense(support.count, rows))
        whole = support.words if has_them else np.zeros(bitmap.words_for(rows), np.uint64)
    stretch = places.stretch_of(rows, 8 * LANE_BYTES * lanes)
    stretches = np.zeros(places.STRETCH_WORDS if is_sketched else 0, np.uint64)
    if is_sketched and support.is_few:
        places.describe(support.indices, digest, sketch, stretches, stretch)
    counts = _counts_told(comm.ranks.rank, comm.ranks.world_size, support.count, rows)
    parts = [_facts(called, fault, overflow), digest, ~digest, counts, sketch, stretches, whole]
    free = scaled.frames_behind(sum(map(len, parts)), lanes)
    parts.append(scaled.describe(np.zeros(0) if values is None else values, free, lanes))
    first = np.concatenate(parts)
    operation = comm.ranks.operation(
        ("supports", called, first.size),
        lambda: Operation.of(first, "supports", operator="or", words=called),
    )
    handle = comm.start(Collective(operation, first))
    meanwhile()
    handle.wait()
    ends = [*accumulate(map(len, parts))]
    facts, digest, other, *rest = (first[start:end] for start, end in zip([0, *ends], ends, strict=False))
    flags, agreed, others = int(facts[0]) & (FAULT | OVERFLOW), int(facts[0]) >> _FLAG_BITS, int(facts[1]) >> _FLAG_BITS
    if not fault and not flags & FAULT and agreed & others:
        comm.break_off(OperationMismatch(f"another rank issued another operation than this one's {called}", called))
    raise_faults(flags, fault, called)
    numbers = _counts_heard(rest[0], comm.ranks.world_size, rows)
    is_equal = not any((digest & other).tolist())
    known = _understood(rows, numbers, rest[1:], stretch, is_equal=is_equal, has_words=expected.has_words)
    if known.is_same and values is not None:
        return replace(known, exponents=scaled.exponents(rest[-1], values.size, lanes))
    return known


def raise_faults(flags: int, fault: str, called: str) -> None:
    """Raise UsageError for the fault of this rank or another one, and SumOverflow if some rank's values do not fit."""
    if fault:
        raise UsageError(fault)
    if flags & FAULT:
        raise UsageError("another rank gave arguments that cannot be added: see that rank's error")
    if flags & OVERFLOW:
        raise SumOverflow(f"on some rank, the sum of values of a repeated index does not fit its dtype in {called}")


def _understood(
    rows: int, numbers: Sequence[int], parts: Sequence[Words], stretch: int, *, is_equal: bool, has_words: bool
) -> Agreed:
    """Return what counts, sketch, stretches and bitmap of all ranks say; `is_equal`: their digests are the same."""
    sketch, stretches, whole, _ = parts
    is_small = rows <= places.SKETCH_WORDS * bitmap.WORD_BITS
    are_few = [has_few(count, rows) for count in numbers]
    are_dense = [is_dense(count, rows) for count in numbers]
    words: Words | None = None
    if is_small:
        words = sketch[: bitmap.words_for(rows)]
    elif len(whole) and (has_words or not any(are_few + are_dense)):
        words = whole
    union = max(numbers)
    if words is not None:
        union = bitmap.count(words)
    elif all(are_few):
        union = min(max(union, places.estimate(sketch)), sum(numbers))
    is_described = words is None and all(are_few) and is_equal
    is_same = min(numbers) == max(numbers) and (is_described or (words is not None and union == numbers[0]))
    occupied = places.occupied(stretches, rows, stretch) if words is None and all(are_few) else rows
    return Agreed(each=numbers, rows=rows, union=union, occupied=occupied, is_same=is_same, words=words)


def unite(comm: Begins, support: Support, agreed: Agreed, way: Cost, called: str) -> Indices:
    """Return the rows that some rank has, in order, found in the way that was chosen; all rows if nearly all are."""
    rows = support.rows
    if way.way is Way.ALL:
        union = np.arange(rows)
    elif way.way is Way.SAME:
        union = support.indices.copy()  # the caller's, who gets them back
    elif agreed.words is not None:
        union = bitmap.members(agreed.words)
    elif way.way is Way.PLACES:
        sizes = [places.octets_for(count, rows) for count in agreed.each]
        own = places.code(support.indices, rows).view(np.uint8)
        gathering = Gathering("places", own, sizes, comm.ranks, label="", words=f"{called}, places")
        comm.start(gathering.collective, stays=True).wait()
        words = np.zeros(bitmap.words_for(rows), np.uint64)
        for rank, count in enumerate(agreed.each):
            bitmap.set_bits(words, places.decode(gathering.part(rank).view(np.uint64), count, rows))
        union = bitmap.members(words)
    else:
        union = bitmap.members(_united(comm, support.words, way.levels, f"{called}, bitmaps"))
    comm.supports += np.array([support.count, len(union), rows])
    return np.arange(rows) if len(union) >= DENSE_FROM * rows else union


def _united(comm: Begins, own: Words, levels: int, called: str) -> Words:
    """Return the union of all ranks' bitmaps, which travel in one to three steps."""
    words = own.copy()
    if levels == 1:
        comm.allreduce(words, "or", label=called)
        return words
    which: Indices = np.arange(len(words))
    if levels > 2:
        some = _packed(words)
        comm.allreduce(some, "or", label=called)
        which = bitmap.members(some)
    masks = np.empty(len(which), np.uint8)
    bitmap.masks_of(words, which, masks)
    comm.allreduce(masks, "or", label=called)
    octets = np.empty(int(np.bitwise_count(masks).sum()), np.uint8)
    bitmap.take_octets(words, which, masks, octets)
    comm.allreduce(octets, "or", label=called)
    bitmap.put_octets(words, which, masks, octets)
    return words


def _facts(called: str, fault: str, overflow: bool) -> Words:
    """Return two words that ranks tell each other first.

    The digest of what they must agree in travels with its complement: unless all are the same, united digests and
    united complements have bits in common.  A rank with a fault has nothing to agree in.  The lowest bits of the first
    word are flags.
    """
    digest = _digest(called)
    both = (0, 0) if fault else (digest << _FLAG_BITS, ~digest << _FLAG_BITS & _WORD)
    return np.array([both[0] | FAULT * bool(fault) | OVERFLOW * overflow, both[1]], np.uint64)


def count_words(rows: int, ranks: int) -> int:
    """Return how many words have room for each rank's number of rows."""
    return bitmap.words_for(ranks * rows.bit_length())


def _counts_told(rank: int, ranks: int, own: int, rows: int) -> Words:
    """Return how many rows this rank has, in bits of its own."""
    return np.frombuffer((own << rank * rows.bit_length()).to_bytes(8 * count_words(rows, ranks), "little"), "<u8")


def _counts_heard(words: Words, ranks: int, rows: int) -> Sequence[int]:
    """Return how many rows each rank has."""
    told, bits = int.from_bytes(words.astype("<u8").tobytes(), "little"), rows.bit_length()
    return [told >> rank * bits & ((1 << bits) - 1) for rank in range(ranks)]


@lru_cache
def _digest(called: str) -> int:
    return int.from_bytes(hashlib.blake2b(called.encode(), digest_size=8).digest()) >> _FLAG_BITS


def _packed(words: Words) -> Words:
    """Return a bitmap of the words that are not zero."""
    packed = np.zeros(bitmap.words_for(len(words)), np.uint64)
    octets = np.packbits(words != 0, bitorder="little")
    packed.view(np.uint8)[: len(octets)] = octets
    return packed
