"""A link that can be watched: every frame goes through Scapy, one by one, and is logged as Scapy reads it.

It is slow.  `switchsum_host.links.packet` is the same link for work.
"""

from __future__ import annotations

import logging
import select
import socket

import numpy as np
from scapy.config import conf
from scapy.layers.l2 import Ether

from switchsum_protocol.errors import TransportError
from switchsum_protocol.wire import parse_frame
from switchsum_switch.wires.headers import Address
from switchsum_switch.wires.messages import grow_buffers
from switchsum_switch.wires.packetsocket import PACKET_VNET_HDR, SOL_PACKET, attach_filter, udp_filter
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows
from switchsum_switch.wires.segmentation import SUPER_BYTES, VNET_BYTES, frames_of

# Binds the aggregation header to its UDP port, which is what makes the log readable.
from . import scapy_layer  # noqa: F401
from .base import Indices, Received, milliseconds
from .callbacks import PythonTransport
from .packet import take_address

_RECEIVED_ROWS = 16
_log = logging.getLogger("switchsum.host.links.scapy_transport")


class ScapyTransport(PythonTransport):
    """A `Transport` on an interface through Scapy's layer 2 socket."""

    def __init__(self, interface: str, *, rows: int, frame_bytes: int, switch: Address) -> None:
        """Use `interface` with its own addresses and a UDP port that is free; raises TransportError."""
        self.address, self._reservation = take_address(interface, frame_bytes)
        self._switch = switch
        try:
            self._socket = conf.L2socket(iface=interface, promisc=False)
        except OSError as error:
            self._reservation.close()
            raise TransportError(f"Scapy cannot use interface {interface}: {error.strerror}") from error
        grow_buffers(self._socket.ins)
        self._socket.ins.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        attach_filter(self._socket.ins, udp_filter(switch, self.address))
        self._forget_waiting()
        self._frames: list[bytes] = []
        self._poll = select.poll()
        self._poll.register(self._socket.fileno(), select.POLLIN)
        self._received = allocate_rows(_RECEIVED_ROWS, frame_bytes)
        self._answers = self._received.view()
        self._answers.flags.writeable = False
        self.max_frame_bytes = frame_bytes
        self.tx_frames = allocate_rows(rows, frame_bytes)

    def _forget_waiting(self) -> None:
        """Forget what came before there was a filter."""
        try:
            while True:
                self._socket.ins.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Send the frames in `rows`."""
        for row, length in zip(rows.tolist(), lengths.tolist(), strict=True):
            packet = Ether(self.tx_frames[row, LEAD_BYTES : LEAD_BYTES + length].tobytes())
            _log.debug("sends %s", packet.summary())
            self._socket.ins.send(bytes(VNET_BYTES) + bytes(packet))
        self.pushed += len(rows)
        return len(rows)

    def receive(self) -> Received:
        """Return the switch's frames to this worker that have come."""
        lengths: list[int] = []
        while len(lengths) < _RECEIVED_ROWS and (self._frames or self._poll.poll(0)):
            if not self._frames:
                self._frames = frames_of(self._socket.ins.recv(VNET_BYTES + SUPER_BYTES))
                continue
            frame = self._frames.pop(0)
            packet = parse_frame(frame)
            if packet is None or (packet.source, packet.destination) != (self._switch, self.address):
                continue
            _log.debug("receives %s", Ether(frame).summary())
            if len(frame) <= self.max_frame_bytes:
                row = self._received[len(lengths)]
                row[LEAD_BYTES : LEAD_BYTES + len(frame)] = np.frombuffer(frame, np.uint8)
                lengths.append(len(frame))
        return Received(self._answers, np.arange(len(lengths), dtype=np.int32), np.array(lengths, np.int32))

    def wait(self, timeout_s: float) -> bool:
        """Block until something has come."""
        return bool(self._frames or self._poll.poll(milliseconds(timeout_s)))

    def close(self) -> None:
        """Close the socket and free the UDP port."""
        self._socket.close()
        self._reservation.close()
