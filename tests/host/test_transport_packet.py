"""AF_PACKET and Scapy links against the switch's interface ports, over a veth pair in a namespace of their own."""

from __future__ import annotations

import ctypes
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from switchsum.host.transport.base import Transport
from switchsum.host.transport.links import open_transport
from switchsum.protocol.errors import TransportError
from switchsum.protocol.packetsocket import udp_filter
from switchsum.protocol.wire import (
    AGGREGATION_PORT,
    FRAME_BYTES,
    Address,
    Flag,
    Header,
    Kind,
    build_frame,
    parse_frame,
    parse_ip,
)
from switchsum.switch.ports.base import Counter, PortTable
from switchsum.switch.ports.packet import PacketPorts
from switchsum.switch.ports.port_set import PortSet

SWITCH = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=AGGREGATION_PORT)
STRANGER = Address(mac=0x02_00_00_00_00_09, ip=0x0A_00_00_09, port=AGGREGATION_PORT)
WORKER_IP = "10.0.0.2"
PAYLOAD = 8192
FRAME = FRAME_BYTES + PAYLOAD
PORT = 3

pytestmark = pytest.mark.root


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Wire:
    """A switch whose port is one end of a veth pair; a worker may use the other, `sum0`."""

    def __init__(self) -> None:
        # Nothing but what the tests send travels here: no router solicitations.
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        ip("link", "add", "port3", "mtu", "9000", "type", "veth", "peer", "name", "sum0", "mtu", "9000")
        ip("link", "set", "port3", "up")
        ip("link", "set", "sum0", "up")
        ip("address", "add", f"{WORKER_IP}/24", "dev", "sum0")
        self.await_up()
        self.table = PortTable()
        self.ports = PortSet(self.table, [PacketPorts(self.table, {PORT: "port3"})])
        self.links: list[Transport] = []

    def await_up(self) -> None:
        """Wait until both ends are in use; until then the kernel drops what is sent."""
        while ip("link", "show", "up").count("state UP") < 2:
            time.sleep(0.01)
        time.sleep(0.01)

    def worker(self, kind: str = "packet", frame_bytes: int = FRAME) -> Transport:
        link = open_transport(f"{kind}:sum0", rows=128, frame_bytes=frame_bytes, switch=SWITCH)
        self.links.append(link)
        return link

    def arrived(self, count: int) -> list[bytes]:
        """Return the next `count` frames that the switch sees; none: what comes within a moment."""
        frames: list[bytes] = []
        while len(frames) < count or not count:
            batch = self.ports.poll()
            if not batch.count:
                self.ports.wait(5 if count else 0.05)
                batch = self.ports.poll()
            for i in range(batch.count):
                assert batch.ports[i] == PORT
                frames.append(ctypes.string_at(int(batch.addresses[i]), int(batch.lengths[i])))
            self.ports.done()
            if not count:
                break
        return frames

    def transmit(self, *frames: bytes) -> None:
        memories = [np.frombuffer(frame, np.uint8) for frame in frames]
        addresses = np.array([memory.ctypes.data for memory in memories], np.uint64)
        lengths = np.array([len(frame) for frame in frames], np.uint32)
        self.ports.transmit(np.full(len(frames), PORT, np.uint32), addresses, lengths)

    def count(self, counter: Counter) -> int:
        return int(self.table.counters[PORT, counter])


@pytest.fixture
def wire(network_namespace: None) -> Iterator[Wire]:
    wire = Wire()
    yield wire
    for link in wire.links:
        link.close()
    wire.ports.close()


def contribution(source: Address, slot: int, payload: bytes) -> bytes:
    header = Header(kind=Kind.CONTRIBUTION, slot=slot, flags=Flag.PAYLOAD if payload else Flag(0))
    return build_frame(source, SWITCH, header, payload)


def result(destination: Address, slot: int, payload: bytes = b"", source: Address = SWITCH) -> bytes:
    return build_frame(source, destination, Header(kind=Kind.RESULT, slot=slot), payload)


def put(link: Transport, frames: list[bytes]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], ...]:
    for row, frame in enumerate(frames):
        link.tx_frames[row, link.lead : link.lead + len(frame)] = np.frombuffer(frame, np.uint8)
    return np.arange(len(frames), dtype=np.int32), np.array([len(frame) for frame in frames], np.int32)


def received(link: Transport, count: int) -> list[bytes]:
    """Return the next `count` frames that the worker gets; none: what comes within a moment."""
    frames: list[bytes] = []
    while link.wait(5 if len(frames) < count else 0.05):
        came = link.receive()
        for row, length in zip(came.rows.tolist(), came.lengths.tolist(), strict=True):
            frames.append(came.frames[row, link.lead : link.lead + length].tobytes())
        link.release()
    return frames


@pytest.mark.parametrize("kind", ["packet", "scapy"])
def test_frames_travel_whole_in_both_directions(kind: str, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "switchsum.host.transport")
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
    assert wire.count(Counter.RX_FRAMES) == 100
    assert wire.count(Counter.TX_FRAMES) == 25
    assert wire.count(Counter.TX_BYTES) == sum(map(len, results))
    if kind == "scapy":
        assert "sends Ether / IP / UDP 10.0.0.2" in caplog.text or "sends Ether / IP / UDP / switchsum" in caplog.text
        assert "switchsum result" in caplog.text


@pytest.mark.parametrize("kind", ["packet", "scapy"])
def test_only_the_switchs_frames_to_this_worker_come_in(kind: str, wire: Wire) -> None:
    link = wire.worker(kind)
    me = link.address
    good = result(me, 1, bytes(64))
    wire.transmit(
        result(me, 2, source=STRANGER),
        result(me, 3, source=Address(mac=SWITCH.mac, ip=SWITCH.ip, port=53)),
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
    assert wire.count(Counter.RX_BYTES) == 2 * len(tagged) + len(plain) + len(twice)


def test_an_interface_that_is_down_drops_and_counts(wire: Wire) -> None:
    ip("link", "set", "port3", "down")
    wire.transmit(*[result(STRANGER, slot) for slot in range(5)])
    assert (wire.count(Counter.TX_FRAMES), wire.count(Counter.TX_DROPS)) == (0, 5)
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
    assert wire.count(Counter.TX_DROPS) == 1


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

    monkeypatch.setattr("switchsum.protocol.packetsocket.socket.socket", refuse)
    with pytest.raises(TransportError, match="port3 needs root or CAP_NET_RAW"):
        PacketPorts(PortTable(), {1: "port3"})


def test_the_filters_jumps_stay_inside() -> None:
    program = udp_filter(SWITCH, STRANGER)
    for at, (code, true, false, _) in enumerate(program):
        struct.pack("HBBI", *program[at])
        if code & 0x07 == 0x05:  # a jump
            assert {at + 1 + true, at + 1 + false} <= {at + 1, len(program) - 1}
    assert program[-2][3] > 0
    assert program[-1][3] == 0
