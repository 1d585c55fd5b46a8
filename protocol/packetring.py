"""The frames that an AF_PACKET socket receives, in memory that the kernel fills and we read: a ring of TPACKET_V2.

    slot | tpacket2_hdr | sockaddr_ll | unused | virtio_net_hdr | frame
         0              32            52       100              110

The kernel puts a frame into the next slot and hands the slot over by its status; we give it back.  Nobody calls anybody
while frames come, and each is there at once, which TPACKET_V3's blocks, filled for at least a millisecond, do not
offer.  What is longer than a slot, as the kernel's super-frames are (see segmentation.py), waits in the socket as well
and is fetched from there, whole.

Linux, 64 bits, little-endian.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum.protocol.atomics import copy_bytes, load_acquire, store_release
from switchsum.protocol.batchsocket import BATCH_DATAGRAMS, Indices, Messages, MessageWords
from switchsum.protocol.errors import TransportError
from switchsum.protocol.kernels import inner, kernel
from switchsum.protocol.packetsocket import (
    ETH_P_ALL,
    ETH_P_IP,
    PACKET_VNET_HDR,
    SOL_PACKET,
    Program,
    bind_packet_socket,
    make_packet_socket,
)
from switchsum.protocol.rows import CACHE_LINE, LEAD_BYTES, allocate_rows
from switchsum.protocol.segmentation import SUPER_BYTES, VNET_BYTES, cut, finish_checksum
from switchsum.protocol.system import receive_many

FRAME_AT: Final = 110
"""Column of a slot where the frame starts; its lanes are then on a cache line."""
FEWEST_SLOTS: Final = 32
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
_VNET_WORD: Final = 96
"""Column of the word of a slot that holds the first half of the virtio header."""
_KIND_SHIFT: Final = 8 * (FRAME_AT - VNET_BYTES + 1 - _VNET_WORD)
VLAN_TAG: Final = 1 << 4
"""Bit of a slot's status: the kernel has taken a tag off the frame."""

_HEAD: Final = 0
"""Of the ring's state: the slot that is read next."""
_HELD: Final = 1
"""How many slots before it have not been given back."""
UNCUT: Final = 2
"""Of the ring's state: bytes of the super-frame that is being cut, with its virtio header; 0: there is none."""
_DONE: Final = 3
"""Pieces of it that have been cut off."""
_ARE_PIECES: Final = 4
"""1: the rows of the last call are pieces' and not slots."""
_DROPPED: Final = 5
"""Frames that were of no use so far: longer than a row, or of a kind that nobody here can cut."""
_FULL: Final = 6
"""1: the kernel has found no free slot since somebody last asked."""


class Ring(NamedTuple):
    """What kernels need of a ring; whoever uses it keeps its `PacketRing` open."""

    descriptor: int
    address: int
    stride: int
    slots: int
    state: npt.NDArray[np.int64]
    pieces: npt.NDArray[np.uint8]
    """Rows for pieces of super-frames, where a frame starts after `LEAD_BYTES`."""
    pieces_address: int
    whole: int
    """Address of the super-frame that is being cut, with its virtio header."""
    receiving: MessageWords


