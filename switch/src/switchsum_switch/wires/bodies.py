"""Bodies of frames that a switch writes once and several workers read.

A multicast's replicas differ in their headers only.  Their bodies, what follows `HEAD_BYTES`, are then one row of
memory that all workers of the switch map read-only; the descriptor of each replica names that row beside the row of its
header (outbox.py).  A row is free again when the last worker has given its frame back.  A worker that gives none back
keeps at most as many rows as its outbox has descriptors; where none is left, frames are copied whole.

What follows is private to the switch: `sharing`, the address of int64 words::

    0  address of the rows      2  bytes from one to the next            4 ...         a stack of free rows
    1  their number             3  how many rows are free                4 + rows ...  how many frames name each row
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.wires.headers import HEAD_BYTES

from ..kernels.atomics import copy_bytes, load_acquire, store_release
from ..kernels.decorators import kernel
from .rows import CACHE_LINE

_ROWS: Final = 8
_STRIDE: Final = 16
_FREE: Final = 24
_STACK: Final = 32
_WORD: Final = 8


def body_stride(frame_bytes: int) -> int:
    """Return the length of a row for the bodies of frames of up to `frame_bytes`: whole cache lines."""
    return max(1, -(-(frame_bytes - HEAD_BYTES) // CACHE_LINE)) * CACHE_LINE


def share(address: int, rows: int, stride: int) -> npt.NDArray[np.int64]:
    """Return the words for rows at an address, all of them free."""
    return np.concatenate([[address, rows, stride, rows], np.arange(rows), np.zeros(rows)]).astype(np.int64)


@kernel
def put_body(sharing: int, body: int, size: int) -> int:
    """Copy a body into a free row, which no frame names yet, and return the row; -1 when none is free."""
    free = load_acquire(sharing + _FREE)
    stride = load_acquire(sharing + _STRIDE)
    if free == 0 or size > stride:
        return -1
    row = load_acquire(sharing + _STACK + (free - 1) * _WORD)
    store_release(sharing + _FREE, free - 1)
    copy_bytes(load_acquire(sharing) + row * stride, body, size)
    return row


@kernel
def add_reader(sharing: int, row: int) -> None:
    """Note that one more frame names a row."""
    word = _readers_word(sharing, row)
    store_release(word, load_acquire(word) + 1)


@kernel
def drop_reader(sharing: int, row: int) -> None:
    """Note that a frame that named a row has been given back; with the last one the row is free."""
    word = _readers_word(sharing, row)
    store_release(word, load_acquire(word) - 1)
    free_if_unread(sharing, row)


@kernel
def free_if_unread(sharing: int, row: int) -> None:
    """Put a row that no frame names back on the stack."""
    if load_acquire(_readers_word(sharing, row)) == 0:
        free = load_acquire(sharing + _FREE)
        store_release(sharing + _STACK + free * _WORD, row)
        store_release(sharing + _FREE, free + 1)


@kernel
def _readers_word(sharing: int, row: int) -> int:
    return int(sharing + _STACK + (load_acquire(sharing + _ROWS) + row) * _WORD)
