"""Links by name: `shm:NAME`, `udp:HOST:PORT`, `packet:INTERFACE`, `scapy:INTERFACE`."""

from __future__ import annotations

from switchsum.host.transport.base import Transport
from switchsum.host.transport.packet import PacketTransport
from switchsum.host.transport.shm import ShmTransport
from switchsum.host.transport.udp import UdpTransport
from switchsum.protocol.errors import UsageError
from switchsum.protocol.wire import AGGREGATION_PORT, Address


def open_transport(link: str, *, rows: int, frame_bytes: int, switch: Address, together: bool = True) -> Transport:
    """Open `link` to the switch that calls itself `switch`; raises TransportError, or UsageError for an unknown kind.

    `rows` frames of up to `frame_bytes` are kept for sending, and may go together in super-frames if `together`.
    """
    kind, _, place = link.partition(":")
    if not place:
        raise UsageError(f"a link is shm:NAME, udp:HOST:PORT, packet:INTERFACE or scapy:INTERFACE, not {link!r}")
    if kind == "shm":
        return ShmTransport(place, rows=rows, frame_bytes=frame_bytes)
    if kind == "udp":
        host, _, port = place.partition(":")
        if port and not port.isdigit():
            raise UsageError(f"not a UDP port: {port!r} in {link!r}")
        number = int(port or AGGREGATION_PORT)
        return UdpTransport(host, number, rows=rows, frame_bytes=frame_bytes, switch=switch, together=together)
    if kind == "packet":
        return PacketTransport(place, rows=rows, frame_bytes=frame_bytes, switch=switch, together=together)
    if kind == "scapy":
        # A large library that only this link needs.
        from switchsum.host.transport.scapy_transport import ScapyTransport  # noqa: PLC0415

        return ScapyTransport(place, rows=rows, frame_bytes=frame_bytes, switch=switch)
    raise UsageError(f"no links of the kind {kind!r}: shm, udp, packet and scapy are known")
