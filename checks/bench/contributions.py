"""Frames for measuring a switch: contributions of four workers, round after round in several slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from switchsum.testing.rig import FIRST_SLOT, Rig
from switchsum_protocol.frame import AT

WORKERS = 4
_NUMBER = slice(AT.number, AT.number + 4)


class Contributions:
    """A frame for each round, slot and worker; round numbers can be moved on."""

    def __init__(self, rig: Rig, *, slots: int, rounds: int = 1) -> None:
        lanes = np.arange(rig.lanes_per_frame, dtype=np.int32)
        names = [FIRST_SLOT + slot for slot in range(slots)]
        frames = [rig.contribution(rank, 0, lanes, slot=name) for name in names for rank in range(WORKERS)]
        self.count = rounds * slots * WORKERS
        self.frame_bytes = len(frames[0])
        one = np.frombuffer(b"".join(frames), np.uint8).reshape(1, slots, WORKERS, self.frame_bytes)
        self.rows: npt.NDArray[np.uint8] = np.repeat(one, rounds, axis=0)
        """`[rounds, slots, WORKERS, frame_bytes]`"""

    def set_numbers(self, numbers: npt.NDArray[np.uint32]) -> None:
        """Write the number of each slot's first round; the other rounds follow it."""
        all_numbers = numbers + np.arange(len(self.rows), dtype=np.uint32)[:, None]
        self.rows[..., _NUMBER] = all_numbers.astype(">u4")[..., None].view(np.uint8)[:, :, None, :]

    @property
    def addresses(self) -> npt.NDArray[np.uint64]:
        """Where the frames lie, in the order of `rows`."""
        return self.rows.ctypes.data + np.arange(self.count, dtype=np.uint64) * np.uint64(self.frame_bytes)
