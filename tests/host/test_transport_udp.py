"""The UDP link against the switch's UDP port and against sockets that are neither."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from support.timing import patience
from switchsum_host.links.names import open_transport
from switchsum_host.links.udp import UdpTransport
from switchsum_protocol.errors import TransportError, UsageError
from switchsum_protocol.frame import AGGREGATION_PORT, FRAME_BYTES, HEADER_BYTES, Flag, Header, Kind
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.ports.base import Batch, PortCounter, PortTable
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.ports.udp import UdpPort
from switchsum_switch.wires.datagrams import take_together
from switchsum_switch.wires.headers import LOWER_BYTES, Address

SWITCH = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=AGGREGATION_PORT)
FRAME = FRAME_BYTES + 1024
STRANGER = Address(mac=0x02_00_00_00_00_09, ip=0x0A_00_00_09, port=9)


class Wire:
    """A switch with one UDP port on the loopback, and workers."""

    def __init__(self) -> None:
        self.table = PortTable()
        self.port = UdpPort(self.table, "127.0.0.1", 0, switch=SWITCH, number=7)
        self.ports = PortSet(self.table, [self.port])
        self.links: list[UdpTransport] = []

    def worker(self, rows: int = 200) -> UdpTransport:
        host, port = self.port.address
        link = UdpTransport(host, port, rows=rows, frame_bytes=FRAME, switch=SWITCH)
        self.links.append(link)
        return link

    def arrived(self, count: int) -> list[bytes]:
        """Return the next frames as the switch's program sees them."""
        frames: list[bytes] = []
        while len(frames) < count:
            batch = self.ports.poll()
            if not batch.count:
                self.ports.wait(5)
            for address, length, port in zip(
                batch.addresses[: batch.count].tolist(), batch.lengths.tolist(), batch.ports.tolist(), strict=False
            ):
                assert port == 7
                frames.append(ctypes.string_at(address, length))
            self.ports.done()
        return frames

    def transmit(self, *frames: bytes) -> None:
        memories = [np.frombuffer(frame, np.uint8) for frame in frames]
        addresses = np.array([memory.ctypes.data for memory in memories], np.uint64)
        lengths = np.array([len(frame) for frame in frames], np.uint32)
        self.ports.transmit(np.full(len(frames), 7, np.uint32), addresses, lengths)

    def count(self, counter: PortCounter) -> int:
        return int(self.table.counters[7, counter])


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    for link in wire.links:
        link.close()
    wire.ports.close()


def contribution(source: Address, slot: int, payload: bytes) -> bytes:
    flags = Flag.PAYLOAD if payload else Flag(0)
    return build_frame(source, SWITCH, Header(kind=Kind.CONTRIBUTION, slot=slot, flags=flags), payload)


def result(destination: Address, slot: int, payload: bytes = b"") -> bytes:
    return build_frame(SWITCH, destination, Header(kind=Kind.RESULT, slot=slot), payload)


def put(link: UdpTransport, row: int, frame: bytes) -> None:
    link.tx_frames[row, link.lead : link.lead + len(frame)] = np.frombuffer(frame, np.uint8)


def received(link: UdpTransport, count: int) -> list[bytes]:
    frames: list[bytes] = []
    while len(frames) < count:
        assert link.wait(patience(5))
        came = link.receive()
        assert not came.frames.flags.writeable
        for row, length in zip(came.rows.tolist(), came.lengths.tolist(), strict=True):
            frames.append(came.frames[row, link.lead : link.lead + length].tobytes())
        link.release()
    return frames


def test_the_switch_sees_the_frames_that_the_worker_packed(wire: Wire) -> None:
    link = wire.worker()
    frames = [contribution(link.address, slot, bytes([slot]) * (slot % 2 * 1024)) for slot in range(150)]
    for row, frame in enumerate(frames):
        put(link, row, frame)
    lengths = np.array([len(frame) for frame in frames], np.int32)
    seen: list[bytes] = []
    for start in range(0, 150, 50):
        part = slice(start, start + 50)
        assert link.send(np.arange(200, dtype=np.int32)[part], lengths[part]) == 50
        seen += wire.arrived(50)
    assert seen == frames
    assert (link.pushed, link.consumed, link.failed) == (150, 150, 0)
    assert wire.count(PortCounter.RX_FRAMES) == 150
    assert wire.count(PortCounter.RX_BYTES) == lengths.sum()


