"""Ports on network interfaces, by AF_PACKET sockets.

Each port has a receive ring (`packetring.py`): memory that the kernel fills with frames while the switch does other
work. Frames leave through the same socket.  If an interface does not take a frame at once, the frame is copied to the
port's backlog; further frames for the port join it, so that order is kept, until poll says that the interface takes
frames again.  The native loop does not touch a port with a backlog: Python drains it (`_drain`).
"""

from __future__ import annotations

import logging
import select
import socket
import time
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from switchsum_switch.wires.headers import ETHERNET_BYTES
from switchsum_switch.wires.messages import grow_buffers
from switchsum_switch.wires.packetring import PacketRing, forget_error
from switchsum_switch.wires.packetsocket import interface_mtu, is_running, segments
from switchsum_switch.wires.segmentation import VNET_BYTES, FrameSender

from .backlog import Backlog
from .base import MAX_FRAME_BYTES, Addresses, Batch, PortCounter, PortGroup, PortTable, Words
from .operations import Operations
from .packet_kernels import DESCRIPTOR, IS_BLOCKED, PACKET, TAG_BYTES, TOGETHER, packed_words, packet_words

_log: Final = logging.getLogger("switchsum.switch.ports.packet")
RING_FRAMES: Final = 1024
"""Slots of a port's receive ring: it holds the windows of four workers while the switch is busy."""

LOOK_EVERY_S: Final = 0.1
"""How often it is looked which links are up: four system calls an interface."""

OFFLOADS: Final = (
    "port %d, %s, drops super-frames of TCP, which no wire carries: `ethtool -K %s gro off lro off`, and at the other "
    "end of a veth pair `ethtool -K PEER tso off gso off`"
)
"""Warning that is logged once for such an interface."""

TOO_LONG: Final = "port %d, %s, drops a frame of %d bytes: frames have %d bytes at most"
"""Warning that is logged for a frame that is longer than any before."""


@dataclass(slots=True, kw_only=True)
class _Port:
    """One interface."""

    number: int
    ring: PacketRing
    backlog: Backlog
    interface: str
    dropped: int = field(default=0, init=False)
    """How many of the frames that the ring has dropped are in the port's counters."""
    is_uncut_said: bool = field(default=False, init=False)
    """The log says that the port drops super-frames."""
    warned_bytes: int = field(default=0, init=False)
    """Length of the longest frame that the log has named as too long."""


