"""The memory of frames: rows of whole frames, and heads of copies whose body is in another frame's row.

A row is free again when the last frame that uses it is given back.  So the copies of a multicast have one body.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.memory import Scalar, bytes_at, integers_at, prefetch
from switchsum_switch.wires.rows import LEAD_BYTES

from .records import (
    FRAME,
    FRAME_BYTES,
    HEAD_BYTES,
    LINK,
    LINK_BYTES,
    NODE,
    NODE_BYTES,
    NONE,
    FrameRecord,
    LinkRecord,
    NodeRecord,
    WorldRecord,
)

_WORD_BYTES: Final = 8
_TYPE: Final = 12
_IPV4_HIGH: Final = 8
_TOS: Final = 15
_ECN: Final = 3
_CHECKSUM: Final = 24
_IPV4_END: Final = 34
"""Offsets in a frame without tags, and the bits of ECN in the second byte of IPv4."""


@inner
def frame_at(world: WorldRecord, index: Scalar) -> FrameRecord:
    """Return a frame's record."""
    return carray(pointer(world.frames + index * FRAME_BYTES), (1,), FRAME)[0]  # type: ignore[no-any-return]


@inner
def link_at(world: WorldRecord, number: Scalar) -> LinkRecord:
    """Return a link's record."""
    return carray(pointer(world.links + number * LINK_BYTES), (1,), LINK)[0]  # type: ignore[no-any-return]


@inner
def node_at(world: WorldRecord, number: Scalar) -> NodeRecord:
    """Return a node's record."""
    return carray(pointer(world.nodes + number * NODE_BYTES), (1,), NODE)[0]  # type: ignore[no-any-return]


@inner
def _holders_of(world: WorldRecord, row: Scalar) -> npt.NDArray[np.int64]:
    """View the number of frames that hold a row."""
    return integers_at(world.holders + row * _WORD_BYTES, 1)


@inner
def _row_behind(world: WorldRecord, row: Scalar) -> npt.NDArray[np.int64]:
    """View the number of the free row behind a free row."""
    return integers_at(world.next_row + row * _WORD_BYTES, 1)


@inner
def take_row(world: WorldRecord) -> Scalar:
    """Return a free row, which then has one holder."""
    row = world.free_row
    world.free_row = _row_behind(world, row)[0]
    _holders_of(world, row)[0] = 1
    return row


@inner
def hold_row(world: WorldRecord, row: Scalar) -> None:
    """Add a holder to a row."""
    _holders_of(world, row)[0] += 1


@inner
def let_row_go(world: WorldRecord, row: Scalar) -> None:
    """Take a holder from a row; without any the row is free."""
    holders = _holders_of(world, row)
    holders[0] -= 1
    if holders[0] == 0:
        _row_behind(world, row)[0] = world.free_row
        world.free_row = row


@inner
def new_frame(world: WorldRecord, length: Scalar, row: Scalar) -> Scalar:
    """Return a new frame in a row that is held for it; or in no row."""
    index = world.free_frame
    frame = frame_at(world, index)
    world.free_frame = frame.next
    prefetch(world.frames + frame.next * FRAME_BYTES)  # of many copies, the next one needs it
    world.free_frames -= 1
    frame.length = length
    frame.row = row
    frame.head = 0
    return index


@inner
def give_back(world: WorldRecord, index: Scalar) -> None:
    """Forget a frame."""
    frame = frame_at(world, index)
    if frame.row != NONE:
        let_row_go(world, frame.row)
    frame.next = world.free_frame
    world.free_frame = index
    world.free_frames += 1


@inner
def row_at(world: WorldRecord, row: Scalar) -> Scalar:
    """Return the address of the frame in a row."""
    return world.rows + row * world.stride + LEAD_BYTES


@inner
def head_at(world: WorldRecord, index: Scalar) -> Scalar:
    """Return the address of a frame's own head."""
    return world.heads + index * HEAD_BYTES + LEAD_BYTES


@inner
def body_at(world: WorldRecord, index: Scalar) -> Scalar:
    """Return the address of what follows a frame's own head."""
    frame = frame_at(world, index)
    return frame.body if frame.row == NONE else row_at(world, frame.row) + frame.body


@inner
def start_at(world: WorldRecord, index: Scalar) -> Scalar:
    """Return the address of a frame's first byte; if the frame is a copy, only its head is there."""
    frame = frame_at(world, index)
    return head_at(world, index) if frame.head > 0 else row_at(world, frame.row)


@inner
def whole_at(world: WorldRecord, index: Scalar) -> Scalar:
    """Return the address of a whole frame, put together if it is a copy; valid until the next call."""
    frame = frame_at(world, index)
    if frame.head == 0:
        return row_at(world, frame.row)
    copy_to(world, index, world.assembly)
    return np.int64(world.assembly)


@inner
def copy_to(world: WorldRecord, index: Scalar, target: Scalar) -> None:
    """Write a frame to an address."""
    frame = frame_at(world, index)
    if frame.head == 0:
        copy_bytes(target, row_at(world, frame.row), frame.length)
        return
    copy_bytes(target, head_at(world, index), frame.head)
    copy_bytes(target + frame.head, body_at(world, index), frame.length - frame.head)


@inner
def mark(world: WorldRecord, index: Scalar) -> bool:
    """Mark an IPv4 frame whose sender understands ECN as one that has met congestion; return whether it is one."""
    frame = frame_at(world, index)
    if frame.length < _IPV4_END:
        return False
    if frame.head == 0 and _holders_of(world, frame.row)[0] > 1:
        _unshare(world, index)
    data = bytes_at(start_at(world, index), _IPV4_END)
    ecn = data[_TOS] & _ECN
    if data[_TYPE] != _IPV4_HIGH or data[_TYPE + 1] != 0 or ecn == 0:
        return False
    if ecn == _ECN:
        return True
    # RFC 1624: the checksum's complement grows by as much as the field does.
    checksum = np.int64(data[_CHECKSUM]) << 8 | np.int64(data[_CHECKSUM + 1])
    total = (checksum ^ 0xFFFF) + (_ECN - np.int64(ecn))
    total = (total & 0xFFFF) + (total >> 16)
    data[_TOS] |= _ECN
    data[_CHECKSUM] = (total ^ 0xFFFF) >> 8
    data[_CHECKSUM + 1] = (total ^ 0xFFFF) & 0xFF
    return True


@inner
def _unshare(world: WorldRecord, index: Scalar) -> None:
    """Give a frame a row of its own: others have its body, but must not have what changes in its headers."""
    frame = frame_at(world, index)
    row = take_row(world)
    copy_bytes(row_at(world, row), row_at(world, frame.row), frame.length)
    let_row_go(world, frame.row)
    frame.row = row
