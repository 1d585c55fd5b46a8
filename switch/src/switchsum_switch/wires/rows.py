"""How frames lie in memory: fixed rows, shifted so that the lanes of every frame start on a cache line."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.wires.headers import ETHERNET_BYTES, HEAD_BYTES

CACHE_LINE: Final = 64
LEAD_BYTES: Final = -HEAD_BYTES % CACHE_LINE
"""Unused bytes in front of a frame in its row: lanes come `HEAD_BYTES` after the frame's start."""

MARK_AT: Final = ETHERNET_BYTES + 1
"""Offset of the ECN bits in a frame."""


def row_stride(frame_bytes: int) -> int:
    """Return the length of a row that holds frames of up to `frame_bytes`: whole cache lines."""
    return -(-(LEAD_BYTES + frame_bytes) // CACHE_LINE) * CACHE_LINE


def allocate_rows(rows: int, frame_bytes: int) -> npt.NDArray[np.uint8]:
    """Return zeroed rows `[rows, stride]` that start on a cache line."""
    stride = row_stride(frame_bytes)
    memory = np.zeros(rows * stride + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + rows * stride].reshape(rows, stride)
