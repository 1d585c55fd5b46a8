"""Links whose operations are Python methods: the engine's loop calls them back, and is the same as for all links."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Generator
from typing import Any, Final

import numpy as np

from switchsum.native.kernels.loading import address_of
from switchsum.native.wires.rows import LEAD_BYTES
from switchsum.protocol.wire import Address

from ..engine.link import Operations, Stop
from .base import Frames, Indices, Received, int32_at

_OPERATION: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


class PythonTransport:
    """What a `Transport` that is written in Python inherits; it has `send`, `receive`, `wait` and `close` of its own.

    It sets `address`, `max_frame_bytes` and `tx_frames`, and counts `pushed` in `send`.  What its methods raise is
    raised by the driver, once the loop has returned.
    """

    address: Address
    max_frame_bytes: int
    tx_frames: Frames
    lead = LEAD_BYTES
    reopened = 0
    pushed = 0

    @property
    def consumed(self) -> int:
        """Return as many as were handed over: whoever copies what it sends reads no row after that."""
        return self.pushed

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Hand over the frames in `rows`; see `Transport`."""
        raise NotImplementedError

    def receive(self) -> Received:
        """Return the frames that have come; see `Transport`."""
        raise NotImplementedError

    def release(self) -> None:
        """Do nothing: the next `receive` overwrites the rows."""

    def wait(self, timeout_s: float) -> bool:
        """Block until something may be received; see `Transport`."""
        raise NotImplementedError

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def operations(self) -> Operations:
        """Return what the loop calls."""
        operations = Operations()
        methods = _Methods(self, operations)
        for name in ("take", "release", "send", "consumed", "wait", "now"):
            callback = _OPERATION(_guarded(getattr(methods, name), operations).send)
            operations.record[name] = ctypes.cast(callback, ctypes.c_void_p).value
            operations.keep.append(callback)
        return operations


def _guarded(method: Callable[[], int], operations: Operations) -> Generator[int, int, None]:
    """Return what calls a method each time that something is sent to it, and keeps what the method raises.

    A generator, for a signal handler may raise on the way in: in a function that would be before its first line,
    outside of any `try`; a generator goes on at its `yield`, within.
    """
    calls = _calls(method, operations.errors, operations.record["stop"])
    next(calls)
    return calls


def _calls(method: Callable[[], int], errors: list[BaseException], stop: Any) -> Generator[int, int, None]:
    result = 0
    while True:
        try:
            while True:  # in here: a signal handler may raise where a loop goes back, too
                yield result
                result = method()
        except GeneratorExit:
            return
        except BaseException as error:
            errors.insert(0, error)
            stop[0] = Stop.RAISED
            result = 0


class _Methods:
    """A transport's methods as operations on a `LINK` record."""

    def __init__(self, transport: PythonTransport, operations: Operations) -> None:
        self._transport = transport
        self._record = {name: operations.record[name] for name in operations.record.dtype.names or ()}
        self._record["pushed"][0] = transport.pushed
        self._taken: tuple[Frames, Indices, Indices] | None = None

    def take(self) -> int:
        received, record = self._transport.receive(), self._record
        count = len(received.rows)
        if count:
            rows, lengths = (np.ascontiguousarray(array, np.int32) for array in (received.rows, received.lengths))
            self._taken = received.frames, rows, lengths
            record["frames"][0], record["stride"][0] = address_of(received.frames), received.frames.strides[0]
            record["rows"][0], record["lengths"][0] = address_of(rows), address_of(lengths)
        return count

    def release(self) -> int:
        self._transport.release()
        return 0

    def send(self) -> int:
        transport, record = self._transport, self._record
        if transport.pushed == record["pushed"][0]:  # else of a call that was interrupted before it could say so
            queued = int(record["queued"][0])
            rows, lengths = (int32_at(int(record[name][0]), queued) for name in ("queue_rows", "queue_lengths"))
            transport.send(rows, lengths)
        record["pushed"][0] = transport.pushed
        return 0

    def consumed(self) -> int:
        return self._transport.consumed

    def wait(self) -> int:
        return self._transport.wait(float(self._record["until"][0]) - self._transport.now())

    def now(self) -> int:
        self._record["time"][0] = self._transport.now()
        return 0
