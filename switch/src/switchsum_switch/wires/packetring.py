"""The frames that an AF_PACKET socket receives, in memory that the kernel fills and we read: a ring of TPACKET_V2.

    slot | tpacket2_hdr | sockaddr_ll | unused | virtio_net_hdr | frame
         0              32            52       92               102

The kernel puts a frame into the next slot and hands the slot over by its status; we give it back.  Nobody calls anybody
while frames come, and each is there at once, which TPACKET_V3's blocks, filled for at least a millisecond, do not
offer.  What is longer than a slot, as the kernel's super-frames are (see segmentation.py), waits in the socket as well.
The slot tells how long its pieces are, so that each is received right into a row of its own.

Linux, 64 bits, little-endian.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.errors import TransportError
from switchsum_switch.wires.headers import LOWER_BYTES

from ..kernels.atomics import copy_bytes, load_acquire, store_release
from ..kernels.decorators import inner, kernel
from ..process.system import receive_many
from .messages import MMSGHDR, Indices
from .packetsocket import PACKET_VNET_HDR, SOL_PACKET, SocketFilter, bind_packet_socket, make_packet_socket
from .rows import CACHE_LINE, LEAD_BYTES, allocate_rows
from .segmentation import SUPER_BYTES, VNET_BYTES, body_bytes, count_pieces, cut, finish_checksum, finish_pieces

FRAME_AT: Final = 102
"""Column of a slot where the frame starts; its lanes are then on a cache line."""
FEWEST_SLOTS: Final = 32
MOST_TAKEN: Final = 128
"""Frames that `take` must have room for: as many as the kernel has in one super-frame (UDP_MAX_SEGMENTS)."""
TURN_BYTES: Final = 64 << 10
"""Pieces of several super-frames are taken together up to here: more would not stay in near caches."""

_PACKET_RX_RING: Final = 5
_PACKET_STATISTICS: Final = 6
_PACKET_COPY_THRESH: Final = 7
_PACKET_VERSION: Final = 10
_PACKET_RESERVE: Final = 12
_TPACKET_V2: Final = 1
_OPTIONS: Final = (
    (PACKET_VNET_HDR, 1),
    (_PACKET_VERSION, _TPACKET_V2),
    (_PACKET_RESERVE, FRAME_AT - VNET_BYTES - 66),  # without, a frame starts 66 bytes behind the slot's start
    (_PACKET_COPY_THRESH, 1),
)

_USER: Final = 1 << 0
_COPY: Final = 1 << 1
_LOSING: Final = 1 << 2
_UNFINISHED: Final = 1 << 3
_VNET_WORD: Final = (FRAME_AT - VNET_BYTES) // 8 * 8
"""Column of the word of a slot that holds the start of the virtio header."""
_KIND_SHIFT: Final = 8 * (FRAME_AT - VNET_BYTES + 1 - _VNET_WORD)
VLAN_TAG: Final = 1 << 4
"""Bit of a slot's status: the kernel has taken a tag off the frame."""

DESCRIPTOR: Final = 0
"""Index of the ring's socket."""
_ADDRESS: Final = 1
_STRIDE: Final = 2
SLOTS: Final = 3
HEAD: Final = 4
"""The slot that is read next."""
_HELD: Final = 5
"""How many slots before `HEAD` have not been given back."""
_ARE_PIECES: Final = 6
"""1: the rows of the last call are not slots, but where pieces of super-frames are."""
_PIECES: Final = 7
"""Address of the frame in the first of these rows."""
_PIECE_STRIDE: Final = 8
_MESSAGE: Final = 9
"""Address of the header of a message whose pieces of memory `_MEMORY` has: address and length of each."""
_MEMORY: Final = 10
_WHOLE: Final = 11
"""Address of memory for a whole super-frame."""
_DROPPED: Final = 12
"""Frames dropped so far: longer than a row, or super-frames of a kind that nobody here can cut."""
_FULL: Final = 13
"""1: the kernel has found no free slot since somebody last asked."""
_UNCUT: Final = 14
"""How many of the dropped frames were super-frames."""
_TOO_LONG: Final = 15
"""Bytes of the longest single frame that was dropped because it was longer than a row; 0: there was none."""
RING_FIELDS: Final = 16

