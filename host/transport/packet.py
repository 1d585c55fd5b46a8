"""The link of a worker that may open raw sockets: whole frames on an interface, past the kernel's IP stack."""

from __future__ import annotations

import socket

from switchsum.host.transport.sockets import SocketTransport
from switchsum.protocol.errors import TransportError
from switchsum.protocol.packetsocket import (
    NOTHING,
    attach_filter,
    interface_ip,
    interface_mac,
    interface_mtu,
    open_packet_socket,
    udp_filter,
)
from switchsum.protocol.wire import ETHERNET_BYTES, Address, format_ip


class PacketTransport(SocketTransport):
    """A `Transport` over AF_PACKET; a filter in the kernel lets only the switch's frames to this worker through."""

    def __init__(self, interface: str, *, rows: int, frame_bytes: int, switch: Address) -> None:
        """Use `interface` with its own addresses and a UDP port that is free; raises TransportError."""
        address, self._reservation = take_address(interface, frame_bytes)
        try:
            link = open_packet_socket(interface, program=udp_filter(switch, address))
        except TransportError:
            self._reservation.close()
            raise
        super().__init__(link, address, rows=rows, frame_bytes=frame_bytes, skip=0)

    def close(self) -> None:
        """Close the socket and free the UDP port."""
        super().close()
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
    reservation.bind((format_ip(ip), 0))
    return Address(mac=interface_mac(interface), ip=ip, port=reservation.getsockname()[1]), reservation
