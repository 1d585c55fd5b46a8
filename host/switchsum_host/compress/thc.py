"""All values in 8 bits or in 4, after a rotation that makes them look alike (THC, NSDI 2024).

A Hadamard rotation spreads each value over its block.  What is sent has nearly a normal distribution then, whatever
the gradient looks like, and no level is wasted on a rare large value.  All ranks rotate alike.  So the switch adds
levels as they are, and the sum is rotated back once.

THC sends 4 bits up and 8 down: any number of ranks has 16 levels each.  So does ``Thc(bits=4)``, in lanes "int4", which
the switch widens.  With 8 bits a word of 32 bits holds four levels, and goes up as wide as its sum comes down.  Then
4 ranks have 64 levels each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError
from switchsum_switch.kernels.decorators import inner, kernel
from switchsum_switch.kernels.floats import restore_floats, usual_floats
from switchsum_switch.kernels.mixing import drawn_at

from .base import Communicates, Compressor, CompressorState, Exchanged, Floats, Part, Steps, name_of
from .small_blocks import Scales, agree_finely_in_step, factors_of, units_of

Words = npt.NDArray[np.int32]
Levels = npt.NDArray[np.int8]
Lengths = npt.NDArray[np.int64]

BLOCK: Final = 1024
"""Values that are rotated together, and share a scale: a power of two."""
LEAST_BLOCK: Final = 32
"""Values of the shortest block at the end of a row: at most 31 zeros are added."""
PER_WORD: Final = 4
DIGITS: Final = 256
"""Of a digit, a quarter of a word: the levels of all ranks together."""
LARGE: Final = 2.0**64
"""A block whose scale is above it is rotated as if it was so many times smaller."""
STEPS: Final = MappingProxyType({16: 0.3352, 32: 0.1881, 64: 0.1041, 128: 0.0569, 256: 0.0308})
"""Distance of so many even levels, in standard deviations, with which a normal distribution loses least.

