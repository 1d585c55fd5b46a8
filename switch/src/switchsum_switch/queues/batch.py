"""The output of a batch: the frames that a program makes of the frames that came in."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.records import Int64, Record, Table, dtype_of, table

DEFAULT_FRAMES: Final = 4096
DEFAULT_ARENA_BYTES: Final = 8 << 20
FRAME_ALIGN: Final = 64


class OutputRecord(Record):
    """An `Output` as kernels see it: the addresses of its columns."""

    ports: Int64
    addresses: Int64
    lengths: Int64
    heads: Int64
    bodies: Int64
    held: Int64
    count: Int64
    """How many frames there are."""


OUTPUT: Final = dtype_of(OutputRecord)


class Output:
    """Frames that go out, as columns, and the memory that they lie in; each batch overwrites both."""

    def __init__(self, frames: int = DEFAULT_FRAMES, arena_bytes: int = DEFAULT_ARENA_BYTES) -> None:
        self.count = 0
        """Number of frames of the last batch; they are the first rows of each column."""
        self.dropped = 0
        """Frames of the last batch for which there was no room.  Only clones and recirculated packets can need more
        than `pipeline.room` reserves."""
        self.ports: npt.NDArray[np.uint32] = np.zeros(frames, np.uint32)
        """Port on which each leaves."""
        self.addresses: npt.NDArray[np.uint64] = np.zeros(frames, np.uint64)
        """Address of each frame's first byte, within `arena`."""
        self.lengths: npt.NDArray[np.uint32] = np.zeros(frames, np.uint32)
        """Bytes of each frame."""
        self.heads: npt.NDArray[np.uint32] = np.zeros(frames, np.uint32)
        """Bytes of each frame's head.  Of a frame that is not whole, only these are written; see `CodeEntry`."""
        self.bodies: npt.NDArray[np.uint64] = np.zeros(frames, np.uint64)
        """Address of the body of a frame that is not whole, within another frame of the batch; 0: the frame is
        whole."""
        self.held: npt.NDArray[np.int32] = np.zeros(frames, np.int32)
        """Places of the frames that an operation of ports has left."""
        columns = self.ports, self.addresses, self.lengths, self.heads, self.bodies, self.held
        self.record: Table[OutputRecord] = table(np.zeros(1, OUTPUT))
        self.record[:] = (*(address_of(column) for column in columns), 0)
        self.address = address_of(self.record.view(np.int64))
        """Address of `record`, whose count is `count` only while an operation runs."""
        self.arena: npt.NDArray[np.uint8] = np.zeros(arena_bytes, np.uint8)
        """Memory of the frames, one behind the other; each starts at a multiple of `FRAME_ALIGN`."""

    def frames(self) -> list[tuple[int, bytes]]:
        """Return copies of the frames, as (port, frame)."""
        columns = (self.ports, self.addresses, self.lengths)
        rows = zip(*(column[: self.count].tolist() for column in columns), strict=True)
        return [(port, ctypes.string_at(address, length)) for port, address, length in rows]


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """The native code of a program and its constant arguments, for kernels that call it."""

    arguments: npt.NDArray[np.int64]
    """Address of the code, then what it takes: context; an output's arena and its bytes; the columns ports, addresses,
    lengths, heads, bodies and their rows; address of the result; address of the code for packets that have waited for
    egress, which takes the same but for the frames (`entry.py`).  Code that is called this way makes frames that are
    not whole: of the replicas of a packet only the first has the body, and the others name it."""
    result: npt.NDArray[np.uint64]
    """How many frames the last batch made, and for how many there was no room."""
