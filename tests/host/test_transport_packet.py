"""AF_PACKET and Scapy links against the switch's interface ports, over a veth pair in a namespace of their own."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from switchsum.host.links.base import Transport
from switchsum.host.links.names import open_transport
from switchsum.host.links.packet import PacketTransport
from switchsum.native.checksum import sum16
from switchsum.native.packetring import HEAD, SLOTS
from switchsum.native.packetsocket import PACKET_VNET_HDR, SOL_PACKET, udp_filter
from switchsum.protocol.errors import TransportError
from switchsum.protocol.frame import (
    AGGREGATION_PORT,
    FRAME_BYTES,
    LANE_BUILDS,
    LOWER_BYTES,
    Flag,
    Header,
    Kind,
    payload_bytes,
)
from switchsum.protocol.wire import Address, build_frame, parse_frame, parse_ip
from switchsum.switch.ports.base import PortCounter, PortTable
from switchsum.switch.ports.packet import PacketPorts
from switchsum.switch.ports.port_set import PortSet

from ..timing import patience

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

    def count(self, counter: PortCounter) -> int:
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
    while link.wait(patience(5) if len(frames) < count else 0.05):
        came = link.receive()
        for row, length in zip(came.rows.tolist(), came.lengths.tolist(), strict=True):
            frames.append(came.frames[row, link.lead : link.lead + length].tobytes())
        link.release()
    return frames


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

    monkeypatch.setattr("switchsum.native.packetsocket.socket.socket", refuse)
    with pytest.raises(TransportError, match="port3 needs root or CAP_NET_RAW"):
        PacketPorts(PortTable(), {1: "port3"})


def offloads(state: str, *names: str) -> None:
    words = [word for name in names for word in (name, state)]
    for end in ("sum0", "port3"):
        subprocess.run(["ethtool", "-K", end, *words], check=True, capture_output=True)


def sum_of(frame: bytes) -> int:
    """Return the sum over a UDP datagram and what its checksum covers besides; 0xFFFF if that is right."""
    covered = np.frombuffer(frame[26:34] + b"\x00\x11" + frame[38:40] + frame[34:], np.uint8)
    return sum16(covered.ctypes.data, len(covered))


def exchange(wire: Wire, link: Transport, bodies: list[bytes]) -> None:
    """Send contributions and results with these payloads, all at once."""
    contributions = [contribution(link.address, slot, body) for slot, body in enumerate(bodies)]
    assert link.send(*put(link, contributions)) == len(bodies)
    assert wire.arrived(len(bodies)) == contributions
    results = [result(link.address, slot, body) for slot, body in enumerate(bodies)]
    wire.transmit(*results)
    assert received(link, len(bodies)) == results


@pytest.mark.parametrize("kind", ["packet", "scapy"])
@pytest.mark.parametrize("payload", [0, *map(payload_bytes, LANE_BUILDS)])
def test_bursts_of_all_lane_builds_travel_whole(kind: str, payload: int, wire: Wire) -> None:
    exchange(wire, wire.worker(kind), [bytes([slot]) * payload for slot in range(100)])


def test_frames_go_together_only_where_the_interface_segments(wire: Wire) -> None:
    link = wire.worker()
    assert isinstance(link, PacketTransport)
    exchange(wire, link, [bytes(1024)] * 100)
    together = link.ring[HEAD]
    assert together == 2  # slots of 61 and of 39 frames
    offloads("off", "tx", "gso")
    apart = wire.worker()
    assert isinstance(apart, PacketTransport)
    wire.ports.close()
    wire.table = PortTable()
    wire.ports = PortSet(wire.table, [PacketPorts(wire.table, {PORT: "port3"})])
    exchange(wire, apart, [bytes(1024)] * 100)
    assert apart.ring[HEAD] == 100


def test_small_super_frames_are_taken_together(wire: Wire) -> None:
    """Answers to them then go together, too, and do not get ever smaller."""
    link = wire.worker()
    triples = [[contribution(link.address, 3 * i + j, bytes([i]) * 64) for j in range(3)] for i in range(60)]
    for triple in triples:
        assert link.send(*put(link, triple)) == 3
    came = []
    for _ in range(2):
        batch = wire.ports.poll()
        came.append(batch.count)
        frames = [ctypes.string_at(int(batch.addresses[i]), int(batch.lengths[i])) for i in range(batch.count)]
        expected = [frame for triple in triples for frame in triple][sum(came[:-1]) :][: batch.count]
        assert [frame[LOWER_BYTES:] for frame in frames] == [frame[LOWER_BYTES:] for frame in expected]
        wire.ports.done()
    assert came == [126, 54]  # as many as there is room for, and none in part


def test_what_comes_while_others_are_taken_is_not_lost(wire: Wire) -> None:
    """Single frames and super-frames, each of which may come at any moment of a look at the ring."""
    link = wire.worker()
    bursts = [[contribution(link.address, slot, bytes(1200)) for slot in range(length)] for length in (1, 10)]
    rounds, count = 4000, sum(map(len, bursts))
    came = 0

    def send() -> None:
        sent = 0
        for _ in range(rounds):
            for burst in bursts:
                while sent - came > 300:  # a ring holds them, however slow the other side is
                    time.sleep(0)
                rows, lengths = put(link, burst)
                sent += link.send(rows, lengths)

    sender = threading.Thread(target=send)
    sender.start()
    is_over = False
    while not is_over:
        is_alive = sender.is_alive()
        batch = wire.ports.poll()
        came += batch.count
        is_over = not is_alive and not batch.count
        wire.ports.done()
    sender.join()
    wire.ports.service()
    assert (came, wire.count(PortCounter.RX_DROPS)) == (rounds * count, 0)


def test_a_super_frame_may_wait_where_the_ring_names_another(wire: Wire) -> None:
    """Two processors that deliver to one socket at a time need not do both in the same order."""
    link = wire.worker()
    bursts = [
        [contribution(link.address, slot, bytes([count]) * size) for slot in range(count)]
        for count, size in ((20, 1024), (5, 4096), (40, 512))
    ]
    for burst in bursts:
        assert link.send(*put(link, burst)) == len(burst)
    (group,) = wire.ports.groups
    assert isinstance(group, PacketPorts)
    (waiting,) = group.sockets()
    os.read(waiting, 1 << 17)  # so that the slot of each of them but the last finds the next one
    assert wire.arrived(45) == bursts[1] + bursts[2]
    assert wire.arrived(0) == []
    wire.ports.service()
    assert wire.count(PortCounter.RX_DROPS) == 1


def test_a_worker_of_a_switch_that_cuts_nothing_sends_nothing_together(wire: Wire) -> None:
    link = open_transport("packet:sum0", rows=8, frame_bytes=FRAME, switch=SWITCH, together=False)
    wire.links.append(link)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as other:
        other.bind(("port3", 3))
        frames = [contribution(link.address, slot, bytes(64)) for slot in range(8)]
        assert link.send(*put(link, frames)) == 8
        assert [other.recv(1 << 16) for _ in frames] == frames


def test_where_a_link_does_not_segment_the_kernel_does(wire: Wire) -> None:
    link = wire.worker()
    subprocess.run(["ethtool", "-K", "sum0", "tx-udp-segmentation", "off"], check=True, capture_output=True)
    contributions = [contribution(link.address, slot, bytes([slot]) * 512) for slot in range(20)]
    assert link.send(*put(link, contributions)) == 20
    for frame, sent in zip(wire.arrived(20), contributions, strict=True):
        assert frame[LOWER_BYTES:] == sent[LOWER_BYTES:]
        assert frame[40:42] != b"\0\0"
        assert sum_of(frame) == 0xFFFF


def test_rings_go_round(wire: Wire) -> None:
    link = wire.worker()
    for turn in range(25):
        exchange(wire, link, [bytes([turn]) * (8 * (slot % 3)) for slot in range(100)])
    assert wire.count(PortCounter.RX_DROPS) == 0


def test_what_a_ring_cannot_hold_is_lost_and_counted(wire: Wire) -> None:
    offloads("off", "tx", "gso")
    link = wire.worker()
    frames = [contribution(link.address, slot, bytes(8)) for slot in range(100)]
    for _ in range(11):
        assert link.send(*put(link, frames)) == 100
    assert wire.arrived(1024) == (frames * 11)[:1024]
    assert link.send(*put(link, frames)) == 100
    assert wire.arrived(100) == frames
    assert wire.arrived(0) == []
    assert wire.count(PortCounter.RX_DROPS) == 1100 - 1024


def test_a_ring_full_of_what_cannot_be_cut_is_emptied_once(wire: Wire) -> None:
    """TCP's super-frames, of which no piece is made: the ring must not be gone round."""
    virtio = struct.pack("=BBHHHH", 1, 1, 54, 100, 34, 16)  # unfinished checksum; TCP over IPv4, 100 bytes a piece
    tcp = struct.pack("!HHIIBBHHH", 1, 2, 0, 0, 0x50, 0x10, 1000, 0, 0)
    lower = struct.pack("!BBHIBBHII", 0x45, 0, 340, 0, 64, 6, 0, 0x0A_00_00_02, 0x0A_00_00_01)
    frame = bytes(6) + bytes([2, 0, 0, 0, 0, 2]) + b"\x08\x00" + lower + tcp + bytes(300)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        sender.bind(("sum0", 0))
        for _ in range(1100):
            sender.send(virtio + frame)
    assert wire.arrived(0) == []
    link = wire.worker()
    plain = contribution(link.address, 1, b"")
    assert link.send(*put(link, [plain])) == 1
    assert wire.arrived(1) == [plain]
    wire.ports.service()
    assert wire.count(PortCounter.RX_DROPS) == 1100


def test_kernel_sockets_may_leave_checksums_and_segments_to_the_switch(wire: Wire) -> None:
    ip("neighbour", "add", "10.0.0.1", "lladdr", "02:00:00:00:00:01", "dev", "sum0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("10.0.0.1", 9))
        sender.send(b"odd")
        (frame,) = wire.arrived(1)
        assert frame[LOWER_BYTES:] == b"odd"
        assert sum_of(frame) == 0xFFFF
        sender.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT
        sender.send(bytes(1000) + bytes([1]) * 1000 + bytes([2]) * 10)
        assert [frame[LOWER_BYTES:] for frame in wire.arrived(3)] == [bytes(1000), bytes([1]) * 1000, bytes([2]) * 10]


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

    monkeypatch.setattr("switchsum.native.packetsocket.socket.socket", Short)
    with pytest.raises(TransportError, match="interface sum0: no receive ring: Cannot allocate memory"):
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
