"""What Python calls of an engine that no loop drives: in a test, or in a program with a link of its own."""

from __future__ import annotations

from switchsum.native.kernels.outlined import Outlined

from . import receiving, recovery, sending
from .loop import state_at, submit_record


@Outlined
def submit_by_hand(arrays: int, record: int, now: float) -> int:
    """Begin the operation whose `OPERATION` record is at an address."""
    submit_record(arrays, record, now)
    return 0


@Outlined
def receive_by_hand(arrays: int, frames: int, stride: int, rows: int, lengths: int, count: int, now: float) -> int:
    """Take frames that are whole; see `receiving.receive`."""
    receiving.receive(state_at(arrays), frames, stride, rows, lengths, 0, count, now)
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
def sent_by_hand(arrays: int, count: int) -> int:
    """Note that the transport took the first `count` frames of the queue."""
    sending.sent(state_at(arrays), count)
    return 0
