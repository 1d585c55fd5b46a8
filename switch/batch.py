"""What a batch of frames leaves behind."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

DEFAULT_FRAMES: Final = 4096
DEFAULT_ARENA_BYTES: Final = 8 << 20
SHARDED_ARENA_BYTES: Final = 4 * DEFAULT_ARENA_BYTES
"""Frames are shared out to cores with room for the most that they may become; what they do not use is never touched."""
FRAME_ALIGN: Final = 64


class Output:
    """Frames that go out, as columns, and the memory that they lie in; filled anew by every batch."""

    def __init__(self, frames: int = DEFAULT_FRAMES, arena_bytes: int = DEFAULT_ARENA_BYTES) -> None:
        self.count = 0
        """Frames of the last batch; they are the first of each column."""
        self.dropped = 0
        """Frames of the last batch that found no room: clones, and what was recirculated, beyond what `room` tells."""
        self.ports: npt.NDArray[np.uint32] = np.zeros(frames, np.uint32)
        """Port on which each leaves."""
        self.addresses: npt.NDArray[np.uint64] = np.zeros(frames, np.uint64)
        """Address of each frame's first byte, within `arena`."""
        self.lengths: npt.NDArray[np.uint32] = np.zeros(frames, np.uint32)
        """Bytes of each frame."""
        self.heads: npt.NDArray[np.uint32] = np.zeros(frames, np.uint32)
        """How many bytes of a frame that is not whole have been written, its first ones; see `Entry`."""
        self.bodies: npt.NDArray[np.uint64] = np.zeros(frames, np.uint64)
        """Where the others are, in another frame of the batch; 0: the frame is whole."""
        self.arena: npt.NDArray[np.uint8] = np.zeros(arena_bytes, np.uint8)
        """Where the frames lie, one behind the other, each from a multiple of `FRAME_ALIGN`."""

    def frames(self) -> list[tuple[int, bytes]]:
        """Return copies of the frames, as (port, frame)."""
        columns = (self.ports, self.addresses, self.lengths)
        rows = zip(*(column[: self.count].tolist() for column in columns), strict=True)
        return [(port, ctypes.string_at(address, length)) for port, address, length in rows]


@dataclass(frozen=True, slots=True)
class Entry:
    """How kernels call a program."""

    arguments: npt.NDArray[np.int64]
    """Address of the code and what it takes: context, then an output's arena, its bytes, ports, addresses, lengths,
    heads, bodies, how many of these, and where the result goes.  Called this way, it leaves frames that are not whole:
    of replicas the first one has the body that all have in common."""
    result: npt.NDArray[np.uint64]
    """How many frames the last batch made, and how many found no room."""
