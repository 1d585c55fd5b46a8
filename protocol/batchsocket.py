"""Many datagrams per system call: sendmmsg and recvmmsg over message headers that are built once.

Linux, 64 bits.  Frames go from and to memory by address, nothing is copied on this side of the kernel, and no Python
runs per frame.
"""

from __future__ import annotations

import ctypes
import errno
import socket
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum.protocol.kernels import kernel
from switchsum.protocol.rows import LEAD_BYTES, allocate_rows
from switchsum.protocol.system import last_error, receive_many, send_many

Addresses = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int32]

BATCH_DATAGRAMS: Final = 64
"""Datagrams per system call: beyond this, its own cost no longer shows."""
BUFFER_BYTES: Final = 8 << 20
"""Asked for; without CAP_NET_ADMIN the kernel gives net.core.rmem_max and wmem_max, often 208 KiB."""

MMSGHDR: Final = np.dtype(
    {
        "names": ["name", "name_bytes", "iov", "iov_count", "control", "control_bytes", "flags", "length"],
        "formats": ["u8", "u4", "u8", "u8", "u8", "u8", "i4", "u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
_IOVEC: Final = np.dtype([("base", "u8"), ("length", "u8")])
_FLAGS_WORD: Final = 6
"""Word of a message header whose low half is the flags."""
_LENGTH_WORD: Final = 7
_EAGAIN: Final = errno.EAGAIN
_EINTR: Final = errno.EINTR
_ENOBUFS: Final = errno.ENOBUFS
_ECONNREFUSED: Final = errno.ECONNREFUSED
_MSG_TRUNC: Final = int(socket.MSG_TRUNC)
_SO_SNDBUFFORCE: Final = 32
_SO_RCVBUFFORCE: Final = 33

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.sendmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int]
_libc.recvmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p]


class MessageWords(NamedTuple):
    """Message headers as 64-bit words; whoever uses them keeps their sender or receiver alive."""

    headers: npt.NDArray[np.int64]
    """`[BATCH_DATAGRAMS, 8]`."""
    pieces: npt.NDArray[np.int64]
    """Address and length of each one's memory, `[BATCH_DATAGRAMS, 2]`."""
    address: int
    """Of the first header."""


class Messages:
    """Headers of `BATCH_DATAGRAMS` messages with one piece of memory each, and a socket address if wanted."""

    def __init__(self, name_bytes: int) -> None:
        self.headers = np.zeros(BATCH_DATAGRAMS, MMSGHDR)
        self.pieces = np.zeros(BATCH_DATAGRAMS, _IOVEC)
        self.names = np.zeros((BATCH_DATAGRAMS, name_bytes), np.uint8)
        self.headers["iov"] = _addresses_of(self.pieces)
        self.headers["iov_count"] = 1
        if name_bytes:
            self.headers["name"] = _addresses_of(self.names)
            self.headers["name_bytes"] = name_bytes
        self.pointer = self.headers.ctypes.data

    def words(self) -> MessageWords:
        """Return the same memory as kernels take it."""
        pieces = self.pieces.view(np.int64).reshape(-1, 2)
        return MessageWords(self.headers.view(np.int64).reshape(-1, 8), pieces, self.pointer)


NO_NAMES: Final = np.zeros((0, 0), np.uint8)
"""For sockets that have a destination."""


class BatchSender:
    """Sends datagrams through sockets that do not block."""

    def __init__(self, *, name_bytes: int = 0) -> None:
        """Give every datagram a destination of `name_bytes`; 0: the socket has one."""
        self._messages = Messages(name_bytes)
        self.failed = 0
        """Datagrams that the kernel refused (too long, no route, interface down); they count as sent."""

    def send(
        self,
        descriptor: int,
        addresses: Addresses,
        lengths: npt.NDArray[np.integer],
        names: npt.NDArray[np.uint8] = NO_NAMES,
    ) -> int:
        """Send datagrams in order until the socket is full, to the destinations `names`; return how many went."""
        messages, sent = self._messages, 0
        while sent < len(addresses):
            count = min(BATCH_DATAGRAMS, len(addresses) - sent)
            messages.pieces["base"][:count] = addresses[sent : sent + count]
            messages.pieces["length"][:count] = lengths[sent : sent + count]
            if names.size:
                messages.names[:count] = names[sent : sent + count]
            went = _libc.sendmmsg(descriptor, messages.pointer, count, socket.MSG_DONTWAIT)
            if went > 0:
                sent += went
                continue
            error = ctypes.get_errno()
            if error in (errno.EAGAIN, errno.ENOBUFS):
                break
            if error not in (errno.EINTR, errno.ECONNREFUSED):  # the latter is about a datagram sent before
                self.failed += 1
                sent += 1
        return sent

    def words(self) -> MessageWords:
        """Return what `send_rows` takes."""
        return self._messages.words()


class BatchReceiver:
    """Receives datagrams into rows of its own; each call overwrites what the last one brought."""

    def __init__(self, frame_bytes: int, *, skip: int = 0, name_bytes: int = 0) -> None:
        """Have rows for frames of `frame_bytes`, whose first `skip` bytes are not in the datagram.

        `name_bytes` make room for each datagram's source.
        """
        self.rows = allocate_rows(BATCH_DATAGRAMS, frame_bytes)
        self._skip = skip
        self._messages = Messages(name_bytes)
        self._messages.pieces["base"] = _addresses_of(self.rows) + np.uint64(LEAD_BYTES + skip)
        self._messages.pieces["length"] = frame_bytes - skip

    def receive(self, descriptor: int, limit: int) -> int:
        """Receive at most `limit` datagrams; return how many came."""
        headers = self._messages.headers
        headers["name_bytes"] = self._messages.names.shape[1]
        limit = min(limit, BATCH_DATAGRAMS)
        count: int = _libc.recvmmsg(descriptor, self._messages.pointer, limit, socket.MSG_DONTWAIT, None)
        # Nothing there, or the report that an earlier datagram found no receiver or that an interface went down.
        return max(count, 0)

    def words(self) -> MessageWords:
        """Return what `receive_rows` takes."""
        return self._messages.words()

    @property
    def names(self) -> npt.NDArray[np.uint8]:
        """Return the sources' socket addresses, `[BATCH_DATAGRAMS, name_bytes]`."""
        return self._messages.names

    def lengths(self, count: int) -> npt.NDArray[np.int32]:
        """Return the frames' lengths, including what was skipped; 0 for a datagram too long for its row."""
        headers = self._messages.headers[:count]
        lengths = headers["length"].astype(np.int32) + self._skip
        lengths[(headers["flags"] & socket.MSG_TRUNC) != 0] = 0
        return lengths


@kernel
def send_rows(
    descriptor: int, messages: MessageWords, first: int, stride: int, rows: Indices, lengths: Indices, skip: int
) -> tuple[int, int]:
    """Send the frames in `rows`, without their first `skip` bytes, in order until the socket is full.

    `first` is the address of the first row's frame, behind what is skipped.  Returns how many went, and how many of
    these the socket refused.
    """
    sent = failed = 0
    while sent < len(rows):
        count = min(BATCH_DATAGRAMS, len(rows) - sent)
        for i in range(count):
            messages.pieces[i, 0] = first + rows[sent + i] * stride
            messages.pieces[i, 1] = lengths[sent + i] - skip
        went = send_many(descriptor, messages.address, count)
        if went > 0:
            sent += went
            continue
        error = last_error()
        if error in (_EAGAIN, _ENOBUFS):
            break
        if error not in (_EINTR, _ECONNREFUSED):
            failed += 1
            sent += 1
    return sent, failed


@kernel
def receive_rows(descriptor: int, messages: MessageWords, lengths: Indices, skip: int) -> int:
    """Receive datagrams into rows that `messages` names, at most `BATCH_DATAGRAMS`; return how many came.

    `lengths` are the frames', including what was skipped; 0 for a datagram too long for its row.
    """
    count = receive_many(descriptor, messages.address, BATCH_DATAGRAMS)
    for i in range(count):
        cut = messages.headers[i, _FLAGS_WORD] & _MSG_TRUNC
        lengths[i] = 0 if cut else (messages.headers[i, _LENGTH_WORD] & 0xFFFF_FFFF) + skip
    return max(count, 0)


def grow_buffers(link: socket.socket, *, sending: bool = True) -> None:
    """Make a socket's buffers as large as we may; the one for sending only if `sending`."""
    both = ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF))
    for forced, option in both if sending else both[:1]:
        try:
            link.setsockopt(socket.SOL_SOCKET, forced, BUFFER_BYTES)
        except PermissionError:
            link.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


def receive_bytes() -> int:
    """Return how much may wait in a UDP socket of this process, as the kernel counts it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        grow_buffers(probe, sending=False)
        return probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _addresses_of(array: npt.NDArray[np.generic]) -> Addresses:
    """Return the addresses of an array's entries along its first axis."""
    return array.ctypes.data + np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0])