From Max, Quantizing for Minimum Distortion, 1960, and its later extensions; 16 levels reach 2.7 deviations either way.
"""


FEW: Final = min(STEPS)
"""Levels of 4 bits."""
WIDTHS: Final = (4, 8)
"""Bits that a value may go up in."""


def levels_for(ranks: int, bits: int = 8) -> int:
    """Return how many levels each rank has, so that no digit of the sum overflows; raises UsageError."""
    levels = 1 << (DIGITS // ranks).bit_length() - 1 if ranks <= DIGITS else 0
    if levels not in STEPS:
        raise UsageError(f"thc adds at most {DIGITS // min(STEPS)} ranks, not {ranks}: use int10")
    return levels if bits > WIDTHS[0] else FEW


def lengths_of(size: int) -> Lengths:
    """Return the lengths of the blocks that a row is cut into: all of BLOCK, then one of each power of two."""
    padded = -(-size // LEAST_BLOCK) * LEAST_BLOCK
    lengths, rest = [BLOCK] * (padded // BLOCK), padded % BLOCK
    return np.array(lengths + [1 << bit for bit in reversed(range(BLOCK.bit_length())) if rest >> bit & 1], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How a row is sent in this exchange; the same on all ranks."""

    lengths: Lengths
    levels: int
    seed: int
    """Number that the signs of the rotation are drawn from."""
    scales: Scales
    """Of each block: the largest of the ranks' root mean squares."""

    @property
    def downs(self) -> Floats:
        """Return what each block is multiplied by while it is rotated: less than 1 where a sum could be infinite."""
        return np.where(self.scales > LARGE, 1 / LARGE, 1.0).astype(np.float32)

    def words(self, values: Floats, bits: int) -> Words | Levels:
        """Return the levels of this rank's values: four to a word, or of 4 bits each."""
        turned = np.empty(int(self.lengths.sum()), np.float32)
        rotate(values, self.lengths, self.downs, self.seed, turned)
        factors = factors_of(1 / STEPS[self.levels], self.scales * self.downs)
        if bits == WIDTHS[0]:
            few = np.empty(turned.size, np.int8)
            place_few(turned, self.lengths, factors, few)
            return few
        words = np.empty(turned.size // PER_WORD, np.int32)
        place(turned, self.lengths, factors, self.levels, words)
        return words

    def values(self, words: Words | Levels, ranks: int, size: int) -> Floats:
        """Return the average that the words of so many ranks, added up, are worth."""
        turned, values = np.empty(int(self.lengths.sum()), np.float32), np.empty(size, np.float32)
        units = units_of(self.scales * self.downs * STEPS[self.levels], ranks)
        if words.dtype == np.int8:
            take_few(words.view(np.int8), self.lengths, units, ranks, turned)
        else:
            take(words.view(np.int32), self.lengths, units, ranks, self.levels, turned)
        rotate_back(turned, self.lengths, np.reciprocal(self.downs), self.seed, values)
        return values


class Thc(Compressor):
    """Sends every value in 8 bits each way, or in 4 up and 8 down, after a rotation (THC, NSDI 2024).

    Up to 16 ranks share 256 levels: 2 ranks have 128 each, 4 have 64, 8 have 32 and 16 have 16.  With 4 bits each rank
    has 16.  What rounding loses is 0.1 % of a gradient's energy with 64 levels and 1.2 % with 16.  Use it within
    `ErrorFeedback`.  `switchsum.torch.compress` calls that "thc" and "thc:4".
    """

    ranks_may_differ: ClassVar[Mapping[str, str]] = {
        "steps": "an exchange has the largest of the ranks' numbers, and all have counted alike after it",
    }

    def __init__(self, seed: int = 0, bits: int = 8) -> None:
        """Choose how a value is sent; the same on all ranks.

        Args:
            seed: Number that the signs of the rotation are drawn from.
            bits: Bits in which a value goes up: 8 or 4.

        Raises:
            UsageError: There are no such bits.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import Thc
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
            >>> mean = on_ranks(2, lambda comm: Thc().exchange(comm, "layer", gradient).mean)[0]
            >>> bool(np.linalg.norm(mean - gradient) < 0.02 * np.linalg.norm(gradient))
            True

        """
        if bits not in WIDTHS:
            raise UsageError(f"thc sends 4 or 8 bits up, not {bits}")
        self._seed = seed
        self._bits = bits
        self._steps = Steps()

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        levels = levels_for(comm.world_size, self._bits)
        lengths = lengths_of(values.size)
        spread = _root_mean_squares(values, lengths)
        # The number is the ranks' own: one that has missed exchanges must not turn its values another way.
        scales, step = agree_finely_in_step(comm, spread, 1, spread.size, self._steps.of(parts))
        self._steps.note(parts, step)
        plan = _Plan(
            lengths=lengths,
            levels=levels,
            seed=int(np.random.default_rng([self._seed, step, *name_of(parts)]).integers(1 << 32)),
            scales=scales,
        )
        words = plan.words(values, self._bits)
        own = plan.values(words, 1, values.size)
        comm.allreduce(words, lanes="int4" if self._bits == WIDTHS[0] else "int32")
        return Exchanged(own=own, mean=plan.values(words, comm.world_size, values.size))

    def _state(self) -> CompressorState:
        return {"steps": self._steps}

    def _restore(self, state: CompressorState) -> None:
        self._steps = Steps(state["steps"])


def _root_mean_squares(values: Floats, lengths: Lengths) -> Floats:
    """Return those of a row's blocks, which no rotation changes; zeros behind the row's end count."""
    whole, ends = values.size // BLOCK, np.cumsum(lengths)  # the last one of BLOCK may reach behind the row's end
    rows = [values[: whole * BLOCK].reshape(-1, BLOCK)]
    rows += [values[ends[i] - lengths[i] : ends[i]].reshape(1, -1) for i in range(whole, lengths.size)]
    squares = [np.einsum("ij,ij->i", row, row, dtype=np.float64) for row in rows]
    spread: Floats = np.sqrt(np.concatenate(squares) / lengths).astype(np.float32)
    return spread


@inner
def _hadamard(row: Any) -> None:
    """Multiply a row, whose length is a power of two, by Hadamard's matrix: sums and differences of halves."""
    half = 1
    while half < row.size:
        for start in range(0, row.size, 2 * half):
            first, second = row[start : start + half], row[start + half : start + 2 * half]
            for i in range(half):
                a, b = first[i], second[i]
                first[i] = a + b
                second[i] = a - b
        half *= 2


@inner
def _sign(seed: Any, index: Any) -> Any:
    """Return 1 or -1, drawn for a value's index."""
    return np.float32(1) - np.float32(drawn_at(seed, index) >> np.uint32(31)) * np.float32(2)


@kernel
def rotate(values: Floats, lengths: Lengths, factors: Floats, seed: int, turned: Floats) -> None:
    """Write each block, times its factor and with signs drawn for its values, times Hadamard's matrix.

    The matrix is divided by the root of its length, so that it changes no block's norm.
    """
    mode = usual_floats()
    start = 0
    for index in range(len(lengths)):
        end = start + lengths[index]
        to, given = turned[start:end], values[start : min(end, values.size)]
        size = np.float32(factors[index] / np.sqrt(np.float64(lengths[index])))
        for i in range(given.size):
            to[i] = np.float32(given[i] * size) * _sign(seed, start + i)
        to[given.size :] = 0
        _hadamard(to)
        start = end
    restore_floats(mode)


@kernel
def rotate_back(turned: Floats, lengths: Lengths, factors: Floats, seed: int, values: Floats) -> None:
    """Write what `rotate` was given, times factors; `turned` is overwritten.

    What rounding makes larger than any float32 is the largest one.
    """
    mode = usual_floats()
    most = np.float32(np.finfo(np.float32).max)
    start = 0
    for index in range(len(lengths)):
        end = start + lengths[index]
        row, to = turned[start:end], values[start : min(end, values.size)]
        size = np.float32(1 / np.sqrt(np.float64(lengths[index])))
        for i in range(row.size):
            row[i] *= size
        _hadamard(row)
        for i in range(to.size):
            value = np.float32(np.float32(row[i] * factors[index]) * _sign(seed, start + i))
            value = most if value > most else value
            to[i] = -most if value < -most else value
        start = end
    restore_floats(mode)


@kernel
def place(turned: Floats, lengths: Lengths, factors: Floats, levels: int, words: Words) -> None:
    """Write each value's level: value `i` of a row is digit ``i // words.size`` of word ``i % words.size``.

    Digits count from 0 on, but the last one from ``-levels / 2`` on, so that a word is a signed number.
    """
    mode = usual_floats()
    most, least = np.float32(levels // 2 - 1), np.float32(-(levels // 2))
    words[:] = 0
    start = 0
    for index in range(len(lengths)):
        end, factor = start + lengths[index], factors[index]
        while start < end:  # a block may go on in the next digit
            digit, first = start // words.size, start % words.size
            count = min(end - start, words.size - first)
            given, to = turned[start : start + count], words[first : first + count]
            times, above = np.int32(1 << 8 * digit), np.int32(levels // 2 if digit < PER_WORD - 1 else 0)
            for i in range(count):
                level = np.floor(np.float32(given[i] * factor))
                level = level if level < most else most  # a value that is no number, too
                level = level if level > least else least
                to[i] = np.int32(to[i] + np.int32(np.int32(np.int32(level) + above) * times))
            start += count
    restore_floats(mode)


@kernel
def take(words: Words, lengths: Lengths, units: Floats, ranks: int, levels: int, turned: Floats) -> None:
    """Write what digits of the words of so many ranks, added up, are worth in their blocks' units."""
    mode = usual_floats()
    start, middle = 0, np.float32(ranks * (levels - 1) / 2)
    for index in range(len(lengths)):
        end, unit = start + lengths[index], units[index]
        while start < end:
            digit, first = start // words.size, start % words.size
            count = min(end - start, words.size - first)
            given, to, shift = words[first : first + count], turned[start : start + count], np.int32(8 * digit)
            is_last = digit == PER_WORD - 1
            mask, above = np.int32(-1 if is_last else DIGITS - 1), np.int32(ranks * levels // 2 if is_last else 0)
            for i in range(count):
                level = np.int32(np.int32(np.int32(given[i] >> shift) & mask) + above)
                to[i] = np.float32(np.float32(level) - middle) * unit
            start += count
    restore_floats(mode)


@kernel
def place_few(turned: Floats, lengths: Lengths, factors: Floats, few: Levels) -> None:
    """Write each value's level, of 16, counted from -8 on."""
    mode = usual_floats()
    most, least = np.float32(FEW // 2 - 1), np.float32(-(FEW // 2))
    start = 0
    for index in range(len(lengths)):
        end, factor = start + lengths[index], factors[index]
        given, to = turned[start:end], few[start:end]
        for i in range(given.size):
            level = np.floor(np.float32(given[i] * factor))
            level = level if level < most else most  # a value that is no number, too
            to[i] = np.int8(level if level > least else least)
        start = end
    restore_floats(mode)


@kernel
def take_few(sums: Levels, lengths: Lengths, units: Floats, ranks: int, turned: Floats) -> None:
    """Write what such levels of so many ranks, added up, are worth in their blocks' units."""
    mode = usual_floats()
    start, above = 0, np.float32(ranks / 2)
    for index in range(len(lengths)):
        end, unit = start + lengths[index], units[index]
        given, to = sums[start:end], turned[start:end]
        for i in range(given.size):
            to[i] = np.float32(np.float32(given[i]) + above) * unit
        start = end
    restore_floats(mode)
