"""How a worker and a switch on one machine come to share two outboxes (outbox.py): memory and hand-shake.

The switch listens on a Unix socket in its user's directory of sockets (runtime_directory.py), or at a path that it is
given.  A worker connects and sends a `Hello`; the switch answers with an `Answer` and five file descriptors: the
worker's outbox, the switch's outbox, the worker's bell, the switch's bell, and the bodies that the switch shares with
all its workers (bodies.py; without those there are four).
The connection stays open for as long as the link lives; when either process ends, however it ends, the kernel closes
it, and nothing is left behind but, of a switch that was killed, the socket's name, which the next one takes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from switchsum_switch.errors import TransportError, UsageError
from switchsum_switch.messages.codec import decode, encode

from ..process.runtime_directory import check_length
from .outbox import LAYOUT_DIGEST, OutboxLayout, next_power_of_two

MAX_ROWS: Final = 16384
"""A switch gives one worker no more rows than this in each direction."""
MESSAGE_BYTES: Final = 4096
"""Longest message of the hand-shake."""
DESCRIPTORS_PASSED: Final = 5
_F_SEAL_FUTURE_WRITE: Final = 0x10  # Linux 5.1; the fcntl module knows it from Python 3.13 on
_CREDENTIALS: Final = struct.Struct("3i")


def socket_path(name: str) -> str:
    """Return the path of the switch called `name`; a name with a slash is the path itself.

    Raises UsageError for a text that is no name, LocalError when the user has no directory of sockets.
    """
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        encoded = b""
    if not encoded or b"\0" in encoded:
        raise UsageError(f"a shared-memory link needs a name or a path (--shm here, link shm:here), not {name!r}")
    path = name
    if "/" not in name:
        from ..process.runtime_directory import runtime_directory  # noqa: PLC0415 - launchers give paths

        path = f"{runtime_directory()}/shm-{name}"
    check_length(path)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a worker asks for."""

    rows: int
    """Rows of its own outbox, 1 to `MAX_ROWS`."""
    answer_rows: int
    """Rows of the switch's outbox, a power of two, 1 to `MAX_ROWS`."""
    frame_bytes: int
    """Longest frame in either direction."""
    port: int = -1
    """Number of the port that the worker wants because it had it before; -1: any."""
    keeps_port: bool = False
    """A job runs over it, so that entries of the switch name the port, and the worker can have no other."""
    layout: str = LAYOUT_DIGEST
    """Digest of the memory layout that the worker knows."""

    def outboxes(self) -> tuple[OutboxLayout, OutboxLayout]:
        """Return the layouts of the worker's and of the switch's outbox."""
        rows, answers = self.rows, self.answer_rows
        return (
            OutboxLayout(rows=rows, capacity=next_power_of_two(rows), frame_bytes=self.frame_bytes),
            OutboxLayout(rows=answers, capacity=answers, frame_bytes=self.frame_bytes),
        )

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """Read a message; raises TransportError, which says what is wrong with it."""
        try:
            hello = decode(cls, data)
        except ValueError as error:
            raise TransportError(f"not a hello: {error}") from None
        if hello.layout != LAYOUT_DIGEST:
            raise TransportError(
                f"the worker's ring layout is {hello.layout!r}, the switch's {LAYOUT_DIGEST!r}: "
                "they are of different versions of switchsum"
            )
        for value in (hello.rows, hello.answer_rows):
            if not 0 < value <= MAX_ROWS:
                raise TransportError(f"a link has 1 to {MAX_ROWS} rows, not {value!r}")
        if hello.answer_rows & (hello.answer_rows - 1):
            raise TransportError(f"the number of answer rows is a power of two, not {hello.answer_rows}")
        return hello


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the switch says to a hello; the descriptors come with it unless there is an error."""

    error: str = ""
    """Why there is no link."""
    port: int = -1
    """Number of the switch's port."""
    mac: int = 0
    """The worker's Ethernet address, 48 bits."""
    ip: int = 0
    """IPv4 address."""
    udp_port: int = 0
    """UDP port."""
    body_rows: int = 0
    """Number of bodies that workers share; 0: none, and their descriptor is not sent."""
    body_stride: int = 0
    """Bytes from one to the next."""

    @classmethod
    def decode(cls, data: bytes) -> Answer:
        """Read a message; raises TransportError."""
        try:
            return decode(cls, data)
        except ValueError as error:
            raise TransportError(f"the switch's answer makes no sense: {error}") from None

    def encode(self) -> bytes:
        """Write the message."""
        return encode(self)


class SharedMemory:
    """A mapped memfd."""

    def __init__(self, descriptor: int, size: int, *, writable: bool) -> None:
        """Map `size` bytes of `descriptor`, which this object owns from now on; raises OSError."""
        self.descriptor = descriptor
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._map = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=protection)

    @classmethod
    def create(cls, name: str, size: int, *, theirs: bool) -> Self:
        """Make memory of a fixed size, with all pages allocated; only the other side writes it, or only we do.

        Raises TransportError when there is not enough memory: without `posix_fallocate` that would be a SIGBUS later,
        and without a look at what is available the kernel would kill some process to make room, perhaps another one.
        """
        if size > (available := _available_bytes()):
            raise TransportError(
                f"a link needs {size / 1e6:.1f} MB of memory, but only {available / 1e6:.1f} MB are left"
            )
        descriptor = os.memfd_create(f"switchsum {name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(descriptor, 0, size)
            memory = cls(descriptor, size, writable=not theirs)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals | (0 if theirs else _F_SEAL_FUTURE_WRITE))
        except OSError as error:
            os.close(descriptor)
            raise TransportError(
                f"cannot get {size / 1e6:.1f} MB of shared memory for a link: {error.strerror}"
            ) from error
        return memory

    @property
    def address(self) -> int:
        """Address where the memory is mapped."""
        return int(self.bytes.ctypes.data)

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """The memory as an array, which keeps the mapping alive."""
        return np.frombuffer(self._map, np.uint8)

    def close(self) -> None:
        """Close the descriptor, and unmap unless an array is left; calling it again does nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        try:
            self._map.close()
        except BufferError:  # the last array unmaps it
            pass


def _available_bytes() -> int:
    """Return how much memory can be had without swapping."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) << 10


def check_peer(connection: socket.socket) -> int:
    """Return the other side's process id; raises TransportError when it is neither our own user nor root."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid not in (0, os.geteuid()):
        raise TransportError(f"process {pid} belongs to user {uid}, neither root nor {os.geteuid()}")
    return int(pid)
