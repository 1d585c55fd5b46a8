"""Super-frames: many frames of one sender and length that cross the kernel as one, as TCP's do (UDP GSO).

On its way through sockets, queues and limited links, a super-frame costs as much as one frame.  A
super-frame is one Ethernet, IPv4 and UDP header with up to 64 KB behind it, and a virtio_net_hdr in front that says how
long the pieces are.  Links of one machine hand it over as it is; where one leads out of it, network card or kernel cut
it into ordinary frames and give each a UDP checksum.

    virtio_net_hdr (10) | Ethernet, IPv4, UDP (42) | aggregation header and lanes | aggregation header and lanes | ...

Linux 6.2 and later can do that; before, frames go one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, LOWER_BYTES, UDP_BYTES

from ..kernels.atomics import copy_bytes, same_bytes
from ..kernels.decorators import inner, kernel
from .checksum import fill_ip_checksum, load16, pseudo_header_sum, store16, sum16, udp_checksum
from .messages import (
    MOST_SEGMENTS,
    PIECES_WORD,
    TOGETHER,
    Addresses,
    Indices,
    MessageSender,
    SendWords,
    addresses_of,
    send_filled,
)
from .rows import LEAD_BYTES, allocate_rows

VNET_BYTES: Final = 10
"""virtio_net_hdr: flags and kind (1 byte each), length of the headers, of a piece, where the sum begins, where it goes
(2 bytes each, little-endian)."""
SUPER_BYTES: Final = ETHERNET_BYTES + 0xFFFF
"""Most bytes of a super-frame."""
MESSAGES: Final = 16
"""Frames and super-frames that go to the kernel in one call."""

_NEEDS_CHECKSUM: Final = 1
_KIND_PLAIN: Final = 0
_KIND_UDP: Final = 5
_CONGESTION_MARK: Final = 0x80
_ETHERTYPE: Final = 12
_IP: Final = ETHERNET_BYTES
_UDP: Final = _IP + IPV4_BYTES
_LENGTH: Final = _IP + 2
_FRAGMENT: Final = _IP + 6
_PROTOCOL: Final = _IP + 9
_ADDRESSES: Final = _IP + 12
_UDP_LENGTH: Final = _UDP + 4
_UDP_CHECKSUM: Final = _UDP + 6


class FrameSender(MessageSender):
    """Sends frames through AF_PACKET sockets with virtio headers.

    The first piece of a message's memory, its head, is its extra: a virtio_net_hdr, and the headers of a super-frame.
    """

    def __init__(self) -> None:
        super().__init__(together=True)
        self.words.pieces[:, 0, 0] = addresses_of(self.words.extras)


@kernel
def send_frames(descriptor: int, words: SendWords, addresses: Addresses, lengths: Indices, longest: int) -> int:
    """Send frames in order until the socket is full; return how many went.

    Frames of up to `longest` bytes go together in super-frames where they can; 0: none do.
    """
    sent = 0
    while sent < len(addresses):
        at, used = sent, 0
        while at < len(addresses) and used < MESSAGES:
            together = longest if words.state[TOGETHER] != 0 else 0
            words.covered[used] = _fill(words, used, addresses, lengths, at, together)
            at += words.covered[used]
            used += 1
        went = send_filled(descriptor, words, used)
        if went < 0:
            break
        sent += went
    return sent


@inner
def _fill(words: SendWords, index: int, addresses: Addresses, lengths: Indices, first: int, longest: int) -> int:
    """Fill in a message with as many frames, from `first` on, as can go together; return how many these are."""
    address, length = addresses[first], int(lengths[first])
    body, count = length - LOWER_BYTES, 1
    if LOWER_BYTES < length <= longest and _is_plain(address, length):
        most = min(len(addresses) - first, MOST_SEGMENTS, (SUPER_BYTES - LOWER_BYTES) // body)
        while (
            count < most
            and lengths[first + count] == length
            and same_bytes(address, addresses[first + count], LOWER_BYTES)
        ):
            count += 1
    pieces = words.pieces
    head = pieces[index, 0, 0]
    words.headers[index, PIECES_WORD] = 1 + count
    if count == 1:
        for at in range(0, VNET_BYTES, 2):
            store16(head + at, 0)
        pieces[index, 0, 1] = VNET_BYTES
        pieces[index, 1, 0], pieces[index, 1, 1] = address, length
        return count
    copy_bytes(head + VNET_BYTES, address, LOWER_BYTES)
    _write_head(head, count, body)
    pieces[index, 0, 1] = VNET_BYTES + LOWER_BYTES
    for i in range(count):
        pieces[index, 1 + i, 0], pieces[index, 1 + i, 1] = addresses[first + i] + LOWER_BYTES, body
    return count


@inner
def _is_plain(frame: int, length: int) -> bool:
    """Tell whether a frame is one UDP datagram of IPv4 without options, fragments, padding and checksum."""
    return (
        _is_udp(frame)
        and load16(frame + _LENGTH) == length - _IP
        and load16(frame + _FRAGMENT) & 0x3FFF == 0
        and load16(frame + _UDP_LENGTH) == length - _UDP
        and load16(frame + _UDP_CHECKSUM) == 0
    )


@inner
def _is_udp(frame: int) -> bool:
    return (
        load16(frame + 12) == 0x0800 and load16(frame + _IP) >> 8 == 0x45 and load16(frame + _PROTOCOL - 1) & 0xFF == 17
    )


@inner
def _write_head(head: int, count: int, body: int) -> None:
    """Write a virtio_net_hdr, and turn the headers behind it from those of one of `count` frames into all theirs."""
    store16(head, _NEEDS_CHECKSUM << 8 | _KIND_UDP)
    _put_little(head + 2, LOWER_BYTES)
    _put_little(head + 4, body)
    _put_little(head + 6, _UDP)
    _put_little(head + 8, _UDP_CHECKSUM - _UDP)
    frame = head + VNET_BYTES
    _put_lengths(frame, LOWER_BYTES + count * body)
    # The sum over addresses, protocol and length; whoever finishes the checksum goes on from there.
    store16(frame + _UDP_CHECKSUM, pseudo_header_sum(frame + _ADDRESSES, UDP_BYTES + count * body))


@kernel
def count_pieces(whole: int, length: int, capacity: int) -> int:
    """Return how many frames lie behind the virtio_net_hdr at the address `whole`, in a super-frame or by themselves.

    `length` is what they have together.  0: it is a super-frame that is not UDP over IPv4, or `capacity` is less than
    one of them needs.
    """
    kind = load16(whole) & ~_CONGESTION_MARK & 0xFF
    if kind == _KIND_PLAIN:
        return 1 if length <= capacity else 0
    body = body_bytes(whole)
    if kind != _KIND_UDP or length <= LOWER_BYTES or not _is_udp(whole + VNET_BYTES) or body == 0:
        return 0
    return -((LOWER_BYTES - length) // body) if LOWER_BYTES + body <= capacity else 0


@kernel
def body_bytes(whole: int) -> int:
    """Return how much of each piece of a super-frame comes behind its headers; 0: it is a frame by itself."""
    return _little16(whole + 4) if load16(whole) & ~_CONGESTION_MARK & 0xFF != _KIND_PLAIN else 0


@kernel
def cut(whole: int, length: int, target: int, stride: int, capacity: int, lengths: Indices) -> int:
    """Write the frames of a super-frame (or the frame: it is its only one) to rows, and their lengths to `lengths`.

    They lie behind a virtio_net_hdr at the address `whole`.  The first goes to `target`, in front of which there is
    room for a virtio_net_hdr, each further one `stride` bytes on.  Returns how many there are; 0 where they are
    of no use (`count_pieces`), or more than `lengths`.
    """
    count, body = count_pieces(whole, length, capacity), body_bytes(whole)
    if count > len(lengths):
        return 0
    for i in range(count):
        start = LOWER_BYTES + i * body
        if i == 0:
            copy_bytes(target - VNET_BYTES, whole, VNET_BYTES + (min(start + body, length) if body > 0 else length))
        else:
            copy_bytes(target + i * stride + LOWER_BYTES, whole + VNET_BYTES + start, min(body, length - start))
    if count > 0:
        finish_pieces(target, stride, count, length, lengths)
    return count


@kernel
def finish_pieces(target: int, stride: int, count: int, length: int, lengths: Indices) -> None:
    """Make frames of pieces that lie where `cut` puts them: the first behind all headers, the others without any."""
    whole = target - VNET_BYTES
    body = body_bytes(whole)
    if body == 0:
        finish_checksum(whole, VNET_BYTES + length)
        lengths[0] = length
        return
    for i in range(count):
        frame, size = target + i * stride, LOWER_BYTES + min(body, length - LOWER_BYTES - i * body)
        if i > 0:
            copy_bytes(frame, target, LOWER_BYTES)
        _put_lengths(frame, size)
        store16(frame + _UDP_CHECKSUM, 0)  # none: what was to be checked has been on no wire
        lengths[i] = size


def frames_of(received: bytes) -> list[bytes]:
    """Return the frame, or the pieces of the super-frame, that a socket with virtio headers has delivered."""
    whole, length = np.frombuffer(received, np.uint8), len(received) - VNET_BYTES
    rows = allocate_rows(count_pieces(whole.ctypes.data, length, length), length)
    lengths = np.zeros(len(rows), np.int32)
    first, stride = rows.ctypes.data + LEAD_BYTES, rows.strides[0]
    count = cut(whole.ctypes.data, length, first, stride, stride - LEAD_BYTES, lengths)
    return [rows[i, LEAD_BYTES : LEAD_BYTES + lengths[i]].tobytes() for i in range(count)]


@kernel
def finish_checksum(whole: int, size: int) -> None:
    """Put the checksum right of the frame behind a virtio_net_hdr, if that says that it is unfinished, and where."""
    frame, length, start = whole + VNET_BYTES, size - VNET_BYTES, _little16(whole + 6)
    field = start + _little16(whole + 8)
    if load16(whole) >> 8 & _NEEDS_CHECKSUM and start < length and field + 2 <= length:
        store16(frame + field, udp_checksum(sum16(frame + start, length - start)))


@inner
def _put_lengths(frame: int, length: int) -> None:
    """Write the lengths of a frame of `length` bytes, and the IPv4 header's checksum."""
    store16(frame + _LENGTH, length - _IP)
    store16(frame + _UDP_LENGTH, length - _UDP)
    fill_ip_checksum(frame + _IP)


@inner
def _little16(address: int) -> int:
    value = load16(address)
    return (value & 0xFF) << 8 | value >> 8


@inner
def _put_little(address: int, value: int) -> None:
    store16(address, (value & 0xFF) << 8 | value >> 8)
