"""The link to a switch on the same machine: frames stay where they are, descriptors travel through shared memory.

The memory is the switch's.  When the switch ends, the link waits for another one under the same name, asks it for the
same port, and moves its rows there.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from switchsum.native import ring
from switchsum.native.ring import LINK_FIELDS, Link, OutboxLayout, fill_link, next_power_of_two
from switchsum.native.rows import LEAD_BYTES
from switchsum.native.shm import (
    DESCRIPTORS_PASSED,
    MESSAGE_BYTES,
    Answer,
    Hello,
    SharedMemory,
    check_peer,
    socket_path,
)
from switchsum.native.system import Watched, watch
from switchsum.protocol.errors import SwitchLost, TransportError
from switchsum.protocol.wire import Address

from .base import Frames, Indices, Received, milliseconds

OPEN_TIMEOUT_S: Final = 20.0
"""A switch that listens answers at once, but for one that compiles its kernels the first time on a busy machine."""
CONNECT_PAUSE_S: Final = 0.02
REOPEN_TIMEOUT_S: Final = 0.5
REOPEN_PAUSE_S: Final = 0.02
"""Between two looks whether a switch that ended is back."""

CACHED_BYTES: Final = 2 << 20
"""Frames of all workers in flight on one machine that still are in a near cache when the other side comes to them."""
CACHED_BYTES_EACH: Final = 512 << 10

_log = logging.getLogger(__name__)


def cached_bytes(workers: int) -> int:
    """Return what a worker had better have in flight, if all of them share a machine (docs/performance.md)."""
    return min(CACHED_BYTES_EACH, CACHED_BYTES // workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEnd:
    """What kernels need of this side of a link."""

    link: Link
    answers: Frames
    """The rows that the switch writes."""
    rows: Indices
    """Room for the rows of frames that come at a time."""
    lengths: Indices
    """Room for as many lengths."""
    bodies: ring.Addresses
    """Room for as many addresses of shared bodies."""
    watched: Watched
    """The own bell, and the connection, which hangs up when the switch does."""
    switch_bell: int


class ShmTransport:
    """A `Transport` over two shared outboxes."""

    lead = LEAD_BYTES

    def __init__(self, name: str, *, rows: int, frame_bytes: int, answer_rows: int | None = None) -> None:
        """Connect to the switch called `name`; raises TransportError.

        `answer_rows` frames may wait for this worker before the switch drops more (a power of two; at least `rows`, if
        not given).
        """
        hello = Hello(rows=rows, answer_rows=answer_rows or next_power_of_two(rows), frame_bytes=frame_bytes)
        self._name = name
        self._rows = np.zeros(hello.answer_rows, np.int32)
        self._lengths = np.zeros(hello.answer_rows, np.int32)
        self._body_list = np.zeros(hello.answer_rows, np.int64)
        self._gathered: Frames | None = None
        self.max_frame_bytes = frame_bytes
        self.reopened = 0
        self._is_down = False
        answer = self._open(hello, OPEN_TIMEOUT_S)
        self._hello = replace(hello, port=answer.port)
        self.port = answer.port
        self.address = Address(mac=answer.mac, ip=answer.ip, port=answer.udp_port)
        self._compile()

    def _open(self, hello: Hello, timeout_s: float) -> Answer:
        """Shake hands and use the memory that comes; raises TransportError."""
        answer, descriptors, self._connection = _shake_hands(self._name, hello, timeout_s)
        own_layout, peer_layout = hello.outboxes()
        self._own = SharedMemory(descriptors[0], own_layout.total_bytes, writable=True)
        self._peer = SharedMemory(descriptors[1], peer_layout.total_bytes, writable=False)
        self._bell, self._switch_bell = descriptors[2:4]
        self._link = np.zeros(LINK_FIELDS, np.int64)
        fill_link(self._link, own_layout, self._own.address, peer_layout, self._peer.address)
        self._bodies = None
        if answer.body_rows:
            size = answer.body_rows * answer.body_stride
            self._bodies = SharedMemory(descriptors[4], size, writable=False)
            shared = (self._bodies.address, answer.body_rows, answer.body_stride)
            self._link[[ring.PEER_BODIES, ring.PEER_BODY_ROWS, ring.PEER_BODY_STRIDE]] = shared
        self._answers = _frames(self._peer, peer_layout)
        self._poll = select.poll()
        for descriptor in (self._bell, self._connection.fileno()):
            self._poll.register(descriptor, select.POLLIN)
        self.tx_frames: Frames = _frames(self._own, own_layout)
        return answer

    def _reopen(self) -> bool:
        """Go on with a switch that has come back, if one has."""
        before, resources = self.tx_frames, self._resources()
        try:
            self._open(self._hello, REOPEN_TIMEOUT_S)
        except TransportError as error:
            _log.debug("%s", error)
            return False
        self.tx_frames[:] = before
        self._is_down = False
        self.reopened += 1
        _release(*resources)
        _log.warning("the shared-memory link to the switch %r is open again", self._name)
        return True

    def _compile(self) -> None:
        """Have the kernels ready before the first frame, whose time-out would not wait for a compiler."""
        self.send(np.zeros(0, np.int32), np.zeros(0, np.int32))
        self.receive()
        self.release()
        self.wait(0.0)

    def end(self) -> LinkEnd:
        """Return what a loop that is a kernel works on instead of calling `receive`, `send` and `wait`."""
        return LinkEnd(
            link=self._link,
            answers=self._answers,
            rows=self._rows,
            lengths=self._lengths,
            bodies=self._body_list,
            watched=watch([self._bell, self._connection.fileno()]),
            switch_bell=self._switch_bell,
        )

    @property
    def pushed(self) -> int:
        """Return how many frames have been handed over."""
        return int(self._link[ring.HEAD])

    @property
    def consumed(self) -> int:
        """Return how many frames the switch has processed."""
        return ring.consumed(self._link)

    @property
    def malformed(self) -> int:
        """Return how many frames came with a row or a length that cannot be."""
        return int(self._link[ring.MALFORMED])

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Hand over the frames in `rows`, as many as fit."""
        count, asleep = ring.push(self._link, rows, lengths)
        if asleep:
            os.eventfd_write(self._switch_bell, 1)
        return count

    def receive(self) -> Received:
        """Return the frames that have come."""
        count = ring.take(self._link, self._rows, self._lengths, self._body_list)
        rows, lengths = self._rows[:count], self._lengths[:count]
        if not self._body_list[:count].any():
            return Received(self._answers, rows, lengths)
        return Received(self._gather(rows, lengths), np.arange(count, dtype=np.int32), lengths)

    def _gather(self, rows: Indices, lengths: Indices) -> Frames:
        """Return copies of frames, some of which have shared bodies, each in one piece."""
        if self._gathered is None:
            self._gathered = np.zeros_like(self._answers)
        for place, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
            body = int(self._body_list[place])
            if body:
                target = self._gathered.ctypes.data + place * self._gathered.shape[1] + self.lead
                ring.gather(self._link, row, length, body, target)
            else:
                self._gathered[place] = self._answers[row]
        return self._gathered

    def release(self) -> None:
        """Give the rows of the last `receive` back."""
        ring.release(self._link)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the switch rings, unless frames have come; raises SwitchLost."""
        if self._is_down:
            time.sleep(min(timeout_s, REOPEN_PAUSE_S))
            return self._reopen()
        end = time.monotonic() + timeout_s
        while ring.fall_asleep(self._link):
            try:
                events = self._poll.poll(milliseconds(end - time.monotonic()))
            finally:
                ring.set_sleeping(self._link, 0)
            for descriptor, _ in events:
                if descriptor != self._bell:
                    _log.warning("the switch %r has closed the shared-memory link", self._name)
                    self._is_down = True
                    return False
                os.eventfd_read(self._bell)
            if self._link[ring.BROKEN]:
                raise SwitchLost("the switch's side of the shared-memory link makes no sense")
            if not events:
                return ring.waiting(self._link) > 0
            # Rung; if for a frame that was seen before going to sleep, it sleeps on.
        return True

    def close(self) -> None:
        """Close the link; the memory stays for as long as the arrays do."""
        if self._bell < 0:
            return
        _release(*self._resources())
        self._bell = self._switch_bell = -1

    def _resources(self) -> tuple[socket.socket, tuple[int, int], tuple[SharedMemory | None, ...]]:
        return self._connection, (self._bell, self._switch_bell), (self._own, self._peer, self._bodies)


def _release(connection: socket.socket, bells: Iterable[int], memories: Iterable[SharedMemory | None]) -> None:
    """Give back what a link has; memory stays for as long as arrays do."""
    connection.close()
    for bell in bells:
        os.close(bell)
    for memory in memories:
        if memory is not None:
            memory.close()


def _frames(memory: SharedMemory, layout: OutboxLayout) -> Frames:
    """Return an outbox's rows."""
    rows = memory.bytes[layout.frames_offset : layout.total_bytes]
    return rows.reshape(layout.rows, layout.stride)


