"""Whole frames as bytes: Ethernet, IPv4 and UDP around the aggregation header, in network byte order.

`switchsum_protocol.frame` has the aggregation header; docs/wire.md tells the whole story.
"""

from __future__ import annotations

from dataclasses import dataclass

from switchsum_switch.wires.headers import (
    ETHERNET,
    ETHERNET_BYTES,
    ETHERTYPE_IPV4,
    IPV4,
    IPV4_BYTES,
    LOWER_BYTES,
    PROTOCOL_UDP,
    UDP,
    Address,
    lower_headers,
    udp_checksum,
)

from .frame import FRAME_BYTES, HEADER_BYTES, Header


def build_frame(
    source: Address, destination: Address, header: Header, payload: bytes = b"", *, checksum: bool = False
) -> bytes:
    """Build a whole frame; `checksum` fills in the UDP checksum."""
    frame = lower_headers(source, destination, HEADER_BYTES + len(payload)) + header.pack() + payload
    if checksum:
        at = LOWER_BYTES - 2
        frame = frame[:at] + udp_checksum(frame).to_bytes(2) + frame[at + 2 :]
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """A parsed frame."""

    source: Address
    """Source address, from the frame's Ethernet, IPv4 and UDP headers."""
    destination: Address
    """Destination address, from the same headers."""
    header: Header
    """The aggregation header."""
    payload: bytes
    """Bytes after the aggregation header within the UDP datagram."""


def parse_frame(frame: bytes) -> Packet | None:
    """Parse a frame of ours; None for any other or broken one (lengths and types; field values are not judged)."""
    if len(frame) < FRAME_BYTES:
        return None
    destination_mac, source_mac, ethertype = ETHERNET.unpack_from(frame)
    first, _, total, _, fragment, _, protocol, _, source_ip, destination_ip = IPV4.unpack_from(frame, ETHERNET_BYTES)
    source_port, destination_port, udp_length, _ = UDP.unpack_from(frame, ETHERNET_BYTES + IPV4_BYTES)
    if (ethertype, first, protocol, fragment & 0x3FFF) != (ETHERTYPE_IPV4, 0x45, PROTOCOL_UDP, 0):
        return None
    if total != udp_length + IPV4_BYTES or len(frame) != total + ETHERNET_BYTES:
        return None
    header = Header.unpack(frame[LOWER_BYTES:])
    assert header is not None  # the frame is long enough
    return Packet(
        source=Address(mac=int.from_bytes(source_mac), ip=source_ip, port=source_port),
        destination=Address(mac=int.from_bytes(destination_mac), ip=destination_ip, port=destination_port),
        header=header,
        payload=frame[FRAME_BYTES:],
    )


def nonce_fields(nonce: int) -> tuple[int, int]:
    """Return the hello header's `number` (the nonce's high 32 bits) and `digest` (its low 32 bits)."""
    return nonce >> 32, nonce & 0xFFFF_FFFF


def nonce_from_fields(number: int, digest: int) -> int:
    """Return the nonce that a hello header carries."""
    return number << 32 | digest
