"""The kernels' Internet checksum and Python's are the same one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from switchsum_protocol.frame import Header, Kind
from switchsum_protocol.wire import build_frame
from switchsum_switch.wires.checksum import fill_ip_checksum, pseudo_header_sum, sum16, udp_checksum
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, LOWER_BYTES, Address, internet_checksum
from switchsum_switch.wires.headers import udp_checksum as udp_checksum_in_python

ONE = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=21001)
OTHER = Address(mac=0x02_00_00_00_00_02, ip=0xFF_FF_00_02, port=21002)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 20, 511, 1064, 65_535])
@pytest.mark.parametrize("octet", [None, 0, 0xFF])
def test_sums_agree(size: int, octet: int | None) -> None:
    data = random.Random(size).randbytes(size) if octet is None else bytes([octet]) * size
    memory = np.frombuffer(data + b"?", np.uint8)
    assert ~sum16(memory.ctypes.data, size) & 0xFFFF == internet_checksum(data)


@pytest.mark.parametrize("size", [0, 1, 1024])
def test_headers_get_the_same_checksums(size: int) -> None:
    octets = build_frame(ONE, OTHER, Header(kind=Kind.CONTRIBUTION, slot=3), random.Random(size).randbytes(size))
    frame = np.frombuffer(octets, np.uint8).copy()
    first, udp = frame.ctypes.data, ETHERNET_BYTES + IPV4_BYTES
    total = pseudo_header_sum(first + ETHERNET_BYTES + 12, len(frame) - udp) + sum16(first + udp, len(frame) - udp)
    assert udp_checksum(total) == udp_checksum_in_python(octets)
    frame[ETHERNET_BYTES + 10 : ETHERNET_BYTES + 12] = 0x5A
    fill_ip_checksum(first + ETHERNET_BYTES)
    assert frame[:LOWER_BYTES].tobytes() == octets[:LOWER_BYTES]


def test_a_udp_checksum_is_never_zero() -> None:
    assert udp_checksum(0xFFFF) == 0xFFFF
