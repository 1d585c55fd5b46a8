"""Super-frames: many frames of one sender and length that cross the kernel as one, as TCP's do (UDP GSO).

What a frame costs on its way through sockets, queues and links that are limited, it costs once for all of them.  A
super-frame is one Ethernet, IPv4 and UDP header with up to 64 KB behind it, and a virtio_net_hdr in front that says how
long the pieces are.  Links of one machine hand it over as it is; where one leads out of it, network card or kernel cut
it into ordinary frames and give each a UDP checksum.

    virtio_net_hdr (10) | Ethernet, IPv4, UDP (42) | aggregation header and lanes | aggregation header and lanes | ...

Linux 6.2 and later can do that; before, frames go one by one.
"""

from __future__ import annotations

import errno
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum.protocol.atomics import copy_bytes, same_bytes
from switchsum.protocol.batchsocket import MMSGHDR, MessageWords
from switchsum.protocol.kernels import kernel
from switchsum.protocol.rows import LEAD_BYTES, allocate_rows
from switchsum.protocol.system import last_error, send_many
from switchsum.protocol.wire import ETHERNET_BYTES, IPV4_BYTES, LOWER_BYTES, UDP_BYTES

VNET_BYTES: Final = 10
"""virtio_net_hdr: flags and kind (1 byte each), length of the headers, of a piece, where the sum begins, where it goes
(2 bytes each, little-endian)."""
SUPER_BYTES: Final = ETHERNET_BYTES + 0xFFFF
"""No super-frame is longer."""
MESSAGES: Final = 16
"""Frames and super-frames that go to the kernel in one call."""
MOST_PIECES: Final = 64

_NEEDS_CHECKSUM: Final = 1
_KIND_PLAIN: Final = 0
_KIND_UDP: Final = 5
_CONGESTION_MARK: Final = 0x80
_IP: Final = ETHERNET_BYTES
_UDP: Final = _IP + IPV4_BYTES
_LENGTH: Final = _IP + 2
_FRAGMENT: Final = _IP + 6
_PROTOCOL: Final = _IP + 9
_IP_CHECKSUM: Final = _IP + 10
_ADDRESSES: Final = _IP + 12
_UDP_LENGTH: Final = _UDP + 4
_UDP_CHECKSUM: Final = _UDP + 6

Bytes = npt.NDArray[np.uint8]


class Sending(NamedTuple):
    """What `send_frames` works with."""

    messages: MessageWords
    """`[MESSAGES, 8]` headers, each with 1 + MOST_PIECES pieces of memory: the first is its row of `heads`."""
    heads: Bytes
    """`[MESSAGES, 64]`: virtio_net_hdr, and the headers of a super-frame."""
    covered: npt.NDArray[np.int64]
    """`[MESSAGES]`: frames of each."""
    refused: npt.NDArray[np.int64]
    """Frames that the kernel would not have, so far; and whether it knows no super-frames."""


class FrameSender:
    """Sends frames through AF_PACKET sockets with virtio headers."""

    def __init__(self) -> None:
        self._headers = np.zeros(MESSAGES, MMSGHDR)
        self._pieces = np.zeros((MESSAGES, 1 + MOST_PIECES, 2), np.int64)
        heads = np.zeros((MESSAGES, 64), np.uint8)
        self._headers["iov"] = self._pieces.ctypes.data + np.arange(MESSAGES) * self._pieces.strides[0]
        self._pieces[:, 0, 0] = heads.ctypes.data + np.arange(MESSAGES) * heads.strides[0]
        words = MessageWords(
            self._headers.view(np.int64).reshape(MESSAGES, -1), self._pieces.reshape(-1, 2), self._headers.ctypes.data
        )
        self.sending = Sending(words, heads, np.zeros(MESSAGES, np.int64), np.zeros(2, np.int64))

    @property
    def refused(self) -> int:
        """Return how many frames the kernel would not have (too long, interface down); they count as sent."""
        return int(self.sending.refused[0])


