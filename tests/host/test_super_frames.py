"""Many frames that cross the kernel as one, over AF_PACKET, and the rings that they come from."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import threading
import time

import pytest

from switchsum_host.links.names import open_transport
from switchsum_host.links.packet import PacketTransport
from switchsum_protocol.frame import LANE_BUILDS, payload_bytes
from switchsum_switch.ports.base import PortCounter, PortTable
from switchsum_switch.ports.packet import PacketPorts
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.wires.headers import LOWER_BYTES
from switchsum_switch.wires.packetring import HEAD
from switchsum_switch.wires.packetsocket import PACKET_VNET_HDR, SOL_PACKET

from .veth_wire import FRAME, PORT, SWITCH, Wire, contribution, exchange, ip, offloads, put, sum_of

pytestmark = pytest.mark.root


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


def test_a_ring_full_of_what_cannot_be_cut_is_emptied_once(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
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
    for _ in range(2):  # the second time it is not said again
        wire.ports.service()
    assert wire.count(PortCounter.RX_DROPS) == 1100
    [said] = [record.getMessage() for record in caplog.records if "super-frames" in record.getMessage()]
    assert "`ethtool -K port3 gro off lro off`" in said


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
