"""What sockets have in common that take and give many datagrams per system call (batchsend.py, batchreceive.py).

Linux, 64 bits.  Frames go from and to memory by address, nothing is copied on this side of the kernel, and no Python
runs per frame.  Datagrams of one length between the same two ends cross the kernel together where it can do that: as
one message, a *super-datagram*, whose control message says how long each of its datagrams is (UDP GSO and GRO).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Addresses = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

BATCH_DATAGRAMS: Final = 64
"""Messages per system call: beyond this, its own cost no longer shows."""
MOST_SEGMENTS: Final = 64
"""Datagrams of a super-datagram that is sent (UDP_MAX_SEGMENTS of older kernels)."""
LONGEST_BYTES: Final = 65_507
"""Payload of a datagram, super or not, over IPv4."""
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
MESSAGE_WORDS: Final = MMSGHDR.itemsize // 8
NAME_BYTES_WORD: Final = 1
"""Words of a message header, as kernels see it."""
PIECES_WORD: Final = 3
CONTROL_BYTES_WORD: Final = 5
LENGTH_WORD: Final = 7
"""Its high half is unused."""

CONTROL_WORDS: Final = 3
"""Of a control message with one number: length; level and type; the number."""
SEGMENT_KIND: Final = 103 << 32 | socket.IPPROTO_UDP
"""Level and type of UDP_SEGMENT, which says how long the datagrams of one are that is sent."""
GRO_KIND: Final = 104 << 32 | socket.IPPROTO_UDP
"""Of UDP_GRO, which says it of one that is received."""
_UDP_SEGMENT: Final = SEGMENT_KIND >> 32
_UDP_GRO: Final = GRO_KIND >> 32

NAME_WORDS: Final = 2
"""Of a sockaddr_in; the first is all of it, the second is padding."""
NO_NAMES: Final[Addresses] = np.zeros(0, np.int64)
"""For sockets that have a destination, and for those whose source does not matter."""

_SO_SNDBUFFORCE: Final = 32
_SO_RCVBUFFORCE: Final = 33


def knows_segments(link: socket.socket) -> bool:
    """Tell whether the kernel makes datagrams of a super-datagram; one before Linux 4.18 would send it as it is."""
    try:
        link.getsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT)
    except OSError:
        return False
    return True


def take_together(link: socket.socket) -> None:
    """Have super-datagrams come as they are, if the kernel can do that (Linux 5.0); else it cuts them."""
    try:
        link.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    except OSError:
        return


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

    Whoever uses it keeps the arrays.
    """
    return np.array([word if isinstance(word, int) else word.ctypes.data for word in words], np.int64)