def test_the_worker_sees_the_frames_that_the_switch_sent(wire: Wire) -> None:
    first, second = wire.worker(), wire.worker()
    assert first.address != second.address
    sent = {
        link.address: [result(link.address, slot, bytes([slot]) * (slot % 2 * 1024)) for slot in range(30)]
        for link in (first, second)
    }
    wire.transmit(*(frame for pair in zip(*sent.values(), strict=True) for frame in pair))
    for link in (first, second):
        assert received(link, 30) == sent[link.address]
    assert wire.count(PortCounter.TX_FRAMES) == 60
    assert wire.count(PortCounter.TX_BYTES) == sum(len(frame) for frames in sent.values() for frame in frames)
    assert wire.count(PortCounter.TX_DROPS) == 0


def test_results_to_each_worker_go_together(wire: Wire) -> None:
    peers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    sent: list[list[bytes]] = []
    for peer in peers:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(patience(5))
        take_together(peer)
        to = Address(mac=0, ip=0x7F_00_00_01, port=peer.getsockname()[1])
        sent.append([result(to, slot, bytes([slot]) * 1024) for slot in range(70)] + [result(to, 70)])
    wire.transmit(*(frame for frames in zip(*sent, strict=True) for frame in frames))
    for peer, frames in zip(peers, sent, strict=True):
        with peer:
            came = [peer.recv(1 << 16) for _ in range(2)]
            assert b"".join(came) == b"".join(frame[LOWER_BYTES:] for frame in frames)
    assert wire.count(PortCounter.TX_FRAMES) == 3 * 71
    assert wire.count(PortCounter.TX_BYTES) == sum(len(frame) for frames in sent for frame in frames)
    assert wire.count(PortCounter.TX_DROPS) == 0


@pytest.mark.parametrize("together", [True, False])
def test_contributions_go_together_where_they_may(*, together: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(patience(5))
        take_together(peer)
        host, port = peer.getsockname()
        link = UdpTransport(host, port, rows=64, frame_bytes=FRAME, switch=SWITCH, together=together)
        sent = [contribution(link.address, slot, bytes(1024)) for slot in range(20)]
        for row, frame in enumerate(sent):
            put(link, row, frame)
        assert link.send(np.arange(20, dtype=np.int32), np.full(20, FRAME, np.int32)) == 20
        came = [peer.recv(1 << 16) for _ in range(1 if together else 20)]
        assert b"".join(came) == b"".join(frame[LOWER_BYTES:] for frame in sent)
        link.close()


def test_a_batch_that_is_nearly_full_takes_a_part_and_the_rest_is_not_slept_over(wire: Wire) -> None:
    link = wire.worker()
    sent = [contribution(link.address, slot, bytes([slot]) * 1024) for slot in range(60)]
    for row, frame in enumerate(sent):
        put(link, row, frame)
    assert link.send(np.arange(60, dtype=np.int32), np.full(60, FRAME, np.int32)) == 60
    seen: list[bytes] = []
    for wanted in (7, 7, 46):
        batch = Batch(wanted)
        wire.port.collect(batch)
        assert batch.count == wanted
        seen += [ctypes.string_at(a, n) for a, n in zip(batch.addresses.tolist(), batch.lengths.tolist(), strict=True)]
        assert wire.port.prepare_sleep() == (len(seen) == 60)
    assert seen == sent


def broken_frames(to: Address) -> list[bytes]:
    good = result(to, 1, bytes(16))
    return [
        build_frame(STRANGER, to, Header(kind=Kind.RESULT)),  # somebody else's, which the program forwards
        build_frame(Address(mac=SWITCH.mac, ip=SWITCH.ip, port=53), to, Header(kind=Kind.RESULT)),
        good[:12] + b"\x08\x06" + good[14:],  # ARP
        good[:14] + b"\x46" + good[15:],  # IPv4 options
        good[:23] + b"\x06" + good[24:],  # TCP
        good[:38] + (len(good) - 33).to_bytes(2) + good[40:],  # UDP length beyond the frame's end
        good[:38] + b"\x00\x07" + good[40:],  # and below its own header's
        good[: LOWER_BYTES - 1],
    ]


def test_only_the_switchs_own_datagrams_leave(wire: Wire) -> None:
    link = wire.worker()
    bad = broken_frames(link.address)
    good = result(link.address, 5)
    wire.transmit(*bad, good)
    assert received(link, 1) == [good]
    assert not link.wait(0.05)
    assert (wire.count(PortCounter.TX_FRAMES), wire.count(PortCounter.TX_DROPS)) == (1, len(bad))


def test_datagrams_of_strangers_do_not_reach_the_worker(wire: Wire) -> None:
    link = wire.worker()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"x" * 100, ("127.0.0.1", link.address.port))
    assert not link.wait(0.05)


