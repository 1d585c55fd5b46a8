"""Many frames or datagrams per system call (sendmmsg, recvmmsg): what UDP and AF_PACKET have in common.

Linux, 64 bits.  Frames go from and to memory by address, nothing is copied on this side of the kernel, and no Python
runs per frame.  What goes to one destination and has one length crosses the kernel together where it can do that: as
one message, a *super-datagram* of UDP (datagrams.py) or a *super-frame* of AF_PACKET (segmentation.py).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..kernels.decorators import inner
from ..kernels.intrinsics import carray, pointer
from ..kernels.memory import integers_at
from ..process.system import last_error, send_many

Addresses = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

MOST_MESSAGES: Final = 64
"""Messages per system call: with more, the cost of a call for each of them hardly falls."""
MOST_SEGMENTS: Final = 64
"""Most frames of a message that is sent (UDP_MAX_SEGMENTS of older kernels)."""
BUFFER_BYTES: Final = 8 << 20
"""Buffers that are asked for; without CAP_NET_ADMIN the kernel gives net.core.rmem_max and wmem_max, often 208 KiB."""

MMSGHDR: Final = np.dtype(
    {
        "names": ["name", "name_bytes", "iov", "iov_count", "control", "control_bytes", "flags", "length"],
        "formats": ["u8", "u4", "u8", "u8", "u8", "u8", "i4", "u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
MESSAGE_WORDS: Final = MMSGHDR.itemsize // 8
NAME_BYTES_WORD: Final = 1
"""Words of a message header, as kernels see it."""
PIECES_WORD: Final = 3
CONTROL_BYTES_WORD: Final = 5
LENGTH_WORD: Final = 7
"""Index of the word with the length; its high half is unused."""
NAME_WORDS: Final = 2
"""Words of a sockaddr_in. The first has all of it, the second is padding."""
EXTRA_WORDS: Final = 8

REFUSED: Final = 0
"""Index in the state: frames that the kernel refused so far (too long, no route, interface down)."""
TOGETHER: Final = 1
"""Index in the state. 1: messages of several frames go, as far as is known."""

_EAGAIN: Final = errno.EAGAIN
_EINTR: Final = errno.EINTR
_ENOBUFS: Final = errno.ENOBUFS
_ECONNREFUSED: Final = errno.ECONNREFUSED
_EINVAL: Final = errno.EINVAL
_EIO: Final = errno.EIO
_EMSGSIZE: Final = errno.EMSGSIZE
_EOPNOTSUPP: Final = errno.EOPNOTSUPP
_SO_SNDBUFFORCE: Final = 32
_SO_RCVBUFFORCE: Final = 33


class SendWords(NamedTuple):
    """Messages that a kernel fills in and sends."""

    headers: npt.NDArray[np.int64]
    """Headers of the messages, `[MOST_MESSAGES, 8]`."""
    address: int
    """Address of the first header."""
    pieces: npt.NDArray[np.int64]
    """Address and length of each message's pieces of memory, `[MOST_MESSAGES, 1 + MOST_SEGMENTS, 2]`."""
    extras: npt.NDArray[np.int64]
    """Further words of a message of several frames, `[MOST_MESSAGES, EXTRA_WORDS]`."""
    names: npt.NDArray[np.int64]
    """Destinations, `[MOST_MESSAGES, NAME_WORDS]`."""
    covered: npt.NDArray[np.int64]
    """How many frames are in each message."""
    state: npt.NDArray[np.int64]
    """`REFUSED` and `TOGETHER`."""


SEND_WORDS: Final = 7
"""How many words `packed` makes of `SendWords`."""


class MessageSender:
    """Memory of the messages that are sent through sockets which do not block."""

    def __init__(self, *, together: bool) -> None:
        """Let messages have several frames if `together`, until the kernel says that it does not know them."""
        self.message_headers = np.zeros(MOST_MESSAGES, MMSGHDR)
        pieces = np.zeros((MOST_MESSAGES, 1 + MOST_SEGMENTS, 2), np.int64)
        self.message_headers["iov"] = addresses_of(pieces)
        self.words = SendWords(
            headers=self.message_headers.view(np.int64).reshape(MOST_MESSAGES, -1),
            address=self.message_headers.ctypes.data,
            pieces=pieces,
            extras=np.zeros((MOST_MESSAGES, EXTRA_WORDS), np.int64),
            names=np.zeros((MOST_MESSAGES, NAME_WORDS), np.int64),
            covered=np.zeros(MOST_MESSAGES, np.int64),
            state=np.array([0, together], np.int64),
        )

    @property
    def refused(self) -> int:
        """Return how many frames the kernel has refused so far; they count as sent."""
        return int(self.words.state[REFUSED])


@inner
def send_words_at(address: int) -> SendWords:
    """Return the words that were `packed` to an address."""
    words = integers_at(address, SEND_WORDS)
    return SendWords(
        carray(pointer(words[0]), (MOST_MESSAGES, MESSAGE_WORDS), np.int64),
        words[1],
        carray(pointer(words[2]), (MOST_MESSAGES, 1 + MOST_SEGMENTS, 2), np.int64),
        carray(pointer(words[3]), (MOST_MESSAGES, EXTRA_WORDS), np.int64),
        carray(pointer(words[4]), (MOST_MESSAGES, NAME_WORDS), np.int64),
        integers_at(words[5], MOST_MESSAGES),
        integers_at(words[6], 2),
    )


@inner
def send_filled(descriptor: int, words: SendWords, used: int) -> int:
    """Send the first `used` messages; return how many frames went or were refused, or -1: the socket is full.

    After 0 the caller fills them in again.  A kernel or interface that does not have messages of several frames is not
    asked again.
    """
    covered, state = words.covered, words.state
    went = send_many(descriptor, words.address, used)
    if went <= 0 and last_error() == _ECONNREFUSED:  # about a datagram sent before, and said once
        went = send_many(descriptor, words.address, used)
    if went > 0:
        sent = 0
        for i in range(went):
            sent += covered[i]
        return sent
    error = last_error()
    if error in (_EAGAIN, _ENOBUFS):
        return -1
    if covered[0] > 1 and error in (_EINVAL, _EIO, _EMSGSIZE, _EOPNOTSUPP):
        state[TOGETHER] = 0  # no checksums in hardware, datagrams that are to be sent in fragments, an older kernel
        return 0
    if error == _EINTR:
        return 0
    state[REFUSED] += covered[0]
    return int(covered[0])


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


def addresses_of(array: npt.NDArray[np.generic]) -> Addresses:
    """Return the addresses of an array's entries along its first axis."""
    return array.ctypes.data + np.arange(len(array), dtype=np.int64) * array.strides[0]


def packed(words: Iterable[npt.NDArray[Any] | int]) -> npt.NDArray[np.int64]:
    """Return numbers as they are and arrays as their addresses: what a kernel that is given one address makes them of.

    The caller keeps the arrays.
    """
    return np.array([word if isinstance(word, int) else word.ctypes.data for word in words], np.int64)
