"""Packets that pass an interface, or lie in a capture file."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

from scapy.config import conf
from scapy.error import Scapy_Exception
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_bottom_up
from scapy.utils import PcapReader

from switchsum.host.links.scapy_layer import Aggregation
from switchsum.native.wires.packetsocket import PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR, SOL_PACKET, interface_mtu
from switchsum.native.wires.segmentation import SUPER_BYTES, VNET_BYTES, frames_of
from switchsum.protocol.errors import LocalError, TransportError
from switchsum.protocol.frame import AGGREGATION_PORT

LONGEST_WAIT_S = 0.5


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
    """Yield the frames of ours in a pcap or pcapng file; raises LocalError."""
    try:
        # Scapy takes a file, which its types do not say, and leaves one open itself that it does not like.
        with path.open("rb") as file, PcapReader(cast("Any", file)) as reader:
            for packet in reader:
                if isinstance(packet, Ether) and Aggregation in packet:
                    yield packet
    except (OSError, Scapy_Exception) as error:
        raise LocalError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
