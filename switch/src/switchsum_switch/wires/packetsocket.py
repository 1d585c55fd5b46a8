"""AF_PACKET sockets: whole frames from and to an interface, for root or CAP_NET_RAW."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from collections.abc import Sequence
from typing import Final

from switchsum_switch.errors import TransportError
from switchsum_switch.wires.headers import ETHERNET_BYTES, Address

ETH_P_IP: Final = 0x0800
ETH_P_ALL: Final = 0x0003
SOL_PACKET: Final = 263
_PACKET_ADD_MEMBERSHIP: Final = 1
PACKET_VNET_HDR: Final = 15
_PACKET_MR_PROMISC: Final = 1
PACKET_IGNORE_OUTGOING: Final = 23
_SO_ATTACH_FILTER: Final = 26
_SIOCGIFADDR: Final = 0x8915
_SIOCGIFMTU: Final = 0x8921
_SIOCGIFHWADDR: Final = 0x8927
_SIOCETHTOOL: Final = 0x8946
_SIOCGIFFLAGS: Final = 0x8913
_IFF_UP_AND_RUNNING: Final = 0x41
_ETHTOOL_SETTINGS: Final = 1
_ETHTOOL_CHECKSUMS: Final = 0x16
_ETHTOOL_SEGMENTATION: Final = 0x23

SocketFilter = Sequence[tuple[int, int, int, int]]
"""Instructions of classic BPF (Linux socket filter): code, jump if true, jump if false, operand."""

_LOAD_BYTE: Final = 0x30
_LOAD_HALF: Final = 0x28
_LOAD_WORD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_WHOLE_FRAME: Final = 0x40000
_HAS_TAG: Final = 0xFFFF_F000 + 48
"""Offset at which a filter reads whether the kernel has taken a VLAN tag off the frame (SKF_AD_VLAN_TAG_PRESENT)."""
_MISSING: Final = "no such interface"
NOTHING: Final[SocketFilter] = ((_RETURN, 0, 0, 0),)
"""Filter that lets no packet through."""


def open_packet_socket(interface: str) -> socket.socket:
    """Return a socket that receives the interface's incoming frames; raises TransportError."""
    link = make_packet_socket(interface)
    bind_packet_socket(link, interface)
    return link


def make_packet_socket(interface: str, *, socket_filter: SocketFilter = (), promiscuous: bool = False) -> socket.socket:
    """Return a socket for incoming frames that `socket_filter` accepts; none come before it is bound.

    A promiscuous socket hears frames for others, too.  Raises TransportError.
    """
    interface_mtu(interface)  # raises if there is none
    try:
        link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    except PermissionError:
        raise TransportError(
            f"a raw socket on {interface} needs root or CAP_NET_RAW: sudo, or UDP, which needs neither (switch --udp)"
        ) from None
    try:
        if socket_filter:
            attach_filter(link, socket_filter)
        link.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        if promiscuous:
            membership = struct.pack("iHH8s", socket.if_nametoindex(interface), _PACKET_MR_PROMISC, 0, b"")
            link.setsockopt(SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    except OSError as error:
        link.close()
        raise TransportError(f"interface {interface}: {error.strerror or error}") from error
    return link


def bind_packet_socket(link: socket.socket, interface: str) -> None:
    """Let frames come in, of all EtherTypes; raises TransportError and closes the socket."""
    try:
        link.bind((interface, ETH_P_ALL))
    except OSError as error:
        link.close()
        raise TransportError(f"interface {interface}: {error.strerror or error}") from error


def segments(interface: str) -> bool:
    """Tell whether an interface's checksum and segmentation offloads are on, so that it may be given super-frames."""
    return all(_offload(interface, command) for command in (_ETHTOOL_CHECKSUMS, _ETHTOOL_SEGMENTATION))


def _offload(interface: str, command: int) -> bool:
    answer = _ask_ethtool(interface, struct.pack("II", command, 0))
    return answer is not None and bool(struct.unpack("II", answer)[1])


def _ask_ethtool(interface: str, request: bytes) -> bytes | None:
    """Return the answer, as long as the request; None if the interface does not know the request."""
    value = ctypes.create_string_buffer(request, len(request))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            fcntl.ioctl(asker, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode()[:15], ctypes.addressof(value)))
        except OSError:
            return None
    return value.raw


