"""Sums of few float32 whose exponents all ranks know from an earlier step, so that no round trip agrees on them.

The earlier step is an allreduce with "or".  Each rank sets the bit of its largest exponent in each frame of values,
and the highest bit of all ranks is the frame's exponent.  Then the values travel as integers.  The sums have the same
bits as an ordinary sum of floats has (`switchsum_protocol.lane_scales`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_protocol.frame import LANE_BYTES
from switchsum_protocol.lane_scales import WIDE_BITS, full_scale

from .collectives import Ranks
from .operation_queue import Handle
from .steps import LastStep

Words = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

_EXPONENT_WORDS: Final = 4
"""Words with a bit for each of 256 exponents."""
_WORD_BITS: Final = 64
_MOST_VALUES: Final = 1 << 12
"""With more of them, a round trip would be a tenth of their time at 10 Gbit/s."""
_MOST_EXPONENT: Final = 250
"""Sums of larger values may be no finite float32, which ordinary sums look at."""
_MAGNITUDE: Final = np.uint32(0x7FFF_FFFF)
_FRACTION_BITS: Final = np.uint32(23)
_BIAS: Final = 126
"""Values of a frame are below 2 to the power of its exponent less this."""


class Begins(Protocol):
    """What these sums need of a communicator."""

    world_size: int

    @property
    def ranks(self) -> Ranks:
        """Who takes part."""
        ...

    def allreduce_async(
        self, array: Array, op: str = "sum", *, lanes: str = "int32", saturate: bool = False, background: bool = True
    ) -> Handle:
        """Begin to combine arrays in place."""
        ...


def frames_behind(words: int, lanes: int) -> int:
    """Return for how many frames of values exponents fit in what so many words leave empty of their last frame."""
    per_frame = lanes * LANE_BYTES * 8 // _WORD_BITS
    return min(-words % per_frame // _EXPONENT_WORDS, _MOST_VALUES // lanes)


def describe(values: Array, frames: int, lanes: int) -> Words:
    """Return a bit for the exponent of each frame of float32, in words for so many frames; none if there are more."""
    words = np.zeros(frames * _EXPONENT_WORDS, np.uint64)
    if values.dtype == np.float32 and values.size <= frames * lanes:
        padded = np.zeros(-(-values.size // lanes) * lanes, np.uint32)
        padded[: values.size] = np.ascontiguousarray(values).reshape(-1).view(np.uint32) & _MAGNITUDE
        for frame, largest in enumerate(padded.reshape(-1, lanes).max(axis=1) >> _FRACTION_BITS):
            word, bit = divmod(int(largest), _WORD_BITS)
            words[frame * _EXPONENT_WORDS + word] = np.uint64(1 << bit)
    return words


def exponents(words: Words, count: int, lanes: int) -> Sequence[int] | None:
    """Return the exponent of each frame of `count` values that all ranks have described; None: an ordinary sum."""
    frames = -(-count // lanes)
    known = [int.from_bytes(one.tobytes(), "little") for one in words.astype("<u8").reshape(-1, _EXPONENT_WORDS)]
    found = [one.bit_length() - 1 for one in known[:frames]]
    return found if len(found) == frames and all(0 <= one <= _MOST_EXPONENT for one in found) else None


def begin(
    comm: Begins,
    values: Array,
    known: Sequence[int],
    divisor: int,
    background: bool,
    finish: Callable[[Array], Any],
) -> LastStep:
    """Begin a sum of float32 over `divisor`; `finish` gets the sums, and returns the result."""
    powers = np.maximum(np.array(known, np.int64), 1) - _BIAS
    power = np.repeat(powers, comm.ranks.lanes_per_frame)[: values.size].reshape(values.shape)
    scale = float(full_scale(comm.world_size, WIDE_BITS))
    lanes = np.rint(np.ldexp(values.astype(np.float64), -power) * scale).astype(np.int32)
    handle = comm.allreduce_async(lanes, background=background)
    share = 1.0 / scale * (1.0 / divisor)

    def sums() -> Any:
        return finish(np.ldexp(lanes * share, power).astype(np.float32))

    return LastStep(handle=handle, finish=sums)
