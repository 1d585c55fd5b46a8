"""The link to a switch on the same machine: frames stay where they are, descriptors travel through shared memory.

The memory is the switch's.  When the switch ends, the link waits for another one under the same name, asks it for the
same port, and moves its rows there.

Waking up is what small messages cost.  So a wait looks for frames for a short while, as long as that has paid lately
(switchsum_switch/process/patience.py), and asks to be rung only then.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from switchsum_protocol.errors import TransportError
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import integers_at
from switchsum_switch.kernels.outlined import Native, Outlined
from switchsum_switch.kernels.records import Int64, Record, dtype_of
from switchsum_switch.messages import codec
from switchsum_switch.process.patience import FIELDS, Patience, give_way, look_until, note_wait
from switchsum_switch.process.system import READY, monotonic, poll, ring_bell, silence_bell, watch
from switchsum_switch.wires import outbox, ring
from switchsum_switch.wires.headers import Address
from switchsum_switch.wires.outbox import LINK_FIELDS, OutboxLayout, fill_link, next_power_of_two
from switchsum_switch.wires.shared_memory import (
    DESCRIPTORS_PASSED,
    MESSAGE_BYTES,
    Answer,
    Hello,
    SharedMemory,
    check_peer,
    socket_path,
)

from ..engine.link import LINK, LinkFunctions, LinkRecord, Stop
from .base import Frames
from .native import NativeTransport, nanoseconds, tell_time

OPEN_TIMEOUT_S: Final = 20.0
"""A switch that listens answers at once, but for one that compiles its kernels the first time on a busy machine."""
CONNECT_PAUSE_S: Final = 0.02
REOPEN_TIMEOUT_S: Final = 0.5
REOPEN_PAUSE_S: Final = 0.02
"""Seconds between two looks whether a switch that ended is back."""

CACHED_BYTES: Final = 2 << 20
"""Frames of all workers in flight on one machine that still are in a near cache when the other side comes to them."""
CACHED_BYTES_EACH: Final = 512 << 10

TURN_BYTES: Final = 64 << 10
"""Results that are taken before the contributions that follow them are handed over: meanwhile the switch adds those."""

_log = logging.getLogger("switchsum.host.links.shm")


class LinkRefused(TransportError):
    """The switch is there, and has refused the link: another one has its port, say."""


class ShmRecord(Record):
    """What only the functions of such a link know."""

    ring: Int64
    """Address of the words of the two outboxes (switchsum_switch/wires/ring.py)."""
    most: Int64
    """Frames that are taken at a time, for as many rows, lengths and bodies there is room."""
    watched: Int64
    """Address: the own bell, and the connection, which hangs up when the switch does."""
    switch_bell: Int64


_OWN: Final = dtype_of(ShmRecord)


@Outlined
def _take(link: int) -> int:
    """Take frames from the switch's outbox."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: ShmRecord = carray(pointer(here.own), (1,), _OWN)[0]
    rows = carray(pointer(here.rows), (own.most,), np.int32)
    lengths = carray(pointer(here.lengths), (own.most,), np.int32)
    return int(ring.take(integers_at(own.ring, outbox.LINK_FIELDS), rows, lengths, integers_at(here.bodies, own.most)))


@Outlined
def _release(link: int) -> int:
    """Let the switch have their rows."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: ShmRecord = carray(pointer(here.own), (1,), _OWN)[0]
    ring.release(integers_at(own.ring, outbox.LINK_FIELDS))
    return 0


@Outlined
def _send(link: int) -> int:
    """Name what is queued in the own outbox."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: ShmRecord = carray(pointer(here.own), (1,), _OWN)[0]
    words = integers_at(own.ring, outbox.LINK_FIELDS)
    rows = carray(pointer(here.queue_rows), (here.queued,), np.int32)
    lengths = carray(pointer(here.queue_lengths), (here.queued,), np.int32)
    _, asleep = ring.push(words, rows, lengths)
    if asleep:
        ring_bell(own.switch_bell)
    here.pushed = words[outbox.HEAD]
    return 0


