"""Whole frames: built and parsed, cut, broken, and their checksums."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum_protocol import wire
from switchsum_protocol.frame import AGGREGATION_PORT, FIELDS, Header, Kind
from switchsum_switch.wires import headers
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, Address

HEADERS = st.builds(Header, **{name: st.integers(0, (1 << field.wire.bits) - 1) for name, field in FIELDS.items()})
SWITCH = Address(mac=0x02_00_00_00_00_01, ip=headers.parse_ip("10.0.0.254"), port=AGGREGATION_PORT)
WORKER = Address(mac=0x02_00_00_00_01_00, ip=headers.parse_ip("10.0.1.0"), port=21334)


@given(HEADERS, st.binary(max_size=64), st.booleans())
def test_a_frame_survives_building(header: Header, payload: bytes, checksum: bool) -> None:
    frame = wire.build_frame(WORKER, SWITCH, header, payload, checksum=checksum)
    packet = wire.parse_frame(frame)
    assert packet is not None
    assert (packet.source, packet.destination, packet.header, packet.payload) == (WORKER, SWITCH, header, payload)
    assert headers.internet_checksum(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]) == 0
    for cut in (0, 13, 33, 41, 89, len(frame) - 1):
        assert wire.parse_frame(frame[:cut]) is None


def test_a_frame_that_is_not_ours_is_none() -> None:
    frame = wire.build_frame(WORKER, SWITCH, Header(kind=Kind.HELLO))
    for at, value in ((12, 0x86), (14, 0x46), (20, 0x20), (23, 6), (38, 0xFF)):
        assert wire.parse_frame(frame[:at] + bytes([value]) + frame[at + 1 :]) is None


@given(st.binary(max_size=200))
def test_the_checksum_is_the_ones_complement_sum_of_rfc_1071(data: bytes) -> None:
    total = 0
    for at in range(0, len(data), 2):
        total += int.from_bytes(data[at : at + 2].ljust(2, b"\0"))
        total = (total & 0xFFFF) + (total >> 16)
    assert headers.internet_checksum(data) == ~total & 0xFFFF


def test_scapy_agrees_on_the_checksums() -> None:
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    frame = wire.build_frame(WORKER, SWITCH, Header(kind=Kind.CONTRIBUTION, number=77), b"\x12\x34\x56", checksum=True)
    packet = Ether(frame)
    del packet[UDP].chksum, packet[IP].chksum
    assert bytes(packet) == frame


@pytest.mark.parametrize("text", ["1.2.3", "1.2.3.256", "a.b.c.d", "1.2.3.4.5", ""])
def test_what_is_no_ip_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an IPv4 address"):
        headers.parse_ip(text)


def test_addresses_are_written_and_read() -> None:
    assert headers.parse_ip(headers.format_ip(0x0A00_01FE)) == 0x0A00_01FE
    assert headers.parse_mac(headers.format_mac(0x0200_0000_0A0B)) == 0x0200_0000_0A0B
    assert str(SWITCH) == "10.0.0.254:21333 (02:00:00:00:00:01)"
