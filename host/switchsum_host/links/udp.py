"""The link of a worker without privileges: an ordinary UDP socket, connected to the switch."""

from __future__ import annotations

import socket
from typing import Final

from switchsum_protocol.errors import TransportError
from switchsum_switch.wires.datagrams import knows_segments, take_marks, take_together
from switchsum_switch.wires.encapsulation import made_up_mac, template
from switchsum_switch.wires.headers import ETHERNET_BYTES, Address, parse_ip

from .sockets import SocketTransport

_IP_MTU_DISCOVER: Final = 10
_IP_PMTUDISC_DO: Final = 2
"""Sends no fragments: one that gets lost takes the others with it."""
_IP_MTU: Final = 14


class UdpTransport(SocketTransport):
    """A `Transport` over UDP; what is sent leaves without the lower headers that the engine packs.

    Received frames get lower headers from `switch` to `address`: the socket is connected, so nobody else's datagrams
    come in.  The Ethernet address is made up; a router or a kernel on the way puts its own.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        rows: int,
        frame_bytes: int,
        switch: Address,
        together: bool = True,
        source: str = "",
    ) -> None:
        """Connect to the switch at `host` and `port`, which calls itself `switch`; raises TransportError.

        `together`: frames may go as super-datagrams.  `source` is an address of this machine from which to send;
        empty: the one that leads to the switch.
        """
        try:
            link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        except OSError as error:
            raise TransportError(f"cannot open a UDP socket: {error.strerror}") from error
        try:
            _send_from(link, source)
            link.connect((host, port))
        except OSError as error:
            link.close()
            raise TransportError(f"cannot reach a switch at {host}:{port}: {error.strerror}") from error
        _check_path(link, host, frame_bytes)
        ip_text, own_port = link.getsockname()
        ip = parse_ip(ip_text)
        address = Address(mac=made_up_mac(ip), ip=ip, port=own_port)
        take_together(link)
        take_marks(link)
        super().__init__(
            link,
            address,
            rows=rows,
            frame_bytes=frame_bytes,
            lower=template(switch, address),
            together=together and knows_segments(link),
        )


def _send_from(link: socket.socket, source: str) -> None:
    """Have a socket send from an address of this machine; raises TransportError."""
    try:
        if source:
            link.bind((source, 0))
    except OSError as error:
        link.close()
        raise TransportError(f"cannot open a UDP socket with the address {source!r}: {error.strerror}") from error


def _check_path(link: socket.socket, host: str, frame_bytes: int) -> None:
    """Have only whole datagrams sent; if the way to `host` takes none, close `link` and raise TransportError."""
    link.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
    packet_bytes, longest = frame_bytes - ETHERNET_BYTES, link.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    if packet_bytes > longest:
        link.close()
        raise TransportError(
            f"the way to {host} takes IPv4 packets of {longest} bytes, not {packet_bytes}: "
            f"`ip link set IF mtu {packet_bytes}` on its links, or a controller with fewer --lanes"
        )
