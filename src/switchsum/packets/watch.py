"""Packets that pass an interface, or lie in a capture file."""

from __future__ import annotations

import struct
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, cast

from scapy.config import conf
from scapy.error import Scapy_Exception
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_bottom_up
from scapy.utils import PcapReader

from switchsum_host.links.scapy_layer import Aggregation
from switchsum_protocol.errors import LocalError, TransportError
from switchsum_protocol.frame import AGGREGATION_PORT
from switchsum_switch.ports.capture import END
from switchsum_switch.ports.pcapng import CUSTOM, MAGIC, SECTION
from switchsum_switch.wires.packetsocket import PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR, SOL_PACKET, interface_mtu
from switchsum_switch.wires.segmentation import SUPER_BYTES, VNET_BYTES, frames_of

LONGEST_WAIT_S = 0.5
PCAP_LITTLE: Final = (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")
"""First bytes of libpcap's files whose numbers are little-endian, in microseconds and in nanoseconds."""
PCAP_BIG: Final = (b"\xa1\xb2\xc3\xd4", b"\xa1\xb2\x3c\x4d")


def listen_at(port: int) -> None:
    """Take UDP port `port` for the aggregation service's too."""
    if port != AGGREGATION_PORT:
        bind_bottom_up(UDP, Aggregation, dport=port)
        bind_bottom_up(UDP, Aggregation, sport=port)


def from_interface(interface: str, seconds: float | None) -> Generator[Packet, None, None]:
    """Yield frames of ours that an interface sends or receives; raises TransportError."""
    interface_mtu(interface)  # raises if there is none
    try:
        socket = conf.L2listen(iface=interface)
    except PermissionError:
        raise TransportError(
            f"listening on {interface} needs root or CAP_NET_RAW: sudo switchsum capture ..."
        ) from None
    except OSError as error:
        raise TransportError(f"interface {interface}: {error.strerror}") from error
    socket.ins.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    if interface == "lo":  # where every frame goes out and comes in
        socket.ins.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end = None if seconds is None else time.monotonic() + seconds
    try:
        while end is None or time.monotonic() < end:
            left = LONGEST_WAIT_S if end is None else min(LONGEST_WAIT_S, max(0.0, end - time.monotonic()))
            for ready in socket.select([socket], left):
                for frame in frames_of(ready.ins.recv(VNET_BYTES + SUPER_BYTES)):
                    packet = Ether(frame)
                    if Aggregation in packet:
                        yield packet
    finally:
        socket.close()


def from_file(path: Path) -> Generator[Packet, None, None]:
    """Yield the frames of ours in a pcap or pcapng file; raises LocalError, at the end where that is missing."""
    try:
        # Scapy takes a file, which its types do not say, and leaves one open itself that it does not like.
        with path.open("rb") as file, PcapReader(cast("Any", file)) as reader:
            for packet in reader:
                if isinstance(packet, Ether) and Aggregation in packet:
                    yield packet
        if missing := missing_end(path):
            raise LocalError(f"{path}: {missing}")
    except (OSError, Scapy_Exception) as error:
        raise LocalError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def missing_end(path: Path) -> str:
    """Say what is missing at the end of a capture file, of which Scapy says nothing; empty: nothing is."""
    size, at, is_ours, has_end = path.stat().st_size, 0, False, False
    with path.open("rb") as file:
        magic = file.read(4)
        names = next((names for names in (PCAP_LITTLE, PCAP_BIG) if magic in names), None)
        if names is not None:  # libpcap's format: a header of 24 bytes, then 16 bytes before each packet
            at, form = 24, "<" if names is PCAP_LITTLE else ">"
            while at < size:
                file.seek(at)
                head = file.read(16)
                at += 16 + (struct.unpack(f"{form}I", head[8:12])[0] if len(head) == 16 else 1)
        elif magic == struct.pack("<I", SECTION):
            while at < size:
                file.seek(at)
                kind, length = struct.unpack("<II", file.read(8).ljust(8, b"\xff"))
                body = file.read(min(length, 8 + len(MAGIC) + 1)) if kind == CUSTOM else b""
                if body[8:].startswith(MAGIC):
                    is_ours, has_end = True, body.endswith(END)
                if length < 12 or length % 4:
                    break  # of another byte order, or damaged, which Scapy says
                at += length
    if at > size:
        return "the file ends in the midst of a packet: its disk was full, or what wrote it was killed"
    if is_ours and not has_end:
        return "the recording ends in the midst: its disk was full, or its switch was killed or still runs"
    return ""
