"""AF_PACKET and Scapy links against the switch's interface ports, over a veth pair in a namespace of their own."""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from switchsum_host.links.names import open_transport
from switchsum_host.links.packet import PacketTransport
from switchsum_protocol.errors import TransportError
from switchsum_protocol.frame import Header, Kind
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.ports.base import PortCounter, PortTable
from switchsum_switch.ports.packet import PacketPorts
from switchsum_switch.wires.headers import Address, parse_ip
from switchsum_switch.wires.packetring import SLOTS
from switchsum_switch.wires.packetsocket import udp_filter

from .veth_wire import (
    FRAME,
    PAYLOAD,
    STRANGER,
    SWITCH,
    WORKER_IP,
    Wire,
    contribution,
    exchange,
    ip,
    put,
    received,
    result,
)

pytestmark = pytest.mark.root


@pytest.mark.parametrize("kind", ["packet", "scapy"])
def test_frames_travel_whole_in_both_directions(kind: str, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "switchsum.host.links")
    link = wire.worker(kind)
    assert link.address.ip == parse_ip(WORKER_IP)
    contributions = [contribution(link.address, slot, bytes([slot]) * (slot % 2 * PAYLOAD)) for slot in range(100)]
    rows, lengths = put(link, contributions)
    seen: list[bytes] = []
    for start in range(0, 100, 25):
        assert link.send(rows[start : start + 25], lengths[start : start + 25]) == 25
        seen += wire.arrived(25)
    assert seen == contributions
    assert (link.pushed, link.consumed) == (100, 100)
    results = [result(link.address, slot, bytes([slot]) * (slot % 2 * PAYLOAD)) for slot in range(25)]
    wire.transmit(*results)
    assert received(link, 25) == results
    # The kernel, which saw the results too, has not answered any of them.
    assert wire.arrived(0) == []
    assert wire.count(PortCounter.RX_FRAMES) == 100
    assert wire.count(PortCounter.TX_FRAMES) == 25
    assert wire.count(PortCounter.TX_BYTES) == sum(map(len, results))
    if kind == "scapy":
        assert "sends Ether / IP / UDP 10.0.0.2" in caplog.text or "sends Ether / IP / UDP / switchsum" in caplog.text
        assert "switchsum result" in caplog.text


TAGS = [
    b"\x81\x00\x00\x00",  # a priority tag, which every receiver takes off by itself
    b"\x81\x00\xe0\x00",
    b"\x81\x00\x00\x2a",
    b"\x88\xa8\x00\x00",
    b"\x81\x00\x00\x00" * 2,
    b"\x88\xa8\x00\x00\x81\x00\x00\x00",
    b"\x81\x00\x00\x00" * 3,
]


@pytest.mark.parametrize("kind", ["packet", "scapy"])
def test_only_the_switchs_frames_to_this_worker_come_in(kind: str, wire: Wire) -> None:
    link = wire.worker(kind)
    me = link.address
    good = result(me, 1, bytes(64))
    wire.transmit(
        result(me, 2, source=STRANGER),
        result(me, 3, source=Address(mac=SWITCH.mac, ip=SWITCH.ip, port=53)),
        result(me, 6, source=Address(mac=STRANGER.mac, ip=SWITCH.ip, port=SWITCH.port)),
        *(good[:12] + tags + good[12:] for tags in TAGS),
        result(Address(mac=me.mac, ip=me.ip, port=me.port ^ 1), 4),
        result(Address(mac=me.mac, ip=me.ip + 1, port=me.port), 5),
        good[:20] + b"\x20\x00" + good[22:],  # more fragments
        good[:20] + b"\x00\x07" + good[22:],  # a later fragment
        good[:14] + b"\x46" + good[15:],  # IPv4 options
        good[:23] + b"\x06" + good[24:],  # TCP
        good[:12] + b"\x86\xdd" + good[14:],  # IPv6
        b"\xff" * 12 + b"\x08\x06" + bytes(46),  # ARP
        good,
    )
    assert received(link, 1) == [good]


def test_a_switchs_port_does_not_hear_itself(wire: Wire) -> None:
    wire.transmit(result(STRANGER, 1))
    assert wire.arrived(0) == []


def test_a_switchs_port_hears_what_is_meant_for_others(wire: Wire) -> None:
    link = wire.worker()
    frame = build_frame(link.address, STRANGER, Header(kind=Kind.CONTRIBUTION))
    assert link.send(*put(link, [frame])) == 1
    assert wire.arrived(1) == [frame]


def test_vlan_tags_stay_in_place(wire: Wire) -> None:
    plain = contribution(STRANGER, 1, bytes(range(200)))
    tagged = plain[:12] + b"\x81\x00\x60\x2a" + plain[12:]
    twice = plain[:12] + b"\x88\xa8\x00\x07\x81\x00\x00\x2a" + plain[12:]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind(("sum0", 0))
        for frame in (tagged, plain, twice, tagged):
            link.send(frame)
    assert wire.arrived(4) == [tagged, plain, twice, tagged]
    assert wire.count(PortCounter.RX_BYTES) == 2 * len(tagged) + len(plain) + len(twice)