_MEMORY_COUNT_AT: Final = 24
_MESSAGE_BYTES_AT: Final = 56
"""Columns of a message's header: how many pieces of memory it has, and what was received."""

Ring = npt.NDArray[np.int64]
"""State of a ring for kernels, `[RING_FIELDS]`. Its user keeps the `PacketRing` open."""


class PacketRing:
    """A socket with virtio headers, and its ring."""

    def __init__(
        self,
        interface: str,
        *,
        frame_bytes: int,
        slots: int,
        longest: int = 0,
        socket_filter: SocketFilter = (),
        promiscuous: bool = False,
        ring: Ring | None = None,
    ) -> None:
        """Receive the interface's incoming frames, or those that `socket_filter` accepts.

        There are slots for frames of up to `frame_bytes`; fewer than asked for where memory is short.  Single frames,
        and pieces of super-frames, may be `longest`.  A promiscuous socket hears what is meant for others, too.  What
        kernels need is written to `ring`, if given.  Raises TransportError.
        """
        stride = -(-(FRAME_AT + frame_bytes) // CACHE_LINE) * CACHE_LINE
        self.link = make_packet_socket(interface, socket_filter=socket_filter, promiscuous=promiscuous)
        """Sends frames with virtio headers in front; whoever receives from it disturbs the ring."""
        try:
            for option, value in _OPTIONS:
                self.link.setsockopt(SOL_PACKET, option, value)
            block_bytes = _make_ring(self.link, stride, slots)
            self._map = mmap.mmap(self.link.fileno(), block_bytes)
        except OSError as error:
            self.link.close()
            raise TransportError(f"cannot make a receive ring on interface {interface}: {error.strerror}") from error
        except TransportError:
            self.link.close()
            raise
        self._map.madvise(mmap.MADV_DONTFORK)  # a child that outlives us would keep the socket open
        self._pieces = allocate_rows(MOST_TAKEN, max(frame_bytes, longest))
        self._memory = np.zeros((MOST_TAKEN + 1, 2), np.int64)
        self._whole = np.zeros(VNET_BYTES + SUPER_BYTES + self._pieces.strides[0], np.uint8)
        self._message = np.zeros(1, MMSGHDR)
        self._message["iov"] = self._memory.ctypes.data
        self.ring: Ring = np.zeros(RING_FIELDS, np.int64) if ring is None else ring
        self.ring[:] = 0
        self.ring[[DESCRIPTOR, _ADDRESS]] = self.link.fileno(), ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.ring[[_STRIDE, SLOTS]] = stride, block_bytes // stride
        self.ring[[_PIECES, _PIECE_STRIDE]] = self._pieces.ctypes.data + LEAD_BYTES, self._pieces.strides[0]
        self.ring[[_MESSAGE, _MEMORY]] = self._message.ctypes.data, self._memory.ctypes.data
        self.ring[_WHOLE] = self._whole.ctypes.data
        self.shortage = ""
        """Message for the user if memory was short."""
        if self.slots < slots:
            self.shortage = f"interface {interface}: memory for a ring of {self.slots} frames, not of {slots}"
        try:
            bind_packet_socket(self.link, interface)
        except TransportError:
            self._map.close()
            raise

    @property
    def slots(self) -> int:
        """Return how many frames there is room for."""
        return int(self.ring[SLOTS])

    @property
    def dropped(self) -> int:
        """Return how many frames were of no use, or found no free slot."""
        if self.ring[_FULL]:
            self.ring[_FULL] = 0
            statistics = self.link.getsockopt(SOL_PACKET, _PACKET_STATISTICS, 8)  # which starts anew then
            self.ring[_DROPPED] += struct.unpack("II", statistics)[1]
        return int(self.ring[_DROPPED])

    @property
    def uncut(self) -> int:
        """Return how many of the dropped frames were super-frames that nobody here can cut, such as TCP's."""
        return int(self.ring[_UNCUT])

    @property
    def too_long(self) -> int:
        """Return the bytes of the longest single frame that was dropped for its length; 0: there was none."""
        return int(self.ring[_TOO_LONG])

    def close(self) -> None:
        """Close the socket and give the memory back; no kernel may use the ring any more."""
        self._map.close()
        self.link.close()


def _make_ring(link: socket.socket, stride: int, slots: int) -> int:
    """Give a socket a ring of one block, so that slots follow one another; return its bytes."""
    while True:
        block_bytes = -(-stride * slots // mmap.PAGESIZE) * mmap.PAGESIZE
        request = struct.pack("IIII", block_bytes, 1, stride, block_bytes // stride)
        try:
            link.setsockopt(SOL_PACKET, _PACKET_RX_RING, request)
        except OSError:
            slots //= 2
            if slots < FEWEST_SLOTS:
                raise
        else:
            return block_bytes


@kernel
def take(ring: Ring, rows: Indices, lengths: Indices) -> int:
    """Give back what the last call has returned, and return how many frames have come since, at most `len(rows)`.

    Their rows are slots of the ring, or of pieces; `first_frame` tells where the first of these has its frame.  A
    super-frame waits until there is room for all its pieces.
    """
    _give_back(ring)
    ring[_ARE_PIECES] = 0
    count = 0
    while count < len(rows) and _is_free_to_step(ring):
        slot = ring[HEAD]
        address = ring[_ADDRESS] + slot * ring[_STRIDE]
        status = load_acquire(address)
        if status & _USER == 0:
            break
        if _is_super(address, status):  # its pieces lie elsewhere
            return count if count > 0 else _take_pieces(ring, rows, lengths)
        _step(ring, status)
        rows[count] = slot
        length = _length(address, status)
        lengths[count] = length
        if length == 0:
            ring[_DROPPED] += 1
            continue
        if status & _UNFINISHED:
            finish_checksum(address + FRAME_AT - VNET_BYTES, length + VNET_BYTES)
        count += 1
    return count


@kernel
def first_frame(ring: Ring) -> tuple[int, int]:
    """Return the address of the frame in row 0 of those that `take` has returned, and from one row to the next."""
    if ring[_ARE_PIECES]:
        return ring[_PIECES], ring[_PIECE_STRIDE]
    return ring[_ADDRESS] + FRAME_AT, ring[_STRIDE]


@kernel
def are_slots(ring: Ring) -> bool:
    """Tell whether what `take` has returned lies in slots of the ring."""
    return not ring[_ARE_PIECES]


@kernel
def forget_error(ring: Ring) -> None:
    """Clear an error of the socket (the interface went down): nobody can sleep on a socket with an error."""
    receive_many(ring[DESCRIPTOR], ring[_MESSAGE], 0)


@inner
def _is_super(address: int, status: int) -> bool:
    """Tell whether a slot that has been filled has a super-frame, or a frame longer than itself."""
    return bool(status & _COPY != 0 or (load_acquire(address + _VNET_WORD) >> _KIND_SHIFT) & 0xFF != 0)


@inner
def _is_free_to_step(ring: Ring) -> bool:
    """Tell whether the slot that is read next is not one of those that have not been given back."""
    return bool(ring[_HELD] < ring[SLOTS])


@inner
def _step(ring: Ring, status: int) -> None:
    """Go on to the next slot; this one is held until it is given back."""
    ring[HEAD] = ring[HEAD] + 1 if ring[HEAD] + 1 < ring[SLOTS] else 0
    ring[_HELD] += 1
    if status & _LOSING:
        ring[_FULL] = 1


@inner
def _give_back(ring: Ring) -> None:
    for back in range(ring[_HELD], 0, -1):
        slot = ring[HEAD] - back
        store_release(ring[_ADDRESS] + (slot if slot >= 0 else slot + ring[SLOTS]) * ring[_STRIDE], 0)
    ring[_HELD] = 0


@inner
def _length(address: int, status: int) -> int:
    """Return the length of the frame in a slot, or 0 if it is not all there."""
    length = status >> 32
    more = load_acquire(address + 8)
    return length if more & 0xFFFF_FFFF == length and (more >> 32) & 0xFFFF == FRAME_AT else 0


@inner
def _take_pieces(ring: Ring, rows: Indices, lengths: Indices) -> int:
    """Cut up super-frames, one after the other: small ones must not stay apart, or what answers them will, too."""
    ring[_ARE_PIECES] = 1
    most = min(len(rows), MOST_TAKEN)
    row_bytes = ring[_PIECE_STRIDE] - LEAD_BYTES
    count, size = 0, 0
    while count < most and size < TURN_BYTES and _is_free_to_step(ring):
        address = ring[_ADDRESS] + ring[HEAD] * ring[_STRIDE]
        status, whole = load_acquire(address), address + FRAME_AT - VNET_BYTES
        if status & _USER == 0 or not _is_super(address, status):
            break
        kind, came = (load_acquire(address + _VNET_WORD) >> _KIND_SHIFT) & 0xFF, status >> 32
        pieces = count_pieces(whole, status >> 32, row_bytes)
        pieces = 0 if pieces > MOST_TAKEN else pieces
        if count + pieces > most:
            break
        _step(ring, status)
        target = ring[_PIECES] + count * ring[_PIECE_STRIDE]
        if status & _COPY:
            pieces = _receive(ring, target, pieces, status >> 32, body_bytes(whole), lengths[count:])
        elif pieces > 0:
            length = _length(address, status)
            pieces = cut(whole, length, target, ring[_PIECE_STRIDE], row_bytes, lengths[count:]) if length > 0 else 0
        if pieces == 0 or status & VLAN_TAG:  # nobody here gives a super-frame its tag back
            pieces = 0
            ring[_DROPPED] += 1
            if kind == 0:  # one frame, which is longer than a row
                ring[_TOO_LONG] = max(ring[_TOO_LONG], came)
            else:
                ring[_UNCUT] += 1
        for row in range(count, count + pieces):
            rows[row] = row
            size += lengths[row]
        count += pieces
    return count


@inner
def _receive(ring: Ring, target: int, pieces: int, length: int, body: int, lengths: Indices) -> int:
    """Fetch the first super-frame that waits in the socket into rows from `target` on; return how many frames it is.

    `pieces`, `length` and `body` are what the slot says that is read.  Where processors fill slots side by side what
    waits may be another slot's: then it is put together again, and cut up.
    """
    stride = ring[_PIECE_STRIDE]
    row_bytes = stride - LEAD_BYTES
    first = VNET_BYTES + (min(LOWER_BYTES + body, row_bytes) if body > 0 else row_bytes)
    held = max(pieces, 1)
    _set_memory(ring, 0, target - VNET_BYTES, first)
    for i in range(1, held):
        _set_memory(ring, i, target + i * stride + LOWER_BYTES, body)
    covered = first + (held - 1) * body
    _set_memory(ring, held, ring[_WHOLE] + covered, VNET_BYTES + SUPER_BYTES + stride - covered)
    store_release(ring[_MESSAGE] + _MEMORY_COUNT_AT, held + 1)
    for _ in range(2):  # the first call may return an error of the interface instead
        if receive_many(ring[DESCRIPTOR], ring[_MESSAGE], 1) == 1:
            size = load_acquire(ring[_MESSAGE] + _MESSAGE_BYTES_AT) & 0xFFFF_FFFF
            came = target - VNET_BYTES
            as_said = pieces > 0 and size == VNET_BYTES + length and body_bytes(came) == body
            if as_said and count_pieces(came, length, row_bytes) == pieces:
                finish_pieces(target, stride, pieces, length, lengths)
                return pieces
            copy_bytes(ring[_WHOLE], came, first)
            for i in range(1, held):
                copy_bytes(ring[_WHOLE] + first + (i - 1) * body, target + i * stride + LOWER_BYTES, body)
            return cut(ring[_WHOLE], size - VNET_BYTES, target, stride, row_bytes, lengths) if size > VNET_BYTES else 0
    return 0


@inner
def _set_memory(ring: Ring, index: int, address: int, size: int) -> None:
    """Say where the message's next bytes go."""
    store_release(ring[_MEMORY] + 16 * index, address)
    store_release(ring[_MEMORY] + 16 * index + 8, size)
