"""All values, several to a 32-bit word, in steps of their own small block: between lanes of 16 and of 8 bits.

The switch adds 32-bit words, and a word need not hold one number: digits to a base of which none can overflow add up
side by side.  Three values to a word have 812 steps either way for the sum of all ranks; a lane of 8 bits has 127. And
a block of 32 values has its own scale: the largest magnitude that any rank has in it. Without that, the hundreds of
values of a frame share one.  The scales are agreed on first, an allreduce of 16 bits for each block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.kernels.floats import restore_floats, usual_floats
from switchsum_switch.kernels.mixing import turned_at

from .base import Begun, Communicates, Compressor, CompressorState, Exchanged, Floats, Part, Steps, name_of
from .small_blocks import Scales, agree_finely, factors_of, turn_of, units_of

Words = npt.NDArray[np.int32]

WORD_BITS: Final = 32
LEAST_STEPS: Final = 3
"""Fewer either way are refused: int8 lanes are, too."""
_DRAWN_BITS: Final = 24
"""Bits of a drawn number: as many as a float32 has."""


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
            raise UsageError(f"per_word={self.per_word} leaves too few bits for {ranks} ranks: use a smaller per_word")
        return steps

    def blocks(self, size: int) -> int:
        """Return how many blocks fill the words of so many values, zeros behind them included."""
        return -(-size // (self.per_word * self.block)) * self.per_word

    def pack(self, values: Floats, scales: Scales, steps: int, seed: int, turn: int) -> Words:
        """Return the words of a row of values, each at most `steps` either way; see `turn_of`."""
        words = np.empty(len(scales) // self.per_word * self.block, np.int32)
        pack_words(values, self.block, factors_of(steps, scales), steps, self.base, seed, turn, words)
        return words

    def unpack(self, words: Words, units: Floats, values: Floats) -> None:
        """Write what words, or sums of such, are worth to a row of values; `units` are a step's of each block."""
        unpack_words(words, units, self.base, np.empty(self.block), values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay(Begun):
    """Words that are being added."""

    layout: Layout
    words: Words
    units: Floats
    """Value of a step of each block's average."""

    def finish(self) -> Floats:
        """Return the average."""
        self.layout.unpack(self.words, self.units, self.mean)
        return self.mean


class Packed(Compressor):
    """Sends every value as a small integer, several of them in a word of 32 bits.

    Values are rounded up or down at random, so that the mean is right.  Three to a word take 1.33 bytes a value and
    0.06 for the scales, each way.  `switchsum.torch.compress` calls that "int10".
    """

    ranks_may_differ: ClassVar[Mapping[str, str]] = {
        "steps": "each rank rounds by itself, and its values are right in the mean",
    }

    def __init__(self, per_word: int = 3, block: int = 32, seed: int = 0) -> None:
        """Choose how many values share a word; the same on all ranks.

        Args:
            per_word: Values in 32 bits: 2, 3 or 4.
            block: How many values share a scale.
            seed: Number that rounding starts from.

        Raises:
            UsageError: A number is out of range.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import Packed
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.full(64, 0.5, np.float32)
            >>> mean = on_ranks(2, lambda comm: Packed().exchange(comm, "layer", gradient).mean)[0]
            >>> bool(np.allclose(mean, 0.5, rtol=0.01))
            True

        """
        if not 2 <= per_word <= 4:
            raise UsageError(f"per_word must be 2, 3 or 4, not {per_word}")
        if block < 1:
            raise UsageError(f"a block has at least one value, not {block}")
        self._layout = Layout(per_word=per_word, block=block)
        self._seed = seed
        self._steps = Steps()

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        scales, under_way = self._packed(comm, parts, values)
        own = np.empty(values.size, np.float32)
        self._layout.unpack(under_way.words, units_of(scales, self._layout.steps(comm.world_size)), own)
        comm.allreduce(under_way.words)
        return Exchanged(own=own, mean=under_way.finish())

    def _begin_parts(self, comm: Any, parts: Sequence[Part], values: Floats) -> Begun:
        """Exchange a bucket: when this returns the scales are agreed on, and the values are under way."""
        _, made = self._packed(comm, parts, values)
        return replace(made, handles=(comm.allreduce_async(made.words),))

    def _packed(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> tuple[Scales, _UnderWay]:
        """Agree on scales, and pack this rank's values."""
        layout, ranks = self._layout, comm.world_size
        steps = layout.steps(ranks)
        scales = agree_finely(comm, values, layout.block, layout.blocks(values.size))
        step = self._steps.count(parts)
        seed = int(np.random.default_rng([self._seed, step, *name_of(parts)]).integers(1 << 32))
        words = layout.pack(values, scales, steps, seed, turn_of(comm.rank, ranks))
        mean, units = np.empty(values.size, np.float32), units_of(scales, steps * ranks)
        return scales, _UnderWay(mean=mean, layout=layout, words=words, units=units)

    def _state(self) -> CompressorState:
        return {"steps": self._steps}

    def _restore(self, state: CompressorState) -> None:
        self._steps = Steps(state["steps"])


@kernel
def pack_words(
    values: Floats, block: int, factors: Floats, steps: int, base: int, seed: int, turn: int, words: Words
) -> None:
    """Write words whose digits are values times their blocks' factors, rounded up or down at random."""
    mode = usual_floats()
    most, times, unit = np.float32(steps), np.int32(base), np.float32(2.0**-_DRAWN_BITS)
    per_word = len(factors) * block // max(1, words.size)
    for index in range(len(factors)):
        # Digits from the last one on, each after what is there was moved up.
        group, place = index // per_word, per_word - 1 - index % per_word
        index_of_block = group * per_word + place
        to = words[group * block : (group + 1) * block]
        for i in range(block):
            to[i] = np.int32(to[i] * times) if index % per_word else np.int32(0)
        start = min(index_of_block * block, values.size)
        given, factor = values[start : min(start + block, values.size)], factors[index_of_block]
        if factor == 0:  # the values may be no numbers
            continue
        for i in range(given.size):
            drawn = np.int32(turned_at(seed, start + i, turn) >> np.uint32(WORD_BITS - _DRAWN_BITS))
            placed = np.floor(np.float32(np.float32(given[i] * factor) + np.float32(np.float32(drawn) * unit)))
            placed = placed if placed < most else most  # a scale itself, to which almost 1 was added
            placed = placed if placed > -most else -most
            to[i] = np.int32(to[i] + np.int32(placed))
    restore_floats(mode)


@kernel
def unpack_words(words: Words, units: Floats, base: int, rest: npt.NDArray[np.float64], values: Floats) -> None:
    """Write the digits of words, or of sums of such, each times its block's unit; `rest` has room for a block.

    In float64, which has all bits of a word: half a unit is added before a division, which is off by less.
    """
    mode = usual_floats()
    whole, inverse, half = np.float64(base), 1 / np.float64(base), np.float64(base // 2) + 0.5
    block = rest.size
    per_word = len(units) * block // max(1, words.size)
    for index in range(len(units)):
        if index % per_word == 0:
            first = index // per_word * block
            for i in range(block):
                rest[i] = words[first + i]
        start, unit = min(index * block, values.size), units[index]
        to = values[start : min(start + block, values.size)]
        for i in range(to.size):
            above = np.floor((rest[i] + half) * inverse)
            to[i] = np.float32(np.float32(rest[i] - above * whole) * unit)
            rest[i] = above
    restore_floats(mode)