def attach_filter(link: socket.socket, socket_filter: SocketFilter) -> None:
    """Let only what `socket_filter` accepts into a socket."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in socket_filter))
    link.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(socket_filter), ctypes.addressof(code))
    )


def udp_filter(source: Address, destination: Address) -> SocketFilter:
    """Return a filter that accepts whole UDP datagrams between these addresses and ports, without tags, nothing else.

    Only a socket for all protocols sees tags: the kernel has forgotten them when it hands IPv4 on.
    """
    tests = (
        (_LOAD_BYTE, _HAS_TAG, 0),
        (_LOAD_WORD, 6, source.mac >> 16),
        (_LOAD_HALF, 10, source.mac & 0xFFFF),
        (_LOAD_HALF, 12, ETH_P_IP),
        (_LOAD_BYTE, ETHERNET_BYTES, 0x45),
        (_LOAD_BYTE, 23, socket.IPPROTO_UDP),
        (_LOAD_WORD, 26, source.ip),
        (_LOAD_WORD, 30, destination.ip),
        (_LOAD_HALF, 34, source.port),
        (_LOAD_HALF, 36, destination.port),
    )
    instructions: list[tuple[int, int, int, int]] = [(_LOAD_HALF, 0, 0, 20)]
    length = 2 + 2 * len(tests)  # of the loads and jumps, in front of the two returns
    instructions.append((_JUMP_ANY_BIT, length - len(instructions), 0, 0x3FFF))  # a fragment
    for load, offset, wanted in tests:
        instructions.append((load, 0, 0, offset))
        instructions.append((_JUMP_EQUAL, 0, length - len(instructions), wanted))
    return (*instructions, (_RETURN, 0, 0, _WHOLE_FRAME), (_RETURN, 0, 0, 0))


def interface_mac(interface: str) -> int:
    """Return an interface's Ethernet address; raises TransportError."""
    return int.from_bytes(_ask(interface, _SIOCGIFHWADDR, _MISSING)[18:24])


def interface_ip(interface: str) -> int:
    """Return an interface's first IPv4 address; raises TransportError."""
    return int.from_bytes(
        _ask(interface, _SIOCGIFADDR, "no IPv4 address", "`ip address add ADDRESS/24 dev NAME` gives it one")[20:24]
    )


def is_running(interface: str) -> bool:
    """Tell whether an interface is there, up, and has a carrier."""
    try:
        flags: int = struct.unpack_from("H", _ask(interface, _SIOCGIFFLAGS, _MISSING), 16)[0]
    except TransportError:
        return False
    return flags & _IFF_UP_AND_RUNNING == _IFF_UP_AND_RUNNING


def interface_mbit(interface: str) -> float:
    """Return an interface's speed in Mbit/s as `ethtool` shows it, 0 where it does not say."""
    answer = _ask_ethtool(interface, struct.pack("I40x", _ETHTOOL_SETTINGS))
    if answer is None:
        return 0.0
    low, high = struct.unpack_from("H", answer, 12)[0], struct.unpack_from("H", answer, 28)[0]
    mbit = high << 16 | low
    return 0.0 if mbit in (0, 0xFFFF, 0xFFFF_FFFF) else float(mbit)


def longest_frame(interface: str) -> int:
    """Return the bytes of an interface's longest Ethernet frame; 0: there is no such interface."""
    try:
        return interface_mtu(interface) + ETHERNET_BYTES
    except TransportError:
        return 0


def interface_mtu(interface: str) -> int:
    """Return an interface's longest IPv4 packet in bytes; raises TransportError."""
    mtu: int = struct.unpack_from("i", _ask(interface, _SIOCGIFMTU, _MISSING), 16)[0]
    return mtu


def _ask(interface: str, request: int, failure: str, remedy: str = "`ip -brief link` lists those there are") -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            return fcntl.ioctl(asker, request, struct.pack("256s", interface.encode()[:15]))
        except OSError as error:
            raise TransportError(f"interface {interface}: {failure} ({error.strerror}): {remedy}") from None