def test_an_interface_that_is_down_drops_and_counts(wire: Wire) -> None:
    ip("link", "set", "port3", "down")
    wire.transmit(*[result(STRANGER, slot) for slot in range(5)])
    assert (wire.count(PortCounter.TX_FRAMES), wire.count(PortCounter.TX_DROPS)) == (0, 5)
    assert wire.arrived(0) == []
    ip("link", "set", "port3", "up")
    wire.await_up()
    link = wire.worker()
    assert link.send(*put(link, [contribution(link.address, 1, b"")])) == 1
    assert len(wire.arrived(1)) == 1


def test_a_frame_longer_than_the_interface_takes_is_dropped_alone(wire: Wire) -> None:
    link = wire.worker()
    wire.transmit(result(link.address, 1), result(link.address, 2, bytes(9100)), result(link.address, 3))
    assert [packet.header.slot for frame in received(link, 2) if (packet := parse_frame(frame))] == [1, 3]
    assert wire.count(PortCounter.TX_DROPS) == 1


def test_two_workers_on_one_interface_have_ports_of_their_own(wire: Wire) -> None:
    first, second = wire.worker(), wire.worker()
    assert first.address.port != second.address.port
    wire.transmit(result(second.address, 2), result(first.address, 1))
    assert received(first, 1) == [result(first.address, 1)]
    assert received(second, 1) == [result(second.address, 2)]


@pytest.mark.parametrize("kind", ["packet", "scapy"])
def test_what_cannot_be_opened_says_why(kind: str, wire: Wire) -> None:
    def refused(interface: str, frame_bytes: int = FRAME) -> str:
        with pytest.raises(TransportError) as caught:
            open_transport(f"{kind}:{interface}", rows=4, frame_bytes=frame_bytes, switch=SWITCH)
        return str(caught.value)

    assert "takes frames of 9014 bytes, not 9216" in refused("sum0", 9216)
    assert refused("nowhere0").startswith("interface nowhere0: ")
    assert refused("port3").startswith("interface port3: no IPv4 address (Cannot assign requested address)")


def test_ports_that_cannot_be_opened_leave_nothing_open(wire: Wire) -> None:
    table = PortTable()
    with pytest.raises(TransportError, match="interface nowhere0"):
        PacketPorts(table, {1: "sum0", 2: "nowhere0"})
    assert table.ports() == []


def test_without_privilege_the_error_names_it(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = socket.socket

    def refuse(family: socket.AddressFamily, *rest: int) -> socket.socket:
        if family == socket.AF_PACKET:
            raise PermissionError
        return ordinary(family, *rest)

    monkeypatch.setattr("switchsum_switch.wires.packetsocket.socket.socket", refuse)
    with pytest.raises(TransportError, match="port3 needs root or CAP_NET_RAW"):
        PacketPorts(PortTable(), {1: "port3"})


def test_closed_links_and_forked_children_keep_nothing(wire: Wire) -> None:
    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text()
        return len(os.listdir("/proc/self/fd")), maps.count("socket:")

    before = held()
    for _ in range(3):
        link = open_transport("packet:sum0", rows=8, frame_bytes=FRAME, switch=SWITCH)
        assert held()[1] == before[1] + 1
        child = os.fork()
        if not child:
            os._exit("socket:" in Path("/proc/self/maps").read_text())
        assert os.waitpid(child, 0)[1] == 0
        link.close()
    assert held() == before


def test_where_memory_is_short_the_ring_is_smaller(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Short(socket.socket):
        most = 0

        def setsockopt(self, level: int, option: int, value: Any) -> None:  # type: ignore[override]
            if (level, option) == (263, 5) and struct.unpack("IIII", value)[3] > Short.most:
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            super().setsockopt(level, option, value)

    monkeypatch.setattr("switchsum_switch.wires.packetsocket.socket.socket", Short)
    with pytest.raises(TransportError, match="cannot make a receive ring on interface sum0: Cannot allocate memory"):
        wire.worker()
    Short.most = 70
    link = wire.worker()
    assert isinstance(link, PacketTransport)
    assert link.ring[SLOTS] == 64
    assert caplog.messages == ["interface sum0: memory for a ring of 64 frames, not of 512"]
    exchange(wire, link, [bytes([slot]) * 64 for slot in range(100)])


def test_the_filters_jumps_stay_inside() -> None:
    program = udp_filter(SWITCH, STRANGER)
    for at, (code, true, false, _) in enumerate(program):
        struct.pack("HBBI", *program[at])
        if code & 0x07 == 0x05:  # a jump
            assert {at + 1 + true, at + 1 + false} <= {at + 1, len(program) - 1}
    assert program[-2][3] > 0
    assert program[-1][3] == 0