class PacketRing:
    """A socket with virtio headers, and its ring."""

    def __init__(
        self,
        interface: str,
        *,
        frame_bytes: int,
        slots: int,
        longest: int = 0,
        program: Program = (),
        promiscuous: bool = False,
    ) -> None:
        """Receive the interface's incoming frames, IPv4 only if there is a `program` to filter them.

        There are slots for frames of up to `frame_bytes`; fewer than asked for where memory is short.  Single frames,
        and pieces of super-frames, may be `longest`.  A promiscuous socket hears what is meant for others, too.  Raises
        TransportError.
        """
        stride = -(-(FRAME_AT + frame_bytes) // CACHE_LINE) * CACHE_LINE
        self.link = make_packet_socket(interface, program=program, promiscuous=promiscuous)
        """Sends frames with virtio headers in front; whoever receives from it disturbs the ring."""
        try:
            for option, value in _OPTIONS:
                self.link.setsockopt(SOL_PACKET, option, value)
            block_bytes = _make_ring(self.link, stride, slots)
            self._map = mmap.mmap(self.link.fileno(), block_bytes)
        except OSError as error:
            self.link.close()
            raise TransportError(f"interface {interface}: no receive ring: {error.strerror}") from error
        except TransportError:
            self.link.close()
            raise
        self._map.madvise(mmap.MADV_DONTFORK)  # a child that outlives us would keep the socket open
        self._messages = Messages(0)
        self._whole = np.zeros(VNET_BYTES + SUPER_BYTES, np.uint8)
        self._messages.pieces[0] = (self._whole.ctypes.data, len(self._whole))
        pieces = allocate_rows(BATCH_DATAGRAMS, max(frame_bytes, longest))
        self.ring = Ring(
            descriptor=self.link.fileno(),
            address=ctypes.addressof(ctypes.c_char.from_buffer(self._map)),
            stride=stride,
            slots=block_bytes // stride,
            state=np.zeros(8, np.int64),
            pieces=pieces,
            pieces_address=pieces.ctypes.data,
            whole=self._whole.ctypes.data,
            receiving=self._messages.words(),
        )
        self.shortage = ""
        """What there is to say if memory was short."""
        if self.ring.slots < slots:
            self.shortage = f"interface {interface}: memory for a ring of {self.ring.slots} frames, not of {slots}"
        try:
            bind_packet_socket(self.link, interface, ETH_P_IP if program else ETH_P_ALL)
        except TransportError:
            self._map.close()
            raise

    @property
    def dropped(self) -> int:
        """Return how many frames were of no use, or found no free slot."""
        state = self.ring.state
        if state[_FULL]:
            state[_FULL] = 0
            statistics = self.link.getsockopt(SOL_PACKET, _PACKET_STATISTICS, 8)  # which starts anew then
            state[_DROPPED] += struct.unpack("II", statistics)[1]
        return int(state[_DROPPED])

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

    Their rows are slots of the ring, or of `pieces`; `first_frame` tells where the first of these has its frame.
    """
    state = ring.state
    _give_back(ring)
    state[_ARE_PIECES] = 0
    if state[UNCUT] > 0 or _is_super(ring):
        return _take_pieces(ring, rows, lengths)
    count = 0
    while count < len(rows) and _is_free_to_step(ring) and not _is_super(ring):  # its pieces lie elsewhere
        slot = state[_HEAD]
        address = ring.address + slot * ring.stride
        status = load_acquire(address)
        if status & _USER == 0:
            break
        _step(ring, status)
        rows[count] = slot
        length = _length(address, status)
        lengths[count] = length
        if length == 0:
            state[_DROPPED] += 1
            continue
        if status & _UNFINISHED:
            finish_checksum(address + FRAME_AT - VNET_BYTES, length + VNET_BYTES)
        count += 1
    return count


@inner
def _is_super(ring: Ring) -> bool:
    """Tell whether the slot that is read next has a super-frame."""
    address = ring.address + ring.state[_HEAD] * ring.stride
    status = load_acquire(address)
    if status & _USER == 0:
        return False
    return bool(status & _COPY != 0 or (load_acquire(address + _VNET_WORD) >> _KIND_SHIFT) & 0xFF != 0)


@inner
def _is_free_to_step(ring: Ring) -> bool:
    """Tell whether the slot that is read next is not one of those that have not been given back."""
    return bool(ring.state[_HELD] < ring.slots)


@inner
def _step(ring: Ring, status: int) -> None:
    """Go on to the next slot; this one is held until it is given back."""
    state = ring.state
    state[_HEAD] = state[_HEAD] + 1 if state[_HEAD] + 1 < ring.slots else 0
    state[_HELD] += 1
    if status & _LOSING:
        state[_FULL] = 1


@inner
def _take_pieces(ring: Ring, rows: Indices, lengths: Indices) -> int:
    """Cut up super-frames, one after the other: small ones must not stay apart, or what answers them will, too."""
    state = ring.state
    state[_ARE_PIECES] = 1
    room = min(len(rows), len(ring.pieces))
    count, size = 0, 0
    while count < room and size < TURN_BYTES:
        if state[UNCUT] == 0:
            if not (_is_free_to_step(ring) and _is_super(ring)):
                break
            address = ring.address + state[_HEAD] * ring.stride
            status = load_acquire(address)
            _step(ring, status)
            if not _fetch(ring, address, status):
                state[_DROPPED] += 1
                continue
        made = _cut(ring, rows, lengths, count, room)
        for row in range(count, count + made):
            size += lengths[row]
        count += made
    return count


@kernel
def first_frame(ring: Ring) -> tuple[int, int]:
    """Return the address of the frame in row 0 of those that `take` has returned, and from one row to the next."""
    if ring.state[_ARE_PIECES]:
        return ring.pieces_address + LEAD_BYTES, ring.pieces.shape[1]
    return ring.address + FRAME_AT, ring.stride


@kernel
def forget_error(ring: Ring) -> None:
    """Have the socket forget an error (the interface went down): nobody can sleep on it as long as it has one."""
    receive_many(ring.descriptor, ring.receiving.address, 0)


@inner
def _give_back(ring: Ring) -> None:
    state = ring.state
    for back in range(state[_HELD], 0, -1):
        slot = state[_HEAD] - back
        store_release(ring.address + (slot if slot >= 0 else slot + ring.slots) * ring.stride, 0)
    state[_HELD] = 0


@inner
def _length(address: int, status: int) -> int:
    """Return the length of the frame in a slot, or 0 if it is not all there."""
    length = status >> 32
    more = load_acquire(address + 8)
    return length if more & 0xFFFF_FFFF == length and (more >> 32) & 0xFFFF == FRAME_AT else 0


@inner
def _fetch(ring: Ring, address: int, status: int) -> bool:
    """Have the super-frame of a slot ready to be cut; False if it is not to be had."""
    ring.state[_DONE] = 0
    size = 0
    if status & _COPY:
        for _ in range(2):  # the first call may return an error of the interface instead
            if size == 0 and receive_many(ring.descriptor, ring.receiving.address, 1) == 1:
                size = ring.receiving.headers[0, 7] & 0xFFFF_FFFF
    else:
        size = _length(address, status) + VNET_BYTES
        copy_bytes(ring.whole, address + FRAME_AT - VNET_BYTES, size)
    if size <= VNET_BYTES or status & VLAN_TAG:
        return False
    ring.state[UNCUT] = size
    return True


@inner
def _cut(ring: Ring, rows: Indices, lengths: Indices, first: int, room: int) -> int:
    """Cut the next pieces off the super-frame, for rows from `first` to `room`, and forget it with the last."""
    state = ring.state
    count = cut(ring.whole, state[UNCUT], state[_DONE], ring.pieces[first:], lengths[first:], room - first)
    for row in range(first, first + count):
        rows[row] = row
    state[_DONE] += count
    if first + count < room:
        state[_DROPPED] += 1 if state[_DONE] == 0 else 0
        state[UNCUT] = 0
    return count
