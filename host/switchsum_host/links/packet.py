"""The link of a worker that may open raw sockets: whole frames on an interface, past the kernel's IP stack."""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from switchsum_protocol.errors import TransportError
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import integers_at
from switchsum_switch.kernels.outlined import Native, Outlined
from switchsum_switch.kernels.records import Int64, Record, dtype_of
from switchsum_switch.process.system import watch
from switchsum_switch.wires.headers import ETHERNET_BYTES, Address, format_ip
from switchsum_switch.wires.messages import grow_buffers, packed, send_words_at
from switchsum_switch.wires.packetring import (
    DESCRIPTOR,
    MOST_TAKEN,
    RING_FIELDS,
    TURN_BYTES,
    PacketRing,
    Ring,
    first_frame,
    forget_error,
    take,
)
from switchsum_switch.wires.packetsocket import (
    NOTHING,
    attach_filter,
    interface_ip,
    interface_mac,
    interface_mtu,
    segments,
    udp_filter,
)
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows
from switchsum_switch.wires.segmentation import FrameSender, send_frames

from ..engine.link import LINK, LinkRecord
from .native import NAP_S, NativeTransport, all_pushed, keep_nothing, sleep, tell_time
from .sockets import turn_frames

_log: Final = logging.getLogger("switchsum.host.links.packet")
_UDP_GRO: Final = 104
RING_FRAMES: Final = 512
"""Twice what may be in flight: results may be repeated."""


class PacketRecord(Record):
    """What only the functions of such a link know."""

    ring: Int64
    """Address of the ring's words."""
    watched: Int64
    """Address: the ring's socket."""
    sender: Int64
    """Address of packed `SendWords`."""
    first: Int64
    """Address of the frame in the first row that is sent."""
    stride: Int64
    """Bytes from one of these rows to the next."""
    longest: Int64
    """Longest frame that may be sent together with others; 0: none may."""


_OWN: Final = dtype_of(PacketRecord)
_ERROR: Final = select.POLLERR << 16


@Outlined
def _take(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: PacketRecord = carray(pointer(here.own), (1,), _OWN)[0]
    ring = integers_at(own.ring, RING_FIELDS)
    rows = carray(pointer(here.rows), (MOST_TAKEN,), np.int32)
    lengths = carray(pointer(here.lengths), (MOST_TAKEN,), np.int32)
    count = take(ring, rows, lengths)
    first, stride = first_frame(ring)
    here.frames, here.stride = first - LEAD_BYTES, stride
    return int(count)


@Outlined
def _send(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: PacketRecord = carray(pointer(here.own), (1,), _OWN)[0]
    rows = carray(pointer(here.queue_rows), (here.queued,), np.int32)
    lengths = carray(pointer(here.queue_lengths), (here.queued,), np.int32)
    addresses = np.empty(here.queued, np.int64)
    for i in range(here.queued):
        addresses[i] = own.first + np.int64(rows[i]) * own.stride
    ring = integers_at(own.ring, RING_FIELDS)
    here.pushed += send_frames(ring[DESCRIPTOR], send_words_at(own.sender), addresses, lengths, own.longest)
    return 0


@Outlined
def _wait(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: PacketRecord = carray(pointer(here.own), (1,), _OWN)[0]
    watched = carray(pointer(own.watched), (1, 2), np.int32)
    ready = sleep(here, own.watched)
    if ready > 0 and watched[0, 1] & _ERROR:
        forget_error(integers_at(own.ring, RING_FIELDS))
    return int(ready > 0)


class PacketTransport(NativeTransport):
    """A `Transport` over AF_PACKET; a filter in the kernel lets only the switch's frames to this worker through."""

    natives: ClassVar[Mapping[str, Native]] = {
        "take": _take,
        "release": keep_nothing,
        "send": _send,
        "consumed": all_pushed,
        "wait": _wait,
        "now": tell_time,
    }

    def __init__(self, interface: str, *, rows: int, frame_bytes: int, switch: Address, together: bool = True) -> None:
        """Use `interface` with its own addresses and a UDP port that is free; raises TransportError.

        With `together` frames are sent in super-frames where the interface takes them; the switch must take them too.
        """
        self.address, self._reservation = take_address(interface, frame_bytes)
        try:
            socket_filter = udp_filter(switch, self.address)
            self._ring = PacketRing(interface, frame_bytes=frame_bytes, slots=RING_FRAMES, socket_filter=socket_filter)
        except TransportError:
            self._reservation.close()
            raise
        if self._ring.shortage:
            _log.warning(self._ring.shortage)
        grow_buffers(self._ring.link)
        self._sender = FrameSender()
        self.max_frame_bytes = frame_bytes
        self.tx_frames = allocate_rows(rows, frame_bytes)
        self._describe(frame_bytes if together and segments(interface) else 0)

    def _describe(self, longest: int) -> None:
        """Tell the functions where things are."""
        watched, sender = watch([self._ring.link.fileno()]), packed(self._sender.words)
        own = np.zeros(1, _OWN)
        own[0] = (
            *(address_of(self._ring.ring), address_of(watched), address_of(sender)),
            *(self.tx_frames.ctypes.data + LEAD_BYTES, self.tx_frames.strides[0], longest),
        )
        rows, lengths = np.zeros(MOST_TAKEN, np.int32), np.zeros(MOST_TAKEN, np.int32)
        self.set_functions(own, watched, sender, rows, lengths, self._ring, self._sender)
        record = self.functions().record
        record["rows"], record["lengths"] = address_of(rows), address_of(lengths)
        record["turn"], record["batch_bytes"] = turn_frames(self.max_frame_bytes), TURN_BYTES
        record["longest_nap_s"] = NAP_S

    @property
    def failed(self) -> int:
        """Return how many frames the kernel refused to send."""
        return self._sender.refused

    @property
    def ring(self) -> Ring:
        """Return the words of the ring that frames come through."""
        return self._ring.ring

    def close(self) -> None:
        """Close the socket and free the UDP port."""
        self._ring.close()
        self._reservation.close()


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