def test_any_datagram_becomes_a_frame_that_its_own_lengths_describe(wire: Wire) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for size in (1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, 9000):
            stranger.sendto(b"y" * size, wire.port.address)
            (frame,) = wire.arrived(1)
            assert len(frame) == LOWER_BYTES + size
            packet = parse_frame(frame)
            assert (packet is None) == (size < HEADER_BYTES)
            if packet is not None:
                assert (packet.source.ip, packet.source.port) == (0x7F_00_00_01, stranger.getsockname()[1])
                assert packet.destination == SWITCH


def test_what_fits_no_row_is_dropped(wire: Wire) -> None:
    link = wire.worker()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"z" * 20_000, wire.port.address)
        stranger.sendto(b"z" * 50, wire.port.address)
    (frame,) = wire.arrived(1)
    assert len(frame) == LOWER_BYTES + 50
    assert wire.count(PortCounter.RX_DROPS) == 1
    wire.transmit(result(link.address, 1, bytes(1024)), result(link.address, 2, bytes(1025)), result(link.address, 3))
    slots = [packet.header.slot for frame in received(link, 2) if (packet := parse_frame(frame))]
    assert slots == [1, 3]


def test_a_switch_that_is_not_there_is_no_error_until_the_engine_gives_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    link = UdpTransport("127.0.0.1", port, rows=8, frame_bytes=FRAME, switch=SWITCH)
    put(link, 0, contribution(link.address, 0, b""))
    for _ in range(3):  # the refusals of the first come back with the next calls
        assert link.send(np.zeros(8, np.int32), np.full(8, FRAME_BYTES, np.int32)) == 8
        link.wait(0.01)
        assert len(link.receive().rows) == 0
    assert link.pushed == 24
    link.close()


def test_a_frame_that_the_kernel_refuses_is_lost_and_counted(wire: Wire) -> None:
    host, port = wire.port.address
    link = UdpTransport(host, port, rows=3, frame_bytes=60_000, switch=SWITCH)
    wire.links.append(link)
    for row in range(3):
        put(link, row, contribution(link.address, row, b""))
    assert link.send(np.arange(3, dtype=np.int32), np.array([FRAME_BYTES, 69_000, FRAME_BYTES], np.int32)) == 3
    assert link.failed == 1
    assert [packet.header.slot for frame in wire.arrived(2) if (packet := parse_frame(frame))] == [0, 2]


def test_an_address_in_use_is_refused_and_the_number_stays_free(wire: Wire) -> None:
    host, port = wire.port.address
    table = PortTable()
    with pytest.raises(TransportError, match="in use"):
        UdpPort(table, host, port, switch=SWITCH, number=1)
    assert table.ports() == []


def test_links_by_name(wire: Wire) -> None:
    host, port = wire.port.address
    link = open_transport(f"udp:{host}:{port}", rows=4, frame_bytes=FRAME, switch=SWITCH)
    assert isinstance(link, UdpTransport)
    wire.links.append(link)
    for bad in ("", "udp", "udp:", "shm:", "udp:localhost:http", "carrier:pigeon"):
        with pytest.raises(UsageError):
            open_transport(bad, rows=4, frame_bytes=FRAME, switch=SWITCH)
    with pytest.raises(TransportError, match="cannot reach a switch"):
        open_transport("udp:255.255.255.255:1", rows=4, frame_bytes=FRAME, switch=SWITCH)
