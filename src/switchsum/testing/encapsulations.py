"""One datagram in everything that may be around it on its way to a receiver, for tests and the fuzzer.

A receiver takes tags off by itself, puts fragments together, reads past options, and opens tunnels where it has an
interface for them; then the datagram's source is whom it takes for the sender.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchsum_protocol.frame import Reason
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, Address, internet_checksum

TAG: Final = b"\x81\x00\x00\x00"
"""A priority tag: VLAN 0."""
NUMBERED_TAG: Final = b"\x81\x00\xa0\x2a"
SERVICE_TAG: Final = b"\x88\xa8\x00\x00"
_IPV4: Final = b"\x08\x00"
_IPV6: Final = b"\x86\xdd"
_GRE: Final = 47
_GRE_OPTIONS: Final = (0x80, 0x20, 0x10)
"""Checksum, key and sequence number: 4 bytes each."""

Encapsulation = tuple[str, bytes, Reason]
"""A name, the frame, and what the switch counts it under if the datagram claims to be the switch's own."""


def encapsulations(frame: bytes, outside: Address, inside: Address) -> Iterator[Encapsulation]:
    """Yield the IPv4 datagram in `frame` within everything.

    All frames go from `outside`, the Ethernet and tunnel address of who sends them, to `inside`.
    """
    datagram = frame[ETHERNET_BYTES:]
    macs = inside.mac.to_bytes(6) + outside.mac.to_bytes(6)
    spoofed, within, opaque = Reason.SPOOFED, Reason.SPOOFED_INSIDE, Reason.OPAQUE

    def tunnel(protocol: int, carried: bytes, *, options: bytes = b"") -> bytes:
        return ipv4(protocol, outside.ip.to_bytes(4) + inside.ip.to_bytes(4), carried, options=options)

    yield "nothing", macs + _IPV4 + datagram, spoofed
    yield "options", macs + _IPV4 + with_options(datagram), spoofed
    for name, part in fragments(datagram):
        yield name, macs + _IPV4 + part, spoofed
    for tags in (TAG, NUMBERED_TAG, SERVICE_TAG, TAG + TAG, SERVICE_TAG + TAG, SERVICE_TAG + NUMBERED_TAG):
        yield f"tags {tags.hex()}", macs + tags + _IPV4 + datagram, within
    yield "options in a tag", macs + TAG + _IPV4 + with_options(datagram), within
    for name, part in fragments(datagram):
        yield f"{name} in a tag", macs + TAG + _IPV4 + part, within
    yield "three tags", macs + 3 * TAG + _IPV4 + datagram, opaque

    for tags in (b"", TAG, SERVICE_TAG + TAG):
        where = f" in tags {tags.hex()}" if tags else ""
        yield f"IPv4{where}", macs + tags + _IPV4 + tunnel(4, datagram), within
        yield f"GRE{where}", macs + tags + _IPV4 + tunnel(_GRE, gre(0, _IPV4, datagram)), within
        yield f"IPv6{where}", macs + tags + _IPV6 + ipv6(4, datagram), within
    for flags in range(1, 8):
        chosen = sum(option for place, option in enumerate(_GRE_OPTIONS) if flags >> place & 1)
        yield f"GRE with flags {chosen:02x}", macs + _IPV4 + tunnel(_GRE, gre(chosen, _IPV4, datagram)), within
    yield "a frame in GRE", macs + _IPV4 + tunnel(_GRE, gre(0, b"\x65\x58", macs + _IPV4 + datagram)), within
    yield "GRE over IPv6", macs + _IPV6 + ipv6(_GRE, gre(0, _IPV4, datagram)), within
    yield "IPv4 in IPv6 in IPv4", macs + _IPV4 + tunnel(41, ipv6(4, datagram)), within
    yield "options in IPv4", macs + _IPV4 + tunnel(4, with_options(datagram)), within

    tagged = gre(0, b"\x65\x58", macs + TAG + _IPV4 + datagram)
    yield "a tagged frame in GRE", macs + _IPV4 + tunnel(_GRE, tagged), opaque
    yield "IPv4 in IPv4", macs + _IPV4 + tunnel(4, tunnel(4, datagram)), opaque
    yield "GRE in IPv4", macs + _IPV4 + tunnel(4, tunnel(_GRE, gre(0, _IPV4, datagram))), opaque
    for protocol, carried in ((4, datagram), (_GRE, gre(0, _IPV4, datagram)), (41, ipv6(4, datagram))):
        behind = tunnel(protocol, carried, options=b"\1\1\1\0")
        yield f"options before protocol {protocol}", macs + _IPV4 + behind, opaque
        for name, part in fragments(tunnel(protocol, carried)):
            yield f"{name} of protocol {protocol}", macs + _IPV4 + part, opaque


def ipv4(protocol: int, addresses: bytes, carried: bytes, *, options: bytes = b"", fragment: int = 0) -> bytes:
    """Return an IPv4 packet; `fragment` are the flags and the offset."""
    words = (IPV4_BYTES + len(options)) // 4
    total = 4 * words + len(carried)
    header = bytes((0x40 | words, 0)) + total.to_bytes(2) + b"\0\0" + fragment.to_bytes(2) + bytes((64, protocol, 0, 0))
    header += addresses + options
    return header[:10] + internet_checksum(header).to_bytes(2) + header[12:] + carried


def with_options(datagram: bytes) -> bytes:
    """Return an IPv4 packet that had none with options."""
    return ipv4(datagram[9], datagram[12:IPV4_BYTES], datagram[IPV4_BYTES:], options=b"\1\1\1\0")


def fragments(datagram: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield an IPv4 packet in two parts."""
    body = datagram[IPV4_BYTES:]
    yield "the first fragment", ipv4(datagram[9], datagram[12:IPV4_BYTES], body[:24], fragment=0x2000)
    yield "the last fragment", ipv4(datagram[9], datagram[12:IPV4_BYTES], body[24:], fragment=3)


def ipv6(following: int, carried: bytes) -> bytes:
    """Return an IPv6 packet between two link-local addresses."""
    addresses = bytes.fromhex("fe80000000000000000000000000000a" + "fe80000000000000000000000000000b")
    return b"\x60\0\0\0" + len(carried).to_bytes(2) + bytes((following, 64)) + addresses + carried


def gre(flags: int, ethertype: bytes, carried: bytes) -> bytes:
    """Return a GRE packet; `flags` are the header's first byte."""
    return bytes((flags, 0)) + ethertype + bytes(4 * flags.bit_count()) + carried
