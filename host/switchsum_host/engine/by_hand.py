"""What Python calls of an engine beside its loop.

All but `restore_by_hand` is for engines that no loop drives: in a test, or in a program with a link of its own.
"""

from __future__ import annotations

import numpy as np

from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.outlined import Outlined

from . import receiving, recovery, sending
from .state import state_at


@Outlined
def submit_by_hand(arrays: int, record: int, now: float) -> int:
    """Begin the operation whose `OPERATION` record is at an address."""
    sending.take_operation(state_at(arrays), record, now)
    return 0


@Outlined
def receive_by_hand(
    arrays: int, frames: int, stride: int, rows: int, lengths: int, bodies: int, count: int, now: float
) -> int:
    """Take frames; see `receiving.receive`."""
    receiving.receive(state_at(arrays), frames, stride, rows, lengths, bodies, count, now)
    return 0


@Outlined
def poll_by_hand(arrays: int, now: float) -> int:
    """Do what time, and the transport's progress, allow."""
    recovery.poll(state_at(arrays), now)
    return 0


@Outlined
def wake_at_by_hand(arrays: int) -> float:
    """Return when `poll` has something to do if no frame comes; infinity: never."""
    return recovery.wake_at(state_at(arrays))


@Outlined
def tell_wake_at_by_hand(arrays: int, target: int) -> int:
    """Write the same to an address: kernels take only integers of what they call by address."""
    carray(pointer(target), (1,), np.float64)[0] = recovery.wake_at(state_at(arrays))
    return 0


@Outlined
def sent_by_hand(arrays: int, count: int) -> int:
    """Note that the transport took the first `count` frames of the queue."""
    sending.sent(state_at(arrays), count)
    return 0


@Outlined
def restore_by_hand(arrays: int, now: float) -> int:
    """Begin to tell a restarted switch what it needs."""
    recovery.restore(state_at(arrays), now)
    return 0