@Outlined
def _consumed(link: int) -> int:
    """Return how many frames the switch has taken."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: ShmRecord = carray(pointer(here.own), (1,), _OWN)[0]
    words = integers_at(own.ring, outbox.LINK_FIELDS)
    count = ring.consumed(words)
    if words[outbox.BROKEN] != 0:
        here.stop = Stop.BROKEN
    return int(count)


@Outlined
def _wait(link: int) -> int:
    """Look for frames for a while, then sleep."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: ShmRecord = carray(pointer(here.own), (1,), _OWN)[0]
    words = integers_at(own.ring, outbox.LINK_FIELDS)
    watched = carray(pointer(own.watched), (2, 2), np.int32)
    patience = carray(pointer(here.patience), (FIELDS,), np.float64)
    began = monotonic()
    if _look(words, patience, began, here.until) or not ring.fall_asleep(words):
        note_wait(patience, True, monotonic() - began)
        return 1
    ready = poll(own.watched, 2, nanoseconds(here.until - monotonic()))
    ring.set_sleeping(words, 0)
    note_wait(patience, False, monotonic() - began)
    if ready > 0:
        if watched[1, 1] & READY:
            here.stop = Stop.HUNG_UP
            return 0
        silence_bell(watched[0, 0])
    came = ring.waiting(words) > 0
    if words[outbox.BROKEN] != 0:
        here.stop = Stop.BROKEN
    return int(came)


@inner
def _look(words: outbox.RingPair, patience: Patience, now: float, until: float) -> bool:
    """Look for frames for as long as patience allows, and the clock; True when frames have come."""
    until = min(until, look_until(patience, now))
    while ring.waiting(words) <= 0:
        if now >= until:
            return False
        now = give_way(patience, now)
    return True


