"""Ports that are UDP peers: whole Ethernet frames, each in a datagram, so that switches and hosts meet without root.

    udp:127.0.0.1:7401/127.0.0.1:7402
        |              the other end, which has an ordinary UDP socket
        our end

Each port is a cable with two ends.  The kernel hands out only what comes from the other end's address.  If nothing
listens there, frames are lost, as on a cable that is plugged in nowhere; they arrive again when somebody listens.
A datagram that is no frame, shorter than an Ethernet header or longer than `MAX_FRAME_BYTES`, is dropped and counted.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from switchsum_switch.errors import TransportError, UsageError
from switchsum_switch.wires.datagrams import has_more, knows_segments, take_together
from switchsum_switch.wires.messages import grow_buffers

from .base import Addresses, Batch, PortCounter, PortGroup, PortTable, Words
from .operations import Operations
from .peer_kernels import PEERS, PeerMemory, packed_peers

SCHEME: Final = "udp:"
"""Beginning of the names of ports that are UDP peers."""
_LAST_UDP_PORT: Final = 65_535
_SO_MEMINFO: Final = 55
_MEMORY_WORDS: Final = 9
"""Numbers of SO_MEMINFO (linux/sock_diag.h); the last one counts the datagrams for which the buffer had no room."""

Endpoint = tuple[str, int]
"""IPv4 address or name of a host, and UDP port."""


def read_peer(name: str) -> tuple[Endpoint, Endpoint]:
    """Return the two ends that `udp:HOST:PORT/HOST:PORT` names, ours first; raises UsageError."""
    ours, _, theirs = name.removeprefix(SCHEME).partition("/")
    ends = _read_end(ours), _read_end(theirs)
    if not name.startswith(SCHEME) or ends[0] is None or ends[1] is None or ends[1][1] == 0:
        raise UsageError(
            f"a UDP peer is udp:HOST:PORT/HOST:PORT, our end and the other one, with IPv4 addresses, not {name!r}"
        )
    return ends[0], ends[1]


def _read_end(text: str) -> Endpoint | None:
    host, _, port = text.rpartition(":")
    is_port = port.isdecimal() and port.isascii() and int(port) <= _LAST_UDP_PORT
    return (host, int(port)) if host and ":" not in host and is_port else None


@dataclass(slots=True, kw_only=True)
class _Port:
    """One peer."""

    number: int
    link: socket.socket
    memory: PeerMemory
    lost: int = field(default=0, init=False)
    """How many of the datagrams that found no room in the socket's buffer are in the port's counters."""


class PeerPorts(PortGroup):
    """Ports that are UDP peers; each `collect` overwrites the frames of the last one."""

    def __init__(self, table: PortTable, peers: Mapping[int, str | socket.socket]) -> None:
        """Open `peers` by port number: names such as `udp:127.0.0.1:7401/127.0.0.1:7402`, or connected sockets.

        The sockets belong to the ports from then on.  Raises UsageError where a name is wrong, and TransportError where
        an address cannot be used.
        """
        super().__init__(table)
        self._ports: list[_Port] = []
        ends = {number: read_peer(name) for number, name in peers.items() if isinstance(name, str)}
        taken: dict[Endpoint, int] = {}
        for number, (ours, _) in ends.items():
            if ours[1] and taken.setdefault(ours, number) != number:
                raise UsageError(f"ports {taken[ours]} and {number} have the same end, {_text(ours)}")
        try:
            for number, peer in peers.items():
                self._add(number, peer if isinstance(peer, socket.socket) else _connected(number, *ends[number]))
        except BaseException:
            self.close()
            raise
        self._words = [(port.number, port.link.fileno(), port.memory) for port in self._ports]
        self.operations = Operations(PEERS, self, packed_peers(self._words))
        """Functions that the loop calls, compiled before the first frame."""

    def _add(self, number: int, link: socket.socket) -> None:
        own, other = link.getsockname(), link.getpeername()
        try:
            if own == other:
                raise TransportError(f"port {number}: both ends are {_text(own)}")
            for port in self._ports:
                if port.link.getpeername() == other:
                    raise TransportError(f"ports {port.number} and {number} have the same other end, {_text(other)}")
            self.table.take("udp", f"{SCHEME}{_text(own)}/{_text(other)}", number)
        except BaseException:
            link.close()
            raise
        grow_buffers(link)
        take_together(link)
        self._ports.append(_Port(number=number, link=link, memory=PeerMemory(together=knows_segments(link))))
        self.owned[number] = True

    def collect(self, batch: Batch) -> None:
        """Receive from each peer as many datagrams as one system call gives."""
        self.operations.collect(batch)

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Send frames, port by port; drop and count those that the sockets do not take."""
        self.operations.transmit(ports, addresses, lengths)

    def prepare_sleep(self) -> bool:
        """Return whether no port has received datagrams that are still to be collected."""
        return not any(has_more(port.memory.receiving.state) for port in self._ports)

    def descriptors(self) -> list[int]:
        """Return the sockets."""
        return self.sockets()

    def sockets(self) -> list[int]:
        """Return the sockets, which become readable when datagrams arrive."""
        return [port.link.fileno() for port in self._ports]

    def service(self) -> None:
        """Count the datagrams for which the sockets' buffers had no room."""
        for port in self._ports:
            lost = _lost(port.link)
            self.table.counters[port.number, PortCounter.RX_DROPS] += lost - port.lost
            port.lost = lost

    def close(self) -> None:
        """Count what was lost, and close the sockets."""
        self.service()
        for port in self._ports:
            port.link.close()
            self.table.give_back(port.number)
        self._ports.clear()
        self.owned[:] = False


def _connected(number: int, ours: Endpoint, theirs: Endpoint) -> socket.socket:
    """Return a socket from our end to the other one; raises TransportError."""
    try:
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise TransportError(f"cannot open a UDP socket: {error.strerror}") from error
    what = f"listen on UDP port {_text(ours)}"
    try:
        link.bind(ours)
        what = f"send to {_text(theirs)}"
        link.connect(theirs)
    except OSError as error:
        link.close()
        remedy = f": `ss -lnup sport = :{ours[1]}` says by whom" if error.errno == errno.EADDRINUSE else ""
        raise TransportError(f"port {number} cannot {what}: {error.strerror}{remedy}") from error
    except TypeError as error:  # the name of a host that no codec takes
        link.close()
        raise TransportError(f"port {number} cannot {what}: no such host") from error
    return link


def _text(end: Endpoint) -> str:
    return f"{end[0]}:{end[1]}"


def _lost(link: socket.socket) -> int:
    """Return how many datagrams have found no room in a socket's buffer."""
    counts = link.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * _MEMORY_WORDS)
    return int(struct.unpack(f"={len(counts) // 4}I", counts)[-1]) if len(counts) == 4 * _MEMORY_WORDS else 0