class PacketPorts(PortGroup):
    """Ports that are interfaces; each `collect` gives the memory of the frames of the last one back."""

    def __init__(self, table: PortTable, interfaces: dict[int, str], *, deep: bool = True) -> None:
        """Open `interfaces`, given by port number, for all their traffic; raises TransportError.

        With `deep` the kernel may keep many frames that wait to leave, and frames of equal length go to an interface
        that segments as one super-frame.  Without it frames wait in the switch's queues, where programs see them.
        """
        super().__init__(table)
        self._deep = deep
        self._writable = select.epoll()
        """Watches the sockets of the ports that have a backlog; its own descriptor is readable if one takes frames."""
        self._look_at = 0.0
        """When it is looked again which links are up."""
        self._ports: dict[int, _Port] = {}
        self._sender = FrameSender()
        self.words = packet_words(len(interfaces), self._sender)
        """The ports as kernels see them."""
        self.operations = Operations(PACKET, self, packed_words(self.words))
        """Functions that the loop calls, compiled before the first frame."""
        try:
            for number, interface in interfaces.items():
                self._open(number, interface)
        except BaseException:
            self.close()
            raise

    def _open(self, number: int, interface: str) -> None:
        # A slot of the ring is as long as a frame of the interface's MTU with a tag.
        longest, index = interface_mtu(interface) + ETHERNET_BYTES, len(self._ports)
        ring = PacketRing(
            interface,
            frame_bytes=min(longest + TAG_BYTES, MAX_FRAME_BYTES),
            slots=RING_FRAMES,
            longest=MAX_FRAME_BYTES,
            promiscuous=True,
            ring=self.words.rings[index],
        )
        try:
            self.table.take("packet", interface, number)
        except BaseException:
            ring.close()
            raise
        if ring.shortage:
            _log.warning(ring.shortage)
        grow_buffers(ring.link, sending=self._deep)
        backlog = Backlog(number, self.table.queues, self.table.clock)
        self._ports[number] = _Port(number=number, ring=ring, backlog=backlog, interface=interface)
        self.words.numbers[index] = number
        self.words.links[number, DESCRIPTOR] = ring.link.fileno()
        self.words.links[number, TOGETHER] = longest if self._deep and segments(interface) else 0
        self.owned[number] = True

    @property
    def is_blocked(self) -> bool:
        """Whether a port has a backlog."""
        return bool(self.words.links[:, IS_BLOCKED].any())

    def collect(self, batch: Batch) -> None:
        """Take frames from each interface, after sending as much of the backlogs as goes."""
        if self.is_blocked:
            self._drain()
        self.operations.collect(batch)

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Send frames, port by port; a frame that the interface does not take joins the backlog or is dropped."""
        self.enqueue(ports, np.zeros(len(ports), np.uint32), addresses, lengths)

    def enqueue(self, ports: Words, queues: Words, addresses: Addresses, lengths: Words) -> None:
        """Send frames, port by port; a frame that the interface does not take joins its queue or is dropped."""
        left = self.operations.transmit(ports, addresses, lengths)
        if len(left):
            self.hold(ports[left], queues[left], addresses[left], lengths[left])

    def hold(self, ports: Words, queues: Words, addresses: Addresses, lengths: Words) -> None:
        """Copy frames to the backlogs of their ports; drop and count those for which a queue is too full."""
        for number in np.unique(ports).tolist():
            mine, port = ports == number, self._ports[number]
            dropped = port.backlog.push(queues[mine], addresses[mine], lengths[mine])
            self.table.counters[number, PortCounter.TX_DROPS] += dropped
            if not self.words.links[number, IS_BLOCKED]:
                self.words.links[number, IS_BLOCKED] = 1
                self._writable.register(port.ring.link, select.EPOLLOUT)

    def _drain(self) -> None:
        """Send the frames of the backlogs, port by port, as far as the interfaces take them."""
        for number in np.flatnonzero(self.words.links[:, IS_BLOCKED]).tolist():
            port, counters = self._ports[number], self.table.counters[number]
            while port.backlog.frames:
                frame = port.backlog.first()
                try:
                    port.ring.link.send(bytes(VNET_BYTES) + frame, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                except OSError:  # the interface is down, or has dropped the frame
                    counters[PortCounter.TX_DROPS] += 1
                else:
                    counters[[PortCounter.TX_FRAMES, PortCounter.TX_BYTES]] += (1, len(frame))
                port.backlog.pop()
            if not port.backlog.frames:
                self.words.links[number, IS_BLOCKED] = 0
                self._writable.unregister(port.ring.link)

    def descriptors(self) -> list[int]:
        """Return the sockets, and the descriptor that is readable when a backlog can be sent."""
        return [*self.sockets(), self._writable.fileno()]

    def sockets(self) -> list[int]:
        """Return the sockets, which become readable when frames arrive."""
        return [port.ring.link.fileno() for port in self._ports.values()]

    def service(self) -> None:
        """Note which links are up, count the frames that the rings dropped, and clear the errors of dead interfaces.

        An interface whose super-frames are dropped is named once: TCP crawls over it, and nothing else says why.  A
        single frame that is too long is named by its length.
        """
        looks = time.monotonic() >= self._look_at
        if looks:
            self._look_at = time.monotonic() + LOOK_EVERY_S
        for port in self._ports.values():
            if looks:
                self.table.status.set(port.number, up=is_running(port.interface))
            forget_error(port.ring.ring)
            dropped = port.ring.dropped
            self.table.counters[port.number, PortCounter.RX_DROPS] += dropped - port.dropped
            port.dropped = dropped
            if port.ring.uncut and not port.is_uncut_said:
                port.is_uncut_said = True
                _log.warning(OFFLOADS, port.number, port.interface, port.interface)
            if port.ring.too_long > port.warned_bytes:
                port.warned_bytes = port.ring.too_long
                _log.warning(TOO_LONG, port.number, port.interface, port.warned_bytes, MAX_FRAME_BYTES)

    def close(self) -> None:
        """Close the sockets."""
        for port in self._ports.values():
            port.ring.close()
            self.table.give_back(port.number)
        self._ports.clear()
        self._writable.close()
        self.owned[:] = False