def cached_bytes(workers: int) -> int:
    """Return what a worker had better have in flight, if all of them share a machine (docs/benchmarks.md)."""
    return min(CACHED_BYTES_EACH, CACHED_BYTES // workers)


class ShmTransport(NativeTransport):
    """A `Transport` over two shared outboxes."""

    natives: ClassVar[Mapping[str, Native]] = {
        "take": _take,
        "release": _release,
        "send": _send,
        "consumed": _consumed,
        "wait": _wait,
        "now": tell_time,
    }

    def __init__(self, name: str, *, rows: int, frame_bytes: int, answer_rows: int | None = None) -> None:
        """Connect to the switch called `name`; raises TransportError.

        `answer_rows` frames may wait for this worker before the switch drops more (a power of two; at least `rows`, if
        not given).
        """
        hello = Hello(rows=rows, answer_rows=answer_rows or next_power_of_two(rows), frame_bytes=frame_bytes)
        self._name = name
        self.max_frame_bytes = frame_bytes
        self.reopened = 0
        self._is_down = False
        self._is_in_use = False
        """The switch has entries with the port, so that the link must keep it."""
        self._open(hello, OPEN_TIMEOUT_S)

    def _open(self, hello: Hello, timeout_s: float) -> None:
        """Shake hands and use the memory, the port and the address that come; raises TransportError."""
        answer, descriptors, connection = _shake_hands(self._name, hello, timeout_s)
        own_layout, peer_layout = hello.outboxes()
        sizes = own_layout.total_bytes, peer_layout.total_bytes, answer.body_rows * answer.body_stride
        try:
            own = SharedMemory(descriptors[0], sizes[0], writable=True)
            peer = SharedMemory(descriptors[1], sizes[1], writable=False)
            bodies = SharedMemory(descriptors[4], sizes[2], writable=False) if answer.body_rows else None
        except OSError as error:  # the address space of this process is full, say
            _give_back(connection, descriptors, ())
            raise TransportError(
                f"cannot map {sum(sizes) / 1e6:.1f} MB of memory for a link: {error.strerror}"
            ) from None
        self._connection, self._own, self._peer, self._bodies = connection, own, peer, bodies
        self._bell, self._switch_bell = descriptors[2:4]
        self._link = np.zeros(LINK_FIELDS, np.int64)
        fill_link(self._link, own_layout, own.address, peer_layout, peer.address)
        if bodies is not None:
            shared = (bodies.address, answer.body_rows, answer.body_stride)
            self._link[[outbox.PEER_BODIES, outbox.PEER_BODY_ROWS, outbox.PEER_BODY_STRIDE]] = shared
        self.tx_frames = _frames(self._own, own_layout)
        self._describe(_frames(self._peer, peer_layout))
        self._hello = replace(hello, port=answer.port)
        self.port = answer.port
        self.address = Address(mac=answer.mac, ip=answer.ip, port=answer.udp_port)

    def functions(self) -> LinkFunctions:
        """Return what the loop calls; from then on a link that is opened again keeps its port."""
        self._is_in_use = True
        return super().functions()

    def _describe(self, answers: Frames) -> None:
        """Tell the functions where things are, the rows that the switch writes among them."""
        most = max(1, TURN_BYTES // answers.shape[1])
        rows, lengths, bodies = np.zeros(most, np.int32), np.zeros(most, np.int32), np.zeros(most, np.int64)
        watched = watch([self._bell, self._connection.fileno()])
        own = np.zeros(1, _OWN)
        own[0] = address_of(self._link), most, address_of(watched), self._switch_bell
        self.set_functions(own, self._link, watched, answers, rows, lengths, bodies)
        record = super().functions().record
        record["frames"], record["stride"] = address_of(answers), answers.shape[1]
        record["rows"], record["lengths"], record["bodies"] = map(address_of, (rows, lengths, bodies))

    def _reopen(self) -> bool:
        """Go on with a switch that has come back, if one has."""
        before, resources = self.tx_frames, self._resources()
        try:
            self._open(replace(self._hello, keeps_port=self._is_in_use), REOPEN_TIMEOUT_S)
        except TransportError as error:
            _log.debug("%s", error)
            if isinstance(error, LinkRefused) and not self._is_in_use:
                self._hello = replace(self._hello, port=-1)  # another worker has been given the port
            return False
        self.tx_frames[:] = before
        self._is_down = False
        self.reopened += 1
        _give_back(*resources)
        _log.warning("the shared-memory link to the switch %r is open again", self._name)
        return True

    @property
    def malformed(self) -> int:
        """Return how many frames came with a row or a length that cannot be."""
        return int(self._link[outbox.MALFORMED])

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the switch rings, unless frames have come; raises SwitchLost.

        When the switch has ended, the link is opened again once another one is there.
        """
        if self._is_down:
            time.sleep(min(timeout_s, REOPEN_PAUSE_S))
            return self._reopen()
        has_come = super().wait(timeout_s)
        if super().functions().record["stop"][0] == Stop.HUNG_UP:
            _log.warning("the switch %r has closed the shared-memory link", self._name)
            self._is_down = True
        return has_come

    def close(self) -> None:
        """Close the link; the memory stays for as long as the arrays do."""
        if self._bell < 0:
            return
        _give_back(*self._resources())
        self._bell = self._switch_bell = -1

    def _resources(self) -> tuple[socket.socket, tuple[int, int], tuple[SharedMemory | None, ...]]:
        return self._connection, (self._bell, self._switch_bell), (self._own, self._peer, self._bodies)


def _give_back(connection: socket.socket, bells: Iterable[int], memories: Iterable[SharedMemory | None]) -> None:
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
        raise TransportError(f"cannot make a socket for a shared-memory link: {error.strerror}") from error
    descriptors: list[int] = []
    try:
        connection.settimeout(timeout_s)
        _connect(connection, socket_path(name), timeout_s)
        check_peer(connection)
        connection.send(codec.encode(hello))
        data, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, DESCRIPTORS_PASSED)
        if not data:
            raise TransportError(
                f"the switch {name!r} closed the shared-memory link before it was open: its log says why"
            )
        answer = Answer.decode(data)
        if answer.error or len(descriptors) != DESCRIPTORS_PASSED - (answer.body_rows == 0):
            raise LinkRefused(
                f"the switch {name!r} refuses a shared-memory link: {answer.error or 'too many files are open here'}"
            )
    except BaseException as error:
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):
            raise TransportError(
                f"no switch here has shared-memory links under the name {name!r} (switchsum switch --shm {name})"
            ) from None
        if isinstance(error, TimeoutError | BlockingIOError):
            raise TransportError(
                f"the switch {name!r} listens for shared-memory links and does not answer: it is stopped or busy"
            ) from None
        if isinstance(error, OSError):
            raise TransportError(
                f"cannot open the shared-memory link to the switch {name!r}: {error.strerror}"
            ) from error
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
