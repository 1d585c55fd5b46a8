"""The link of a worker that may open raw sockets: whole frames on an interface, past the kernel's IP stack."""

from __future__ import annotations

import logging
import select
import socket
from dataclasses import dataclass
from typing import Final

import numpy as np

from switchsum.native.atomics import copy_bytes
from switchsum.native.batchsocket import grow_buffers
from switchsum.native.kernels import kernel
from switchsum.native.packetring import DESCRIPTOR, MOST_TAKEN, PacketRing, Ring, first_frame, forget_error, take
from switchsum.native.packetsocket import (
    NOTHING,
    attach_filter,
    interface_ip,
    interface_mac,
    interface_mtu,
    segments,
    udp_filter,
)
from switchsum.native.rows import LEAD_BYTES, allocate_rows
from switchsum.native.segmentation import FrameSender, Sending, send_frames
from switchsum.protocol.errors import TransportError
from switchsum.protocol.frame import ETHERNET_BYTES
from switchsum.protocol.wire import Address, format_ip

from .base import Frames, Indices, Received, milliseconds

_log: Final = logging.getLogger(__name__)
_UDP_GRO: Final = 104
RING_FRAMES: Final = 512
"""Twice what may be in flight: results may be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketEnd:
    """What kernels need of the link."""

    ring: Ring
    sending: Sending
    first: int
    """Address of the frame in the first row that is sent."""
    stride: int
    """Bytes from one of these rows to the next."""
    longest: int
    """Longest frame that may be sent together with others; 0: none may."""


class PacketTransport:
    """A `Transport` over AF_PACKET; a filter in the kernel lets only the switch's frames to this worker through."""

    lead = LEAD_BYTES
    reopened = 0
    """Sockets outlive the switch."""

    def __init__(self, interface: str, *, rows: int, frame_bytes: int, switch: Address, together: bool = True) -> None:
        """Use `interface` with its own addresses and a UDP port that is free; raises TransportError.

        With `together` frames are sent in super-frames where the interface takes them; the switch must take them too.
        """
        self.address, self._reservation = take_address(interface, frame_bytes)
        try:
            program = udp_filter(switch, self.address)
            self._ring = PacketRing(interface, frame_bytes=frame_bytes, slots=RING_FRAMES, program=program)
        except TransportError:
            self._reservation.close()
            raise
        if self._ring.shortage:
            _log.warning(self._ring.shortage)
        grow_buffers(self._ring.link)
        self._sender = FrameSender()
        self._poll = select.poll()
        self._poll.register(self._ring.link, select.POLLIN)
        self._rows, self._lengths = np.zeros(MOST_TAKEN, np.int32), np.zeros(MOST_TAKEN, np.int32)
        self._copies = allocate_rows(MOST_TAKEN, frame_bytes)
        self.max_frame_bytes = frame_bytes
        self.pushed = 0
        self.tx_frames: Frames = allocate_rows(rows, frame_bytes)
        self._end = PacketEnd(
            ring=self._ring.ring,
            sending=self._sender.sending,
            first=self.tx_frames.ctypes.data + LEAD_BYTES,
            stride=self.tx_frames.strides[0],
            longest=frame_bytes if together and segments(interface) else 0,
        )

    @property
    def consumed(self) -> int:
        """Return as many as were handed over: the kernel has copied them."""
        return self.pushed

    @property
    def failed(self) -> int:
        """Return how many frames the kernel refused to send."""
        return self._sender.refused

    def end(self) -> PacketEnd:
        """Return what a loop that is a kernel works on instead of calling `receive`, `send` and `wait`."""
        return self._end

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Send the frames in `rows`, as many as the socket takes."""
        end = self._end
        addresses = end.first + rows.astype(np.int64) * end.stride
        count = send_frames(int(end.ring[DESCRIPTOR]), end.sending, addresses, lengths, end.longest)
        self.pushed += count
        return count

    def receive(self) -> Received:
        """Return copies of the frames that have come."""
        count = take(self._end.ring, self._rows, self._lengths)
        rows, lengths = self._rows[:count], self._lengths[:count]
        _copy(self._end.ring, rows, lengths, self._copies)
        return Received(self._copies, np.arange(count, dtype=np.int32), lengths)

    def release(self) -> None:
        """Nothing to do: the next `receive` overwrites the rows."""

    def wait(self, timeout_s: float) -> bool:
        """Block until something has come."""
        ready = self._poll.poll(milliseconds(timeout_s))
        if ready and ready[0][1] & select.POLLERR:
            forget_error(self._end.ring)
        return bool(ready)

    def close(self) -> None:
        """Close the socket and free the UDP port."""
        self._ring.close()
        self._reservation.close()


@kernel
def _copy(ring: Ring, rows: Indices, lengths: Indices, copies: Frames) -> None:
    first, stride = first_frame(ring)
    for i in range(len(rows)):
        copy_bytes(
            copies[i, LEAD_BYTES:].ctypes.data, first + rows[i] * stride, min(lengths[i], len(copies[i]) - LEAD_BYTES)
        )


def take_address(interface: str, frame_bytes: int) -> tuple[Address, socket.socket]:
    """Return an interface's addresses with a free UDP port, and a socket that keeps the port; raises TransportError.

    Without that socket the kernel, which sees the frames as well, would answer each with an ICMP "port unreachable".
    """
    longest = interface_mtu(interface) + ETHERNET_BYTES
    if frame_bytes > longest:
        raise TransportError(
            f"interface {interface} takes frames of {longest} bytes, not {frame_bytes}: `ip link set {interface} mtu "
            f"{frame_bytes - ETHERNET_BYTES}` on both ends, or a controller with fewer --lanes"
        )
    ip = interface_ip(interface)
    reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    attach_filter(reservation, NOTHING)
    reservation.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)  # or the kernel cuts super-frames for it
    reservation.bind((format_ip(ip), 0))
    return Address(mac=interface_mac(interface), ip=ip, port=reservation.getsockname()[1]), reservation
