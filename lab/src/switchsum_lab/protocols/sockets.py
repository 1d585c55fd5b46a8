"""A host of a protocol on a real link: an AF_PACKET socket that gives it every frame, whatever its UDP ports are."""

from __future__ import annotations

import os
import random
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from switchsum_switch.wires.packetsocket import open_packet_socket

from .seam import Driver, Steps

_FRAME_BYTES: Final = 1 << 16
_BUFFER_BYTES: Final = 4 << 20
_SO_RCVBUFFORCE: Final = 33


class PacketLink:
    """A host's link: what it sends goes to an interface, and what comes from there it is given."""

    def __init__(self, host: int, interface: str, *, loss: float = 0.0, seed: int = 0) -> None:
        """Open the interface; `loss` is the probability that a frame is lost, in each direction.

        Raises TransportError.
        """
        self.host = host
        self.frames = self.bytes = 0
        """Number of frames that it has sent."""
        self._loss, self._random = loss, random.Random(f"{seed} {host}")
        self.socket = open_packet_socket(interface)
        self.socket.setblocking(False)
        with suppress(OSError):  # only root may go beyond what the system allows
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)

    def send(self, frame: bytes | bytearray | memoryview) -> None:
        """Send a frame, unless chance loses it."""
        self.frames += 1
        self.bytes += len(frame)
        if self._loss and self._random.random() < self._loss:
            return
        while True:
            try:
                self.socket.send(frame)
                return
            except BlockingIOError:  # the link sends at its rate
                select.select([], [self.socket], [])

    def receive(self) -> bytes | None:
        """Return the next frame, None if none has come."""
        while True:
            try:
                frame = self.socket.recv(_FRAME_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not self._loss or self._random.random() >= self._loss:
                return frame

    def now(self) -> float:
        """Return the machine's monotonic clock."""
        return time.monotonic()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class Service:
    """Runs a host on its link, in a thread: between calls it answers others, whose frames may have been lost."""

    def __init__(self, link: PacketLink, unasked: Callable[[bytes], None] = lambda frame: None) -> None:
        self._link, self._driver = link, Driver(unasked)
        self._calls: deque[_Call] = deque()
        self._current: _Call | None = None
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="protocol", daemon=True)
        self._thread.start()

    def call(self, steps: Steps, timeout_s: float | None = None) -> None:
        """Run a call to its end; raises what it raises, and TimeoutError."""
        call = _Call(steps)
        self._calls.append(call)
        os.eventfd_write(self._bell, 1)
        if not call.done.wait(timeout_s):
            raise TimeoutError(f"the protocol has not finished within {timeout_s:g} s")
        if call.error is not None:
            raise call.error

    def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        os.eventfd_write(self._bell, 1)
        self._thread.join()
        os.close(self._bell)

    def _serve(self) -> None:
        ends = [self._link.socket.fileno(), self._bell]
        while not self._is_closed:
            try:
                self._work()
            except BaseException as error:
                if self._current is None:
                    raise
                self._current.error = error
                self._current.done.set()
                return
            left = None if self._driver.until is None else max(0.0, self._driver.until - self._link.now())
            if self._bell in select.select(ends, [], [], left)[0]:
                os.eventfd_read(self._bell)

    def _work(self) -> None:
        """Do all that can be done now."""
        link, driver = self._link, self._driver
        while True:
            if self._current is None and self._calls:
                self._current = self._calls.popleft()
                driver.begin(self._current.steps)
            frame = link.receive()
            if frame is not None:
                driver.take(frame)
            driver.tick(link.now())
            if self._current is not None and driver.is_done:
                self._current.done.set()
                self._current = None
            elif frame is None:
                return


class _Call:
    """A call that a rank waits for."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.done = steps, threading.Event()
        self.error: BaseException | None = None
