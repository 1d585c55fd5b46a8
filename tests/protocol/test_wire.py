"""The header codec: both ways, cut at every byte, and against the P4 program's own widths and numbers."""

from __future__ import annotations

import re
import struct
from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum.p4src import SOURCES
from switchsum.protocol import wire
from switchsum.protocol.wire import Address, Header, Kind

HEADERS = st.builds(Header, **{name: st.integers(0, (1 << (8 * size)) - 1) for name, size in wire.FIELD_BYTES.items()})
SWITCH = Address(mac=0x02_00_00_00_00_01, ip=wire.parse_ip("10.0.0.254"), port=wire.AGGREGATION_PORT)
WORKER = Address(mac=0x02_00_00_00_01_00, ip=wire.parse_ip("10.0.1.0"), port=21334)


@given(HEADERS)
def test_a_header_survives_packing(header: Header) -> None:
    data = header.pack()
    assert len(data) == wire.HEADER_BYTES
    assert Header.unpack(data) == header
    assert Header.unpack(data + b"trailing") == header


@pytest.mark.parametrize("length", range(wire.HEADER_BYTES))
def test_a_cut_header_is_none(length: int) -> None:
    assert Header.unpack(Header(kind=Kind.HELLO).pack()[:length]) is None


def test_the_layout_is_the_documented_one() -> None:
    header = Header(
        kind=2, version=1, operator=3, format=4, flags=5, reason=6, exponent=7, next_exponent=8, job=0x0102,
        epoch=0x0304, rank=0x0506, tree=0x0708, slot=0x1112_1314, number=0x2122_2324, block=0x3132_3334,
        next_block=0x4142_4344, digest=0x5152_5354, bitmap=0x6162_6364, cookie=0x7172_7374_7576_7778,
    )  # fmt: skip
    assert header.pack().hex() == (
        "010203040506070801020304050607081112131421222324313233344142434451525354616263647172737475767778"
    )
    assert wire.FIELD_OFFSET["number"] == 20


def test_a_field_that_is_too_large_does_not_wrap() -> None:
    with pytest.raises(struct.error):
        Header(kind=Kind.HELLO, rank=1 << 16).pack()


@given(HEADERS, st.binary(max_size=64), st.booleans())
def test_a_frame_survives_building(header: Header, payload: bytes, checksum: bool) -> None:
    frame = wire.build_frame(WORKER, SWITCH, header, payload, checksum=checksum)
    packet = wire.parse_frame(frame)
    assert packet is not None
    assert (packet.source, packet.destination, packet.header, packet.payload) == (WORKER, SWITCH, header, payload)
    assert wire.internet_checksum(frame[wire.ETHERNET_BYTES : wire.ETHERNET_BYTES + wire.IPV4_BYTES]) == 0
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
    assert wire.internet_checksum(data) == ~total & 0xFFFF


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
        wire.parse_ip(text)


def test_addresses_are_written_and_read() -> None:
    assert wire.parse_ip(wire.format_ip(0x0A00_01FE)) == 0x0A00_01FE
    assert wire.parse_mac(wire.format_mac(0x0200_0000_0A0B)) == 0x0200_0000_0A0B
    assert str(SWITCH) == "10.0.0.254:21333 (02:00:00:00:00:01)"


@pytest.mark.parametrize(
    ("lanes", "growth", "padding"), [(128, 512, 0), (256, 512, 512), (2048, 512, 7680), (2048, None, 0), (256, 1024, 0)]
)
def test_padding_makes_up_for_limited_growth(lanes: int, growth: int | None, padding: int) -> None:
    assert wire.padding_bytes(lanes, growth) == padding


# The P4 program says the same things in its own words.

TYPES = (SOURCES / "types.p4").read_text()
ENUMS = {
    name: {member: int(value) for member, value in re.findall(r"^    (\w+) = (\d+)", body, re.M)}
    for name, body in re.findall(r"enum bit<8> (\w+)_t \{(.*?)\}", TYPES, re.S)
}
CONSTANTS = {name: int(value, 0) for name, value in re.findall(r"^.*\bconst \S+ (\w+) = (\w+);", TYPES, re.M)}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("kind", wire.Kind), ("operator", wire.Operator), ("format", wire.LaneFormat), ("reason", wire.Reason)],
)
def test_the_program_numbers_things_alike(name: str, kind: type[IntEnum]) -> None:
    nothing = {"NONE": 0} if name == "reason" else {}
    assert ENUMS[name] == nothing | {member.name: member.value for member in kind}
    assert CONSTANTS.get(f"{name.upper()}_LAST", max(kind)) == max(kind)


def test_the_program_has_the_same_constants() -> None:
    flags = {name.removeprefix("FLAG_"): value for name, value in CONSTANTS.items() if name.startswith("FLAG_")}
    assert flags == {flag.name: flag.value for flag in wire.Flag}
    assert CONSTANTS["WIRE_VERSION"] == wire.WIRE_VERSION
    assert CONSTANTS["AGGREGATION_PORT"] == wire.AGGREGATION_PORT
    assert CONSTANTS["NO_BLOCK"] == wire.NO_BLOCK
    assert CONSTANTS["REASONS"] == wire.REASONS > max(wire.Reason)


def test_the_program_has_the_same_header() -> None:
    headers = (SOURCES / "headers.p4").read_text()
    config = (SOURCES / "config.p4").read_text()
    widths = {name: int(bits) for bits, name in re.findall(r"typedef bit<(\d+)> (\w+);", TYPES + config)}
    widths |= {f"{name}_t": 8 for name in ENUMS}
    body = re.search(r"header aggregation_t \{(.*?)\}", headers, re.S)
    assert body is not None
    fields = {}
    for kind, name in re.findall(r"(\S+) (\w+);", body[1]):
        bits = re.fullmatch(r"bit<(\d+)>", kind)
        fields[name] = (int(bits[1]) if bits else widths[kind]) // 8
    assert fields == wire.FIELD_BYTES
    assert list(fields) == list(wire.FIELD_ORDER)