def _shake_hands(name: str, hello: Hello, timeout_s: float) -> tuple[Answer, list[int], socket.socket]:
    """Connect; return the switch's answer, the descriptors that came with it and the connection."""
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise TransportError(f"no socket for a shared-memory link: {error.strerror}") from error
    descriptors: list[int] = []
    try:
        connection.settimeout(timeout_s)
        _connect(connection, socket_path(name), timeout_s)
        check_peer(connection)
        connection.send(hello.encode())
        data, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, DESCRIPTORS_PASSED)
        if not data:
            raise TransportError(f"the switch {name!r} closed the shared-memory link without a word")
        answer = Answer.decode(data)
        if answer.error or len(descriptors) != DESCRIPTORS_PASSED - (answer.body_rows == 0):
            raise TransportError(
                f"the switch {name!r} refuses a shared-memory link: {answer.error or 'too many files are open here'}"
            )
    except BaseException as error:
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):
            raise TransportError(f"no switch here has shared-memory links under the name {name!r}") from None
        if isinstance(error, TimeoutError | BlockingIOError):
            raise TransportError(f"the switch {name!r} does not answer") from None
        if isinstance(error, OSError):
            raise TransportError(f"the shared-memory link to the switch {name!r}: {error.strerror}") from error
        raise
    return answer, descriptors, connection


def _connect(connection: socket.socket, path: str, timeout_s: float) -> None:
    """Connect to a switch, which may not have come to those who were here before; raises OSError."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return connection.connect(path)
        except BlockingIOError:  # its queue is full, which is no reason for the kernel to wait
            if time.monotonic() > end:
                raise
            time.sleep(CONNECT_PAUSE_S)
