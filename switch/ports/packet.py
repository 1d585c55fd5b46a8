"""Ports on network interfaces."""

from __future__ import annotations

import select
import socket
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.batchsocket import BatchReceiver, BatchSender, grow_buffers
from switchsum.protocol.packetsocket import PACKET_AUXDATA, SOL_PACKET, open_packet_socket
from switchsum.protocol.rows import LEAD_BYTES
from switchsum.switch.ports.backlog import Backlog
from switchsum.switch.ports.base import MAX_FRAME_BYTES, Addresses, Batch, Counter, PortGroup, PortTable, Words

_AUXDATA: Final = np.dtype(
    {
        "names": ["level", "kind", "status", "tag", "ethertype"],
        "formats": ["i4", "i4", "u4", "u2", "u2"],
        "offsets": [8, 12, 16, 32, 34],
        "itemsize": 40,
    }
)
"""A control message (cmsghdr) with a struct tpacket_auxdata."""
_VLAN_VALID: Final = 0x10
_TAG_BYTES: Final = 4
_MAC_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Port:
    """One interface."""

    number: int
    link: socket.socket
    receiver: BatchReceiver
    backlog: Backlog


class PacketPorts(PortGroup):
    """Ports that are interfaces; the next `collect` overwrites the frames of the last."""

    def __init__(self, table: PortTable, interfaces: dict[int, str], *, deep: bool = True) -> None:
        """Open `interfaces`, by port number, all traffic of theirs; raises TransportError.

        `deep` ones let the kernel keep many frames that are to go out; else they soon wait in the switch's queues.
        """
        super().__init__(table)
        self._deep = deep
        self._sender = BatchSender()
        self._writable = select.epoll()
        """Has the sockets of ports that frames wait for."""
        self._blocked: set[int] = set()
        self._ports: dict[int, _Port] = {}
        try:
            for number, interface in interfaces.items():
                self._open(number, interface)
        except BaseException:
            self.close()
            raise

    def _open(self, number: int, interface: str) -> None:
        link = open_packet_socket(interface, promiscuous=True)
        try:
            self.table.take("packet", interface, number)
        except BaseException:
            link.close()
            raise
        grow_buffers(link, sending=self._deep)
        receiver = BatchReceiver(MAX_FRAME_BYTES, control_bytes=_AUXDATA.itemsize)
        backlog = Backlog(number, self.table.queues)
        self._ports[number] = _Port(number=number, link=link, receiver=receiver, backlog=backlog)
        self.owned[number] = True

    def collect(self, batch: Batch) -> None:
        """Receive from each interface in turn, one system call's worth; send what waits and can go now."""
        if self._blocked:
            self._drain()
        for port in self._ports.values():
            if room := batch.capacity - batch.count:
                count = port.receiver.receive(port.link.fileno(), room)
                if count:
                    self._append(batch, port, count)

    def _append(self, batch: Batch, port: _Port, count: int) -> None:
        lengths = port.receiver.lengths(count)
        starts = np.full(count, LEAD_BYTES)
        tagged = _put_tags_back(port.receiver, lengths)
        starts[tagged] -= _TAG_BYTES
        lengths[tagged] += _TAG_BYTES
        rows = np.flatnonzero(lengths > 0)
        addresses = port.receiver.rows.ctypes.data + rows * port.receiver.rows.strides[0] + starts[rows]
        batch.extend(port.number, addresses, lengths[rows])
        counters = self.table.counters[port.number]
        counters[Counter.RX_FRAMES] += len(rows)
        counters[Counter.RX_BYTES] += lengths.sum()
        counters[Counter.RX_DROPS] += count - len(rows)

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Send frames, port by port; what the interface does not take at once waits, or is dropped."""
        self.enqueue(ports, np.zeros(len(ports), np.uint32), addresses, lengths)

    def enqueue(self, ports: Words, queues: Words, addresses: Addresses, lengths: Words) -> None:
        """Send frames, port by port; what the interface does not take at once waits in its queue, or is dropped."""
        for number in np.unique(ports).tolist():
            mine = ports == number
            port, counters, refused = self._ports[number], self.table.counters[number], self._sender.failed
            sent = 0
            if not port.backlog.frames:
                sent = self._sender.send(port.link.fileno(), addresses[mine], lengths[mine])
            refused = self._sender.failed - refused
            counters[Counter.TX_FRAMES] += sent - refused
            counters[Counter.TX_BYTES] += lengths[mine][:sent].sum()
            dropped = port.backlog.push(queues[mine][sent:], addresses[mine][sent:], lengths[mine][sent:])
            counters[Counter.TX_DROPS] += dropped + refused
            if port.backlog.frames and number not in self._blocked:
                self._blocked.add(number)
                self._writable.register(port.link, select.EPOLLOUT)

    def _drain(self) -> None:
        """Send the frames that wait, port by port, as far as the interfaces take them."""
        for number in sorted(self._blocked):
            port, counters = self._ports[number], self.table.counters[number]
            while port.backlog.frames:
                frame = port.backlog.first()
                try:
                    port.link.send(frame, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                except OSError:  # the interface is down, or dropped the frame
                    counters[Counter.TX_DROPS] += 1
                else:
                    counters[[Counter.TX_FRAMES, Counter.TX_BYTES]] += (1, len(frame))
                port.backlog.pop()
            if not port.backlog.frames:
                self._blocked.remove(number)
                self._writable.unregister(port.link)

    def descriptors(self) -> list[int]:
        """Return the sockets, and what is readable when frames that wait can go."""
        return [*(port.link.fileno() for port in self._ports.values()), self._writable.fileno()]

    def close(self) -> None:
        """Close the sockets."""
        for port in self._ports.values():
            port.link.close()
            self.table.give_back(port.number)
        self._ports.clear()
        self._writable.close()
        self.owned[:] = False


def _put_tags_back(receiver: BatchReceiver, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    """Move the addresses of frames that had a VLAN tag 4 bytes ahead and write the tag; return which rows these are.

    The kernel takes the outer tag off every frame and tells it beside.
    """
    count = len(lengths)
    told = receiver.controls.view(_AUXDATA)[:count, 0]
    valid = (receiver.control_bytes[:count] > 0) & (told["level"] == SOL_PACKET) & (told["kind"] == PACKET_AUXDATA)
    tagged = np.flatnonzero(valid & (told["status"] & _VLAN_VALID != 0) & (lengths > 0))
    if len(tagged):
        rows, start = receiver.rows, LEAD_BYTES - _TAG_BYTES
        rows[tagged, start : start + _MAC_BYTES] = rows[tagged, LEAD_BYTES : LEAD_BYTES + _MAC_BYTES]
        tags = np.stack([told["ethertype"][tagged], told["tag"][tagged]], axis=1).astype(">u2")
        rows[tagged, start + _MAC_BYTES : LEAD_BYTES + _MAC_BYTES] = tags.view(np.uint8)
    return tagged
