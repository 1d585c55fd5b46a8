"""All values, several to a 32-bit word, in steps of their own small block: between lanes of 16 and of 8 bits.

The switch adds 32-bit words, and a word need not hold one number: digits to a base of which none can overflow add up
side by side.  Three to a word have 812 steps either way for the sum of all ranks, where a lane of 8 bits has 127; and a
block of 32 values has a scale of its own, the largest magnitude that any rank has in it, rather than the hundreds of
values that share a frame.  The scales are agreed on first, an allreduce of 16 bits for each block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import UsageError
from switchsum.protocol.lanes import GOLDEN, mixed

from .base import Begun, Communicates, Compressor, CompressorState, Exchanged, Floats, Part, Steps, flat, name_of

Words = npt.NDArray[np.int32]

WORD_BITS: Final = 32
LEAST_STEPS: Final = 3
"""Fewer either way are refused: int8 lanes are, too."""
CHUNK_VALUES: Final = 1 << 16
"""So many are packed at a time: what is in between stays in the processor's cache, which takes a third of the time."""
_INFINITY: Final = 0x7F80_0000
"""Bits of float32's; those of NaN are greater."""
_LEAST_SCALE: Final = 2.0**-110
"""A block whose values are all smaller counts as zero, for what it is multiplied by must be finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How values lie in words: value `t` of block `per_word * g + j` is digit `j` of word `block * g + t`."""

    per_word: int
    block: int

    @property
    def base(self) -> int:
        """Of the digits: the largest whose `per_word`th power fits a word."""
        base = round(2 ** (WORD_BITS / self.per_word))
        return base if base**self.per_word <= 1 << WORD_BITS else base - 1

    def steps(self, ranks: int) -> int:
        """Return how many steps each rank has either way; raises UsageError if they are too few."""
        steps = (self.base - 1) // 2 // ranks
        if steps < LEAST_STEPS:
            raise UsageError(
                f"{self.per_word} values to a word leave too few bits for {ranks} ranks: have fewer values"
            )
        return steps

    def blocks_of(self, values: Floats) -> Floats:
        """Return values as `[words // block, per_word, block]`, zeros behind them."""
        whole = self.per_word * self.block
        rows = -(-values.size // whole)
        if rows * whole != values.size:
            values = np.concatenate([values, np.zeros(rows * whole - values.size, np.float32)])
        return values.reshape(rows, self.per_word, self.block)

    def join(self, digits: npt.NDArray[np.int32]) -> Words:
        """Return words of digits `[rows, per_word, block]`."""
        words = digits[:, -1].copy()
        for place in range(self.per_word - 2, -1, -1):
            words *= np.int32(self.base)
            words += digits[:, place]
        return words.reshape(-1)

    def part(self, words: Words) -> Floats:
        """Return the digits of words, or of sums of such, `[rows, per_word, block]`."""
        rest = words.reshape(-1, self.block).astype(np.int64)
        digits = np.empty((len(rest), self.per_word, self.block), np.float32)
        half = self.base // 2
        for place in range(self.per_word):
            above = (rest + half) // self.base
            digits[:, place] = rest - above * self.base
            rest = above
        return digits

    def pack(self, blocks: Floats, scales: Floats, steps: int, seed: int) -> Words:
        """Return the words of blocks."""
        words = np.empty((len(blocks), self.block), np.int32)
        for rows in self._chunks(len(blocks)):
            first = rows.start * self.per_word * self.block
            words[rows] = self.join(digits_of(blocks[rows], scales[rows], steps, seed, first)).reshape(-1, self.block)
        return words.reshape(-1)

    def unpack(self, words: Words, unit: Floats, values: Floats) -> None:
        """Write what words, or sums of such, are worth to a row of values."""
        whole = self.per_word * self.block
        rows_of_words = words.reshape(-1, self.block)
        for rows in self._chunks(len(rows_of_words)):
            found = (self.part(rows_of_words[rows]) * unit[rows]).reshape(-1)
            to = values[rows.start * whole : rows.stop * whole]
            to[:] = found[: to.size]

    def _chunks(self, rows: int) -> Iterator[slice]:
        """Yield slices of rows, as many at a time as the cache takes."""
        count = max(1, CHUNK_VALUES // (self.per_word * self.block))
        for start in range(0, rows, count):
            yield slice(start, min(rows, start + count))


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay(Begun):
    """Words that are being added."""

    layout: Layout
    words: Words
    unit: Floats
    """What a step of each block's average is worth, `[rows, per_word, 1]`."""

    def finish(self) -> Floats:
        """Return the average."""
        self.layout.unpack(self.words, self.unit, self.mean)
        return self.mean


class Packed(Compressor):
    """Every value as a small integer, several to a word, rounded up or down at random: right in the mean.

    Three to a word take 1.33 bytes a value and 0.06 for the scales, each way.
    """

    def __init__(self, per_word: int = 3, block: int = 32, seed: int = 0) -> None:
        """Put `per_word` values into 32 bits; `block` of them share a scale; rounding starts from `seed`."""
        if not 2 <= per_word <= 4:
            raise UsageError(f"per_word must be 2, 3 or 4, not {per_word}")
        if block < 1:
            raise UsageError(f"a block has at least one value, not {block}")
        self._layout = Layout(per_word=per_word, block=block)
        self._seed = seed
        self._steps = Steps()

    def exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        """See `Compressor`."""
        under_way = self._packed(comm, parts, values)
        own = np.empty(values.size, np.float32)
        self._layout.unpack(under_way.words, under_way.unit * np.float32(comm.world_size), own)
        comm.allreduce(under_way.words)
        return Exchanged(own=own, mean=under_way.finish())

    def begin_parts(self, comm: Any, parts: Sequence[Part], values: Floats) -> Begun:
        """Exchange a bucket: when this returns the scales are agreed on, and the values are under way."""
        made = self._packed(comm, parts, flat(values))
        handle = comm.allreduce_async(made.words)
        return _UnderWay(mean=made.mean, handles=(handle,), layout=made.layout, words=made.words, unit=made.unit)

    def _packed(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> _UnderWay:
        """Agree on scales, and pack this rank's values."""
        steps = self._layout.steps(comm.world_size)
        blocks = self._layout.blocks_of(values)
        scales = scales_of(comm.allreduce(magnitudes(blocks), "max"))
        step = self._steps.count(parts)
        seed = np.random.default_rng([self._seed, comm.rank, step, *name_of(parts)]).integers(1 << 32)
        words = self._layout.pack(blocks, scales, steps, int(seed))
        unit = scales / np.float32(steps * comm.world_size)
        return _UnderWay(mean=np.empty(values.size, np.float32), layout=self._layout, words=words, unit=unit)

    def _state(self) -> CompressorState:
        return {"steps": self._steps}

    def _restore(self, state: CompressorState) -> None:
        self._steps = Steps(state["steps"])


def magnitudes(blocks: Floats) -> npt.NDArray[np.int16]:
    """Return the largest magnitude in each block `[rows, per_word, block]`, rounded up to 8 bits, for a maximum of all.

    That is the upper half of a float32, whose bits are in the order of the values; NaN counts as infinite.  The largest
    finite ones, whose next is infinity, are rounded down, by 0.4 % at most.
    """
    largest = np.minimum(np.abs(blocks).view(np.int32).max(axis=2), _INFINITY)
    halves = (largest.astype(np.int64) + 0xFFFF) >> 16
    found: npt.NDArray[np.int16] = (halves - ((largest < _INFINITY) & (halves == _INFINITY >> 16))).astype(np.int16)
    return found


def scales_of(most: npt.NDArray[np.int16]) -> Floats:
    """Return the scales `[rows, per_word, 1]` of all ranks' magnitudes: 0 for next to nothing, NaN for infinity."""
    scales: Floats = (most.astype(np.int32) << 16).view(np.float32)[:, :, None]
    scales[scales < _LEAST_SCALE] = 0
    scales[np.isinf(scales)] = np.nan
    return scales


def digits_of(blocks: Floats, scales: Floats, steps: int, seed: int, first: int = 0) -> npt.NDArray[np.int32]:
    """Return values as numbers of `scales / steps`, rounded up or down at random, at most `steps` either way.

    `first` is how many values come before these, on which what is drawn depends.
    """
    has_scale = scales > 0  # which NaN is not
    factor = np.float32(steps) / np.where(has_scale, scales, np.float32(np.inf))
    placed = (blocks if has_scale.all() else np.where(has_scale, blocks, np.float32(0))) * factor
    placed += _drawn(seed, first, placed.size).reshape(placed.shape)
    np.floor(placed, out=placed)
    np.clip(placed, -steps, steps, out=placed)  # a scale itself, to which almost 1 was added
    return placed.astype(np.int32)


def _drawn(seed: int, first: int, count: int) -> Floats:
    """Return numbers of 0 up to, but not, 1 that depend on the seed and their index alone."""
    with np.errstate(over="ignore"):
        index = np.arange(first, first + count).astype(np.uint32) * np.uint32(GOLDEN) + np.uint32(seed)
        return (mixed(index) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
