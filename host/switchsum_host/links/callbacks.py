"""Links whose functions are Python methods: the engine's loop calls them back, and is the same as for all links."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from switchsum_switch.kernels.loading import address_of
from switchsum_switch.wires.headers import Address
from switchsum_switch.wires.rows import LEAD_BYTES

from ..engine.link import LinkFunctions, Stop
from .base import Frames, Indices, Received, int32_at

_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


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

    def functions(self) -> LinkFunctions:
        """Return what the loop calls."""
        functions = LinkFunctions()
        methods = _Methods(self, functions)
        for name in ("take", "release", "send", "consumed", "wait", "now"):
            callback = _FUNCTION(_guarded(getattr(methods, name), functions))
            functions.record[name] = ctypes.cast(callback, ctypes.c_void_p).value
            functions.keep.append(callback)
        return functions


def _guarded(method: Callable[[], int], functions: LinkFunctions) -> Callable[[int], int]:
    """Return what calls a method for the loop, and keeps what it raises: no exception can cross native code."""
    errors, stop = functions.errors, functions.record["stop"]

    def call(_: int) -> int:
        result = 0
        try:
            result = method()
        except BaseException as error:
            errors.insert(0, error)
            stop[0] = Stop.RAISED
        return result

    return call


class _Methods:
    """A transport's methods as functions on a `LINK` record."""

    def __init__(self, transport: PythonTransport, functions: LinkFunctions) -> None:
        self._transport = transport
        self._record = {name: functions.record[name] for name in functions.record.dtype.names or ()}
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
        if transport.pushed == record["pushed"][0]:  # else the last call raised when frames had gone
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
