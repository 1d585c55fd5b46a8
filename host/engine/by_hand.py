"""What Python calls of an engine that no loop drives: in a test, or a program with a link of its own."""

from __future__ import annotations

from switchsum.native.kernels.outlined import Outlined

from . import machine
from .loop_kernels import state_at, submit_record


@Outlined
def submit(arrays: int, record: int, now: float) -> int:
    """Begin the operation whose `OPERATION` record is at an address."""
    submit_record(arrays, record, now)
    return 0


@Outlined
def receive(arrays: int, frames: int, stride: int, rows: int, lengths: int, count: int, now: float) -> int:
    """Take frames that are whole; see `machine.receive`."""
    machine.receive(state_at(arrays), frames, stride, rows, lengths, 0, count, now)
    return 0


@Outlined
def poll(arrays: int, now: float) -> int:
    """Do what time, and the transport's progress, allow."""
    machine.poll(state_at(arrays), now)
    return 0


@Outlined
def wake_at(arrays: int) -> float:
    """Return when `poll` has something to do if no frame comes; infinity: never."""
    return machine.wake_at(state_at(arrays))


@Outlined
def sent(arrays: int, count: int) -> int:
    """Note that the transport took the first `count` frames of the queue."""
    machine.sent(state_at(arrays), count)
    return 0
