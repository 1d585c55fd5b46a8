"""Frames in place: reading a header's fields, writing a whole one, checking what came, checksums."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.frame import AT, FRAME_BYTES, LANE_BYTES, WIRE_VERSION, Flag, Kind
from switchsum_switch.kernels.decorators import inner, kernel
from switchsum_switch.kernels.memory import Scalar
from switchsum_switch.wires.checksum import pseudo_header_sum, sum16, udp_checksum
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES

from .state import Core, Count

Frame = npt.NDArray[np.uint8]

_MAC_SOURCE: Final = 6
_ETHERTYPE: Final = 12
_IP_FIRST: Final = ETHERNET_BYTES
_IP_ECN: Final = ETHERNET_BYTES + 1
_IP_FRAGMENT: Final = ETHERNET_BYTES + 6
_IP_PROTOCOL: Final = ETHERNET_BYTES + 9
_IP_SOURCE: Final = ETHERNET_BYTES + 12
_IP_DESTINATION: Final = ETHERNET_BYTES + 16
_UDP: Final = ETHERNET_BYTES + IPV4_BYTES
_UDP_SOURCE: Final = _UDP
_UDP_DESTINATION: Final = _UDP + 2
_UDP_LENGTH: Final = _UDP + 4
_UDP_CHECKSUM: Final = _UDP + 6
_PROTOCOL_UDP: Final = 17
_CONGESTION_EXPERIENCED: Final = 3


@kernel(inline="always")
def get16(frame: Frame, at: int) -> Scalar:
    """Read a field of two bytes."""
    return np.int64(frame[at]) << 8 | np.int64(frame[at + 1])


@kernel(inline="always")
def get32(frame: Frame, at: int) -> Scalar:
    """Read a field of four bytes."""
    return get16(frame, at) << 16 | get16(frame, at + 2)


@kernel(inline="always")
def put16(frame: Frame, at: int, value: Scalar) -> None:
    """Write a field of two bytes."""
    frame[at] = value >> 8 & 0xFF
    frame[at + 1] = value & 0xFF


@kernel(inline="always")
def put32(frame: Frame, at: int, value: Scalar) -> None:
    """Write a field of four bytes."""
    put16(frame, at, value >> 16)
    put16(frame, at + 2, value)


@inner
def fault(core: Core, frame: Frame) -> int:
    """Say why a frame is no message of this member's switch (a `Count`); 0 when it is one.

    What an engine does with the message depends on more: whether the slot waits for that number.
    """
    member = core.member
    length = frame.size
    if length < FRAME_BYTES:
        return Count.BROKEN
    if (
        get16(frame, _ETHERTYPE) != 0x0800
        or frame[_IP_FIRST] != 0x45
        or get16(frame, _IP_FRAGMENT) & 0x3FFF != 0
        or frame[_IP_PROTOCOL] != _PROTOCOL_UDP
        or get32(frame, _IP_SOURCE) != member.switch_ip
        or get32(frame, _IP_DESTINATION) != member.own_ip
        or get16(frame, _UDP_SOURCE) != member.switch_port
        or get16(frame, _UDP_DESTINATION) != member.own_port
        or get16(frame, _MAC_SOURCE) << 32 | get32(frame, _MAC_SOURCE + 2) != member.switch_mac
    ):
        return Count.FOREIGN
    if frame[AT.version] != WIRE_VERSION or get16(frame, _UDP_LENGTH) != length - _UDP:
        return Count.BROKEN
    kind = frame[AT.kind]
    has_lanes = kind == Kind.RESULT and frame[AT.flags] & Flag.PAYLOAD != 0
    payload = np.int64(member.lanes_per_frame * LANE_BYTES) if has_lanes else np.int64(0)
    if kind not in (Kind.RESULT, Kind.HELD, Kind.REJECT) or length != FRAME_BYTES + payload:
        return Count.BROKEN
    if (
        get16(frame, AT.job) != member.job
        or get16(frame, AT.epoch) != member.epoch
        or get16(frame, AT.rank) != member.rank
    ):
        return Count.FOREIGN
    if get32(frame, AT.cookie) != member.cookie[0] or get32(frame, AT.cookie + 4) != member.cookie[1]:
        return Count.FORGED
    return 0


@inner
def has_met_congestion(frame: Frame) -> bool:
    """Tell whether a queue has marked a result on its way, or a contribution to its round."""
    return bool(frame[AT.flags] & Flag.MARK != 0 or frame[_IP_ECN] & 3 == _CONGESTION_EXPERIENCED)


@inner
def slot_of(core: Core, frame: Frame) -> Scalar:
    """Return which of the job's slots a frame is about; `core.member.window` or more if that slot is not in use."""
    shift = core.member.shared_shift if get16(frame, AT.tree) == core.member.shared_tree else 0
    return (get32(frame, AT.slot) - core.member.first_slot - shift) & 0xFFFF_FFFF


@inner
def fill_checksum(frame: Frame) -> None:
    """Fill in the UDP checksum (RFC 768)."""
    put16(frame, _UDP_CHECKSUM, 0)
    first, length = frame.ctypes.data, frame.size - _UDP
    total = pseudo_header_sum(first + _IP_SOURCE, length) + sum16(first + _UDP, length)
    put16(frame, _UDP_CHECKSUM, udp_checksum(total))
