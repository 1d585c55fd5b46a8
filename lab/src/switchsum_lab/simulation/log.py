"""The loop's log of frames: on watched links, and at hosts whose frames Python reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.loading import address_of

from .records import LOG, LOG_BYTES, NONE, PICOSECONDS

_LEAST_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A frame of the log."""

    at_s: float
    """When the frame was put on its link, or came to its host."""
    departs_s: float
    length: int
    link: int
    """Number of the link; NONE: the frame came to a host."""
    node: int
    """Number of the host; NONE: the frame was put on a link."""
    fate: int
    frame: bytes
    """Bytes of the frame; empty where bytes are not noted."""


class Log:
    """The memory that the loop writes its log to, and the part that was read."""

    def __init__(self, world: npt.NDArray[Any]) -> None:
        """Begin without memory; `world` is the record of the world."""
        self._world = world
        self._memory = np.zeros(0, np.uint8)
        self.is_used = False
        """Whether anything is noted."""
        self.noted: list[Noted] = []
        """The log as far as it was read."""

    def share(self, entries: int, frame_bytes: int) -> None:
        """Tell the loop where to write, with room for so many entries and more."""
        record = self._world
        if self.is_used:
            record["log_spare"] = entries * (LOG_BYTES + frame_bytes + 8)
            needed = max(_LEAST_BYTES, 2 * int(record["log_spare"][0]))
            if len(self._memory) < needed:
                self.read()
                self._memory = np.zeros(needed, np.uint8)
        record["log"], record["log_capacity"] = address_of(self._memory) if len(self._memory) else 0, len(self._memory)

    def read(self) -> None:
        """Move what was noted to `noted`."""
        used, at = int(self._world["log_used"][0]), 0
        while at < used:
            entry = self._memory[at : at + LOG_BYTES].view(LOG)[0]
            at += LOG_BYTES
            stored, index = int(entry["stored"]), int(entry["index"])
            self.noted.append(
                Noted(
                    at_s=int(entry["at"]) / PICOSECONDS,
                    departs_s=int(entry["departs"]) / PICOSECONDS,
                    length=int(entry["length"]),
                    link=max(index, NONE),
                    node=-1 - index if index < 0 else NONE,
                    fate=int(entry["fate"]),
                    frame=self._memory[at : at + stored].tobytes(),
                )
            )
            at += (stored + 7) // 8 * 8
        self._world["log_used"] = 0