@kernel
def send_frames(
    descriptor: int, sending: Sending, addresses: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32], longest: int
) -> int:
    """Send frames in order until the socket is full; return how many went.

    Those of up to `longest` bytes go together in super-frames where they can; 0: none do.
    """
    refused, covered = sending.refused, sending.covered
    sent = 0
    while sent < len(addresses):
        at, used = sent, 0
        while at < len(addresses) and used < MESSAGES:
            covered[used] = _put(sending, used, addresses[at:], lengths[at:], longest if refused[1] == 0 else 0)
            at += covered[used]
            used += 1
        went = send_many(descriptor, sending.messages.address, used)
        if went > 0:
            sent += covered[:went].sum()
            continue
        error = last_error()
        if error in (errno.EAGAIN, errno.ENOBUFS):
            break
        if error == errno.EINVAL and covered[0] > 1:  # an older kernel
            refused[1] = 1
        elif error != errno.EINTR:
            refused[0] += covered[0]
            sent += covered[0]
    return sent


@kernel
def _put(
    sending: Sending, index: int, addresses: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32], longest: int
) -> int:
    """Fill in a message with as many of the frames as can go together; return how many these are."""
    head, length = sending.heads[index], int(lengths[0])
    frame, body = head[VNET_BYTES:], length - LOWER_BYTES
    pieces = sending.messages.pieces[index * (1 + MOST_PIECES) :]
    count = 1
    if LOWER_BYTES < length <= longest:
        copy_bytes(frame.ctypes.data, addresses[0], LOWER_BYTES)
        if _is_plain(frame, length):
            most = min(len(addresses), MOST_PIECES, (SUPER_BYTES - LOWER_BYTES) // body)
            while count < most and lengths[count] == length and same_bytes(addresses[0], addresses[count], LOWER_BYTES):
                count += 1
    if count == 1:
        head[:VNET_BYTES] = 0
        pieces[0, 1] = VNET_BYTES
        pieces[1, 0], pieces[1, 1] = addresses[0], length
    else:
        _write_head(head, frame, count, body)
        pieces[0, 1] = VNET_BYTES + LOWER_BYTES
        for i in range(count):
            pieces[1 + i, 0], pieces[1 + i, 1] = addresses[i] + LOWER_BYTES, body
    sending.messages.headers[index, 3] = 1 + count
    return count


@kernel
def _is_plain(frame: Bytes, length: int) -> bool:
    """Tell whether a frame is one UDP datagram of IPv4 without options, fragments, padding and checksum."""
    return (
        get16(frame, 12) == 0x0800
        and frame[_IP] == 0x45
        and frame[_PROTOCOL] == 17
        and get16(frame, _LENGTH) == length - _IP
        and get16(frame, _FRAGMENT) & 0x3FFF == 0
        and get16(frame, _UDP_LENGTH) == length - _UDP
        and get16(frame, _UDP_CHECKSUM) == 0
    )


@kernel
def _write_head(head: Bytes, frame: Bytes, count: int, body: int) -> None:
    """Turn the headers of one of `count` frames into the super-frame's."""
    head[0], head[1] = _NEEDS_CHECKSUM, _KIND_UDP
    for field, value in enumerate((LOWER_BYTES, body, _UDP, _UDP_CHECKSUM - _UDP)):
        head[2 + 2 * field], head[3 + 2 * field] = value & 0xFF, value >> 8
    put_lengths(frame, LOWER_BYTES + count * body)
    # The sum over what a datagram's checksum covers besides itself; who finishes it goes on from there.
    put16(frame, _UDP_CHECKSUM, _fold(sum16(frame[_ADDRESSES:_UDP]) + 17 + UDP_BYTES + count * body))


@kernel
def cut(whole: Bytes, first: int, rows: Bytes, lengths: npt.NDArray[np.int32]) -> int:
    """Write pieces of a super-frame (or a frame: it is its only one) to rows, from the piece `first` on.

    `whole` starts with a virtio_net_hdr.  As many as there are, or as there are `lengths`; returns how many.  None of
    a super-frame that is not UDP over IPv4, or whose pieces are too long.
    """
    frame = whole[VNET_BYTES:]
    kind = whole[1] & ~_CONGESTION_MARK
    room = rows.shape[1] - LEAD_BYTES
    if kind == _KIND_PLAIN:
        if first > 0 or len(frame) > room:
            return 0
        if is_unfinished(whole):
            finish_checksum(whole)
        rows[0, LEAD_BYTES : LEAD_BYTES + len(frame)] = frame
        lengths[0] = len(frame)
        return 1
    body = _little16(whole, 4)
    is_udp = len(frame) > LOWER_BYTES and get16(frame, 12) == 0x0800 and frame[_IP] == 0x45 and frame[_PROTOCOL] == 17
    if kind != _KIND_UDP or not is_udp or body == 0 or LOWER_BYTES + body > room:
        return 0
    count = 0
    start = LOWER_BYTES + first * body
    while start < len(frame) and count < len(lengths):
        size = min(body, len(frame) - start)
        row = rows[count, LEAD_BYTES:]
        row[:LOWER_BYTES] = frame[:LOWER_BYTES]
        row[LOWER_BYTES : LOWER_BYTES + size] = frame[start : start + size]
        put_lengths(row, LOWER_BYTES + size)
        put16(row, _UDP_CHECKSUM, 0)  # none: what was to be checked has been on no wire
        lengths[count] = LOWER_BYTES + size
        start += size
        count += 1
    return count


def frames_of(received: bytes) -> list[bytes]:
    """Return the frame, or the pieces of the super-frame, that a socket with virtio headers has delivered."""
    whole = np.frombuffer(received, np.uint8).copy()
    rows, lengths = allocate_rows(MOST_PIECES, len(received)), np.zeros(MOST_PIECES, np.int32)
    frames: list[bytes] = []
    while count := cut(whole, len(frames), rows, lengths):
        frames += [rows[i, LEAD_BYTES : LEAD_BYTES + lengths[i]].tobytes() for i in range(count)]
    return frames


@kernel
def is_unfinished(whole: Bytes) -> bool:
    """Tell whether the frame behind a virtio_net_hdr has a checksum that can, and is to, be finished."""
    start, size = _little16(whole, 6), len(whole) - VNET_BYTES
    return whole[0] & _NEEDS_CHECKSUM != 0 and start < size and start + _little16(whole, 8) + 2 <= size


@kernel
def finish_checksum(whole: Bytes) -> None:
    """Put the checksum right of the frame behind a virtio_net_hdr for which `is_unfinished`."""
    frame, start = whole[VNET_BYTES:], _little16(whole, 6)
    put16(frame, start + _little16(whole, 8), ~sum16(frame[start:]) & 0xFFFF or 0xFFFF)


@kernel
def put_lengths(frame: Bytes, length: int) -> None:
    """Write the lengths of a frame of `length` bytes, and the IPv4 header's checksum."""
    put16(frame, _LENGTH, length - _IP)
    put16(frame, _UDP_LENGTH, length - _UDP)
    put16(frame, _IP_CHECKSUM, 0)
    put16(frame, _IP_CHECKSUM, ~sum16(frame[_IP:_UDP]) & 0xFFFF)


@kernel
def sum16(octets: Bytes) -> int:
    """Add 16-bit words as checksums do, within 16 bits."""
    total = 0
    for at in range(0, len(octets) - 1, 2):
        total += get16(octets, at)
    if len(octets) % 2:
        total += int(np.int64(octets[-1])) << 8
    return _fold(total)


@kernel
def _fold(total: int) -> int:
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@kernel
def get16(frame: Bytes, at: int) -> int:
    """Read a 16-bit word."""
    return int(np.int64(frame[at])) << 8 | int(np.int64(frame[at + 1]))


@kernel
def put16(frame: Bytes, at: int, value: int) -> None:
    """Write a 16-bit word."""
    frame[at], frame[at + 1] = value >> 8, value & 0xFF


@kernel
def _little16(octets: Bytes, at: int) -> int:
    return int(np.int64(octets[at])) | int(np.int64(octets[at + 1])) << 8
