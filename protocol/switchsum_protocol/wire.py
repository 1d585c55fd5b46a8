"""Whole frames as bytes: Ethernet, IPv4 and UDP around the aggregation header, in network byte order.

`switchsum_protocol.frame` has the aggregation header; docs/wire.md tells the whole story.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, LOWER_BYTES, UDP_BYTES

from .frame import FRAME_BYTES, HEADER_BYTES, Header

_ETHERNET: Final = struct.Struct("!6s6sH")
_IPV4: Final = struct.Struct("!BBHHHBBHII")
_UDP: Final = struct.Struct("!HHHH")
_ETHERTYPE_IPV4: Final = 0x0800
_PROTOCOL_UDP: Final = 17
_DONT_FRAGMENT: Final = 0x4000
ECN_CAPABLE: Final = 2
"""ECT(0) of RFC 3168: queues may mark the frame instead of dropping it."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Address:
    """Where a member or the switch is reached."""

    mac: int
    """48 bits."""
    ip: int
    """32 bits."""
    port: int
    """UDP port, 16 bits."""

    def __str__(self) -> str:
        return f"{format_ip(self.ip)}:{self.port} ({format_mac(self.mac)})"


def format_ip(ip: int) -> str:
    """Write an IPv4 address in dotted form."""
    return ".".join(str(byte) for byte in ip.to_bytes(4))


def parse_ip(text: str) -> int:
    """Read a dotted IPv4 address; raises ValueError."""
    parts = text.split(".")
    if len(parts) != 4 or not all(part.isdigit() and int(part) < 256 for part in parts):
        raise ValueError(f"not an IPv4 address: {text!r}")
    return int.from_bytes(bytes(int(part) for part in parts))


def format_mac(mac: int) -> str:
    """Write an Ethernet address with colons."""
    return mac.to_bytes(6).hex(":")


def parse_mac(text: str) -> int:
    """Read an Ethernet address written with colons; raises ValueError."""
    parts = text.split(":")
    if len(parts) != 6:
        raise ValueError(f"not an Ethernet address: {text!r}")
    return int.from_bytes(bytes(int(part, 16) for part in parts))


def internet_checksum(data: bytes | memoryview) -> int:
    """Return the Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data = bytes(data) + b"\0"
    # 2**16 is 1 modulo 65535, so the end-around-carry sum of 16-bit words is the whole number modulo 65535.
    value = int.from_bytes(data)
    remainder = value % 0xFFFF
    total = 0xFFFF if value and remainder == 0 else remainder
    return ~total & 0xFFFF


def lower_headers(source: Address, destination: Address, body_bytes: int) -> bytes:
    """Ethernet, IPv4 and UDP headers (UDP checksum 0) in front of a UDP body of `body_bytes`; queues may mark them."""
    udp_length = UDP_BYTES + body_bytes
    ip = _IPV4.pack(
        *(0x45, ECN_CAPABLE, IPV4_BYTES + udp_length, 0, _DONT_FRAGMENT, 64, _PROTOCOL_UDP, 0),
        *(source.ip, destination.ip),
    )
    ip = ip[:10] + internet_checksum(ip).to_bytes(2) + ip[12:]
    ethernet = _ETHERNET.pack(destination.mac.to_bytes(6), source.mac.to_bytes(6), _ETHERTYPE_IPV4)
    return ethernet + ip + _UDP.pack(source.port, destination.port, udp_length, 0)


def udp_checksum(frame: bytes) -> int:
    """Return the UDP checksum (RFC 768), never 0, of a frame whose UDP header is at its usual place."""
    ip = frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]
    udp = bytearray(frame[ETHERNET_BYTES + IPV4_BYTES :])
    udp[6:8] = b"\0\0"
    pseudo = ip[12:20] + bytes((0, _PROTOCOL_UDP)) + len(udp).to_bytes(2)
    return internet_checksum(pseudo + bytes(udp)) or 0xFFFF


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
    destination_mac, source_mac, ethertype = _ETHERNET.unpack_from(frame)
    first, _, total, _, fragment, _, protocol, _, source_ip, destination_ip = _IPV4.unpack_from(frame, ETHERNET_BYTES)
    source_port, destination_port, udp_length, _ = _UDP.unpack_from(frame, ETHERNET_BYTES + IPV4_BYTES)
    if (ethertype, first, protocol, fragment & 0x3FFF) != (_ETHERTYPE_IPV4, 0x45, _PROTOCOL_UDP, 0):
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
