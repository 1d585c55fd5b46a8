"""Ethernet, IPv4 and UDP as bytes, in network byte order: addresses, headers and checksums."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

ETHERNET: Final = struct.Struct("!6s6sH")
IPV4: Final = struct.Struct("!BBHHHBBHII")
UDP: Final = struct.Struct("!HHHH")
ETHERTYPE_IPV4: Final = 0x0800
PROTOCOL_UDP: Final = 17
_DONT_FRAGMENT: Final = 0x4000
ECN_CAPABLE: Final = 2
"""ECT(0) of RFC 3168: queues may mark the frame instead of dropping it."""

ETHERNET_BYTES: Final = ETHERNET.size
IPV4_BYTES: Final = IPV4.size
UDP_BYTES: Final = UDP.size
LOWER_BYTES: Final = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
"""Bytes in front of a datagram's body."""
HEAD_BYTES: Final = 90
"""Bytes of a frame in front of its lanes: the headers above, and the aggregation header of `switchsum_protocol.frame`.

Rows of memory are laid out by it, so that lanes begin on a cache line; a frame of another protocol may have anything
there.  tests/protocol/test_frame.py holds it to the aggregation header.
"""


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
    ip = IPV4.pack(
        *(0x45, ECN_CAPABLE, IPV4_BYTES + udp_length, 0, _DONT_FRAGMENT, 64, PROTOCOL_UDP, 0),
        *(source.ip, destination.ip),
    )
    ip = ip[:10] + internet_checksum(ip).to_bytes(2) + ip[12:]
    ethernet = ETHERNET.pack(destination.mac.to_bytes(6), source.mac.to_bytes(6), ETHERTYPE_IPV4)
    return ethernet + ip + UDP.pack(source.port, destination.port, udp_length, 0)


def udp_checksum(frame: bytes) -> int:
    """Return the UDP checksum (RFC 768), never 0, of a frame whose UDP header is at its usual place."""
    ip = frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]
    udp = bytearray(frame[ETHERNET_BYTES + IPV4_BYTES :])
    udp[6:8] = b"\0\0"
    pseudo = ip[12:20] + bytes((0, PROTOCOL_UDP)) + len(udp).to_bytes(2)
    return internet_checksum(pseudo + bytes(udp)) or 0xFFFF
