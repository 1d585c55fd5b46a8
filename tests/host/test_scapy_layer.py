"""The Scapy layer against the wire codec, both ways."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from switchsum_host.links.scapy_layer import LANES, Aggregation
from switchsum_protocol.frame import (
    AGGREGATION_PORT,
    FIELDS,
    HEADER_BYTES,
    NO_BLOCK,
    Flag,
    Header,
    Kind,
    LaneFormat,
    Operator,
    Reason,
)
from switchsum_protocol.lanes import widened
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.wires.headers import Address, format_ip, format_mac

SWITCH = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=AGGREGATION_PORT)
WORKER = Address(mac=0x02_00_00_00_00_02, ip=0x0A_00_00_02, port=21334)
DTYPES = {lane_format: f">i{lane_format.bits // 8}" for lane_format in LaneFormat}

SIZES = {name: field.size for name, field in FIELDS.items()}
HEADERS = st.builds(
    Header, **{name: st.integers(0, (1 << 8 * size) - 1) for name, size in SIZES.items() if name != "kind"},
    kind=st.integers(0, 255),
)  # fmt: skip


def test_the_fields_are_the_headers_in_order_and_width() -> None:
    fields = Aggregation.fields_desc
    assert [field.name for field in fields] == list(SIZES)
    assert [round(field.sz) for field in fields] == list(SIZES.values())
    assert len(bytes(Aggregation())) == HEADER_BYTES


@given(HEADERS, st.binary(max_size=64))
def test_scapy_reads_what_the_codec_writes(header: Header, payload: bytes) -> None:
    frame = build_frame(WORKER, SWITCH, header, payload, checksum=True)
    packet = Ether(frame)
    layer = packet[Aggregation]
    assert {name: int(getattr(layer, name)) for name in SIZES} == dataclasses.asdict(header)
    assert bytes(layer.payload) == payload
    assert bytes(packet) == frame


@given(HEADERS)
def test_the_codec_reads_what_scapy_writes(header: Header) -> None:
    packet = (
        Ether(src=format_mac(WORKER.mac), dst=format_mac(SWITCH.mac))
        / IP(src=format_ip(WORKER.ip), dst=format_ip(SWITCH.ip))
        / UDP(sport=WORKER.port)
        / Aggregation(**dataclasses.asdict(header))
        / b"\1\2\3\4"
    )
    parsed = parse_frame(bytes(packet))
    assert parsed is not None
    assert (parsed.source, parsed.destination) == (WORKER, SWITCH)
    assert parsed.header == header
    assert parsed.payload == b"\1\2\3\4"


@pytest.mark.parametrize("lane_format", list(LaneFormat))
def test_lanes_are_signed_numbers_of_their_format(lane_format: LaneFormat) -> None:
    limits = np.iinfo(np.dtype(DTYPES[lane_format]))
    values = [limits.min, -1, 0, 1, limits.max, 7, -7, 100] * 200
    payload = np.array(values, DTYPES[lane_format]).tobytes()
    header = Header(kind=Kind.RESULT, format=lane_format, flags=Flag.PAYLOAD)
    layer = Ether(build_frame(SWITCH, WORKER, header, payload))[Aggregation]
    assert type(layer.payload) is LANES[lane_format]
    assert layer.lanes == values
    assert bytes(LANES[lane_format](lanes=values)) == payload


@pytest.mark.parametrize(
    ("kind", "sender", "size", "is_narrow"),
    [
        (Kind.CONTRIBUTION, WORKER, 512, True),
        (Kind.CONTRIBUTION, WORKER, 1024, False),  # where frames may not grow
        (Kind.CONTRIBUTION, SWITCH, 512, False),  # of 128 lanes, to a switch above
        (Kind.RESULT, SWITCH, 512, False),
    ],
)
def test_contributions_that_the_switch_widens_are_told_by_kind_length_and_sender(
    kind: Kind, sender: Address, size: int, is_narrow: bool
) -> None:
    payload = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    header = Header(kind=kind, format=LaneFormat.WIDENED, flags=Flag.PAYLOAD)
    layer = Ether(build_frame(sender, dataclasses.replace(SWITCH, ip=SWITCH.ip + 9), header, payload))[Aggregation]
    lanes = widened(payload) if is_narrow else np.frombuffer(payload, np.uint8)
    assert layer.lanes == lanes.view(">i2").tolist()
    assert bytes(layer.payload) == bytes(type(layer.payload)(lanes=layer.lanes)) == payload


@pytest.mark.parametrize(("size", "is_narrow"), [(512, True), (1024, False)])
def test_values_of_4_bits_are_shown_in_the_order_of_their_lanes(size: int, is_narrow: bool) -> None:
    payload = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    header = Header(kind=Kind.CONTRIBUTION, format=LaneFormat.NIBBLES, flags=Flag.PAYLOAD)
    layer = Ether(build_frame(WORKER, SWITCH, header, payload))[Aggregation]
    lanes = widened(payload, LaneFormat.NIBBLES) if is_narrow else np.frombuffer(payload, np.uint8)
    assert layer.lanes == lanes.view(np.int8).tolist()
    assert bytes(layer.payload) == bytes(type(layer.payload)(lanes=layer.lanes)) == payload


def test_names_stand_for_numbers() -> None:
    layer = Aggregation(kind="result", operator="max", format="int16", flags="overflow+mark", reason="stale")
    assert (layer.kind, layer.operator, layer.format) == (Kind.RESULT, Operator.MAX, LaneFormat.INT16)
    assert (int(layer.flags), layer.reason) == (Flag.OVERFLOW | Flag.MARK, Reason.STALE)
    assert layer.next_block == NO_BLOCK
    text = Ether(build_frame(WORKER, SWITCH, Header(kind=Kind.CONTRIBUTION, slot=5, number=9))).summary()
    assert text.startswith("Ether / IP / UDP / switchsum contribution job 0.0 rank 0 slot 5 number 9")


def test_without_payload_flag_the_rest_is_padding() -> None:
    layer = Ether(build_frame(WORKER, SWITCH, Header(kind=Kind.CONTRIBUTION), bytes(8)))[Aggregation]
    assert bytes(layer.payload) == bytes(8)
    assert type(layer.payload) not in LANES.values()


def test_ordinary_udp_is_not_ours() -> None:
    assert Aggregation not in Ether(bytes(Ether() / IP(dst="10.0.0.1") / UDP(sport=9, dport=53) / bytes(60)))


def test_links_do_without_scapy() -> None:
    code = "import sys, switchsum_host.links.names; sys.exit('scapy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
