"""Sums so rough that they say no more than which ones are large: a byte a value, both ways.

Ranks share the 127 steps of a lane of 8 bits, so that its sum fits as well.  A block of values has a scale of its own,
the largest magnitude that any rank has in it, which the ranks agree on first.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_protocol.lanes import mixed
from switchsum_switch.kernels.constants import GOLDEN

BLOCK: Final = 1024
"""Values with a scale of their own, whose four bytes are little beside theirs."""
_DRAWN_BITS: Final = 24
"""Bits of a drawn number: as many as a float32 has."""

Array = npt.NDArray[Any]


class Adds(Protocol):
    """What rough sums need of a communicator."""

    rank: int
    world_size: int

    def allreduce(self, array: Array, op: str = "sum", *, label: str = "") -> Array:
        """Combine arrays in place."""
        ...


def rough_sums(comm: Adds, values: Array, *, label: str = "") -> npt.NDArray[np.float32]:
    """Return the sums of an array's values over all ranks, flat; each value is rounded up or down at random.

    `label` is that of `Communicator.allreduce`.

    A block in which some rank has an infinity or a NaN comes out all NaN.
    """
    size = values.size
    blocks = np.zeros((-(-size // BLOCK), BLOCK), np.float32)
    blocks.reshape(-1)[:size] = values.reshape(-1)
    scales = comm.allreduce(np.abs(blocks).max(axis=1), "max", label=label)[:, None]
    kind = np.dtype(np.int8) if comm.world_size <= np.iinfo(np.int8).max // 3 else np.dtype(np.int16)
    steps = np.float32(np.iinfo(kind).max // comm.world_size)
    seed = np.uint32(zlib.crc32(blocks.data, comm.rank))
    drawn = mixed(seed + np.arange(blocks.size, dtype=np.uint32) * np.uint32(GOLDEN)) >> np.uint32(32 - _DRAWN_BITS)
    with np.errstate(invalid="ignore", divide="ignore"):
        levels = np.where(scales > 0, blocks / scales * steps, np.float32(0)).reshape(-1)
    levels = np.floor(levels + drawn * np.float32(2.0**-_DRAWN_BITS))
    own = np.where(np.isfinite(levels), np.clip(levels, -steps, steps), 0).astype(kind)
    with np.errstate(invalid="ignore", over="ignore"):  # infinity times zero is the NaN that is wanted
        blocks[:] = comm.allreduce(own).reshape(blocks.shape) * (scales / steps)
    return blocks.reshape(-1)[:size]
