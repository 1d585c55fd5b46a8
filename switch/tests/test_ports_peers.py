"""Ports that are UDP peers, against ordinary sockets and against each other."""

from __future__ import annotations

import ctypes
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import pytest

from support.timing import eventually, patience
from switchsum_protocol.errors import SwitchsumError, TransportError, UsageError
from switchsum_switch.daemon.command_line import run
from switchsum_switch.daemon.daemon import Config, ProgramConfig, SwitchProcess
from switchsum_switch.ports.base import MAX_FRAME_BYTES, Batch, PortCounter, PortTable
from switchsum_switch.ports.peers import PeerPorts, read_peer
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.ports.taps import InterfaceFiles
from switchsum_switch.wires.datagrams import knows_segments, take_together

PROGRAM: Final = Path(__file__).parent / "programs" / "lives.json"
HOST: Final = "127.0.0.1"
NUMBERS: Final = (3, 8)


class Cables:
    """A switch with two ports, and a socket at the other end of each."""

    def __init__(self) -> None:
        self.ends = {number: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for number in NUMBERS}
        for end in self.ends.values():
            end.bind((HOST, 0))
            end.settimeout(patience(10))
        self.table = PortTable()
        self.group = PeerPorts(self.table, {number: name(f"{HOST}:0", end) for number, end in self.ends.items()})
        self.ports = PortSet(self.table, [self.group])
        for port in self.group._ports:
            self.ends[port.number].connect(port.link.getsockname())

    def arrived(self, count: int) -> list[tuple[int, bytes]]:
        """Return the next frames, and the port of each."""
        frames: list[tuple[int, bytes]] = []
        while len(frames) < count:
            batch = self.ports.poll()
            if not batch.count:
                self.ports.wait(patience(10))
            frames += as_bytes(batch)
            self.ports.done()
        return frames

    def transmit(self, frames: list[tuple[int, bytes]]) -> None:
        memories = [np.frombuffer(frame, np.uint8) for _, frame in frames]
        addresses = np.array([memory.ctypes.data for memory in memories], np.uint64)
        lengths = np.array([len(frame) for _, frame in frames], np.uint32)
        self.ports.transmit(np.array([port for port, _ in frames], np.uint32), addresses, lengths)

    def count(self, counter: PortCounter, number: int = NUMBERS[0]) -> int:
        return int(self.table.counters[number, counter])

    def close(self) -> None:
        self.ports.close()
        for end in self.ends.values():
            end.close()


def name(ours: str, end: socket.socket) -> str:
    host, port = end.getsockname()
    return f"udp:{ours}/{host}:{port}"


def as_bytes(batch: Batch) -> list[tuple[int, bytes]]:
    ports, addresses, lengths = batch.frames()
    rows = zip(ports.tolist(), addresses.tolist(), lengths.tolist(), strict=True)
    return [(port, ctypes.string_at(address, length)) for port, address, length in rows]


@pytest.fixture
def cables() -> Iterator[Cables]:
    cables = Cables()
    yield cables
    cables.close()


def drawn(random: Random) -> list[tuple[int, bytes]]:
    """Draw frames of two ports, in runs of one length, as traffic has them; no more than a small buffer holds."""
    frames = list[tuple[int, bytes]]()
    while sum(len(frame) + 800 for _, frame in frames) < 60_000:
        length = random.choice((14, 60, 64, 1514, random.randrange(14, 3000), MAX_FRAME_BYTES))
        frames += [(random.choice(NUMBERS), random.randbytes(length)) for _ in range(random.choice((1, 1, 4)))]
    return frames


@pytest.mark.parametrize("seed", range(20))
def test_frames_go_both_ways_as_they_are(cables: Cables, seed: int) -> None:
    frames = drawn(Random(seed))
    cables.transmit(frames)
    for number, end in cables.ends.items():
        mine = [frame for port, frame in frames if port == number]
        assert [end.recv(70_000) for _ in mine] == mine
        assert cables.count(PortCounter.TX_FRAMES, number) == len(mine)
        assert cables.count(PortCounter.TX_BYTES, number) == sum(map(len, mine))
    for port, frame in frames:
        cables.ends[port].send(frame)
    came = cables.arrived(len(frames))
    for number in NUMBERS:
        mine = [frame for port, frame in frames if port == number]
        assert [frame for port, frame in came if port == number] == mine
        assert cables.count(PortCounter.RX_FRAMES, number) == len(mine)
        assert cables.count(PortCounter.RX_BYTES, number) == sum(map(len, mine))
    assert not cables.table.counters[:, [PortCounter.RX_DROPS, PortCounter.TX_DROPS]].any()


def test_neighbours_of_one_length_cross_the_kernel_together(cables: Cables) -> None:
    end = cables.ends[NUMBERS[0]]
    if not knows_segments(end):
        pytest.skip("this kernel has no super-datagrams")
    take_together(end)
    frames = [bytes([number]) * 500 for number in range(40)]
    cables.transmit([(NUMBERS[0], frame) for frame in frames])
    whole, control, _, _ = end.recvmsg(70_000, 100)
    assert (whole, len(control)) == (b"".join(frames), 1)
    end.sendmsg([whole], [(socket.IPPROTO_UDP, 103, (500).to_bytes(2, "little"))])
    assert cables.arrived(40) == [(NUMBERS[0], frame) for frame in frames]


def test_datagrams_that_are_no_frames_are_dropped_and_counted(cables: Cables) -> None:
    random, number = Random(1), NUMBERS[0]
    bad = [random.randbytes(size) for size in (0, 1, 13, MAX_FRAME_BYTES + 1, 20_000, 65_507)]
    good = [random.randbytes(size) for size in (14, MAX_FRAME_BYTES, 100)]
    for frame in (good[0], *bad, *good[1:]):
        cables.ends[number].send(frame)
    assert cables.arrived(3) == [(number, frame) for frame in good]
    assert (cables.count(PortCounter.RX_DROPS), cables.count(PortCounter.RX_FRAMES)) == (len(bad), len(good))


def test_datagrams_of_strangers_do_not_come_in(cables: Cables) -> None:
    number = NUMBERS[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(bytes(60), cables.ends[number].getpeername())
    cables.ends[number].send(b"frame" * 9)
    assert cables.arrived(1) == [(number, b"frame" * 9)]
    assert not cables.count(PortCounter.RX_DROPS)


def test_a_peer_that_is_away_loses_frames_until_it_is_back(cables: Cables) -> None:
    number = NUMBERS[0]
    theirs, ours = cables.ends[number].getsockname(), cables.ends[number].getpeername()
    cables.ends[number].close()
    for _ in range(5):
        cables.transmit([(number, bytes(100)), (NUMBERS[1], bytes(50))])
        cables.ports.wait(0.01)
        assert not cables.ports.poll().count
    assert len([cables.ends[NUMBERS[1]].recv(100) for _ in range(5)]) == 5
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as back:
        back.bind(theirs)
        back.connect(ours)
        back.settimeout(patience(10))
        cables.transmit([(number, b"again" * 9)])
        assert back.recv(100) == b"again" * 9
        back.send(b"here" * 9)
        assert cables.arrived(1) == [(number, b"here" * 9)]


def test_what_finds_no_room_in_the_buffer_is_counted(cables: Cables) -> None:
    number, sent = NUMBERS[0], 400
    port = next(port for port in cables.group._ports if port.number == number)
    port.link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    for _ in range(sent):
        cables.ends[number].send(bytes(1000))
    while cables.ports.poll().count:
        cables.ports.done()
    cables.ports.service()
    came, lost = cables.count(PortCounter.RX_FRAMES), cables.count(PortCounter.RX_DROPS)
    assert came + lost == sent
    assert came > 0
    assert lost > 0


def test_a_frame_that_no_datagram_holds_is_counted(cables: Cables) -> None:
    cables.transmit([(NUMBERS[0], bytes(100)), (NUMBERS[0], bytes(66_000)), (NUMBERS[0], bytes(50))])
    assert [len(cables.ends[NUMBERS[0]].recv(70_000)) for _ in range(2)] == [100, 50]
    assert (cables.count(PortCounter.TX_FRAMES), cables.count(PortCounter.TX_DROPS)) == (2, 1)


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_frames_beyond_the_paths_mtu_go_in_fragments() -> None:
    """Super-datagrams of such frames are refused by the kernel, and the frames then go one by one."""
    subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)
    cables, random = Cables(), Random(3)
    frames = [
        (NUMBERS[0], random.randbytes(length)) for length in (60, 60, 1514, 1514, 9000, 9000, MAX_FRAME_BYTES, 60)
    ]
    cables.transmit(frames)
    assert [cables.ends[NUMBERS[0]].recv(70_000) for _ in frames] == [frame for _, frame in frames]
    for _, frame in frames:
        cables.ends[NUMBERS[0]].send(frame)
    assert cables.arrived(len(frames)) == frames
    cables.close()


@pytest.mark.parametrize(
    "text",
    [
        *("udp:", "udp:/", "udp:127.0.0.1:1", "udp:127.0.0.1:1/", "udp:/127.0.0.1:1", "udp:127.0.0.1:1/127.0.0.1"),
        *("udp:127.0.0.1:1/127.0.0.1:0", "udp:127.0.0.1:1/127.0.0.1:65536", "udp:127.0.0.1:-1/127.0.0.1:1"),
        *("udp:[::1]:1/[::1]:2", "udp:::1:1/::1:2", "udp:127.0.0.1:1/127.0.0.1:2/3", "udp::1/:2", "eth0"),
    ],
)
def test_names_that_are_no_peers_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a UDP peer is udp:HOST:PORT/HOST:PORT"):
        read_peer(text)


def test_a_name_has_both_ends() -> None:
    assert read_peer("udp:0.0.0.0:7401/here.example:7402") == (("0.0.0.0", 7401), ("here.example", 7402))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("-i 1@udp:127.0.0.1:7401", "a UDP peer is udp:HOST:PORT/HOST:PORT"),
        ("-i 1@udp:127.0.0.1:BUSY/127.0.0.1:7", "port 1 cannot listen on UDP port 127.0.0.1:BUSY: Address already"),
        ("-i 1@udp:192.0.2.1:9/127.0.0.1:7", "port 1 cannot listen on UDP port 192.0.2.1:9: Cannot assign"),
        ("-i 1@udp:127.0.0.1:0/255.255.255.255:7", "port 1 cannot send to 255.255.255.255:7: Permission denied"),
        (f"-i 1@udp:127.0.0.1:0/{'ä' * 64}:7", f"port 1 cannot send to {'ä' * 64}:7: no such host"),
        ("-i 1@udp:..:0/127.0.0.1:7", "port 1 cannot listen on UDP port ..:0: "),
        ("-i 1@udp:127.0.0.1:FREE/127.0.0.1:FREE", "port 1: both ends are 127.0.0.1:FREE"),
        ("-i 1@udp:127.0.0.1:FREE/127.0.0.1:7 -i 2@udp:127.0.0.1:FREE/127.0.0.1:8", "ports 1 and 2 have the same end"),
        (
            "-i 1@udp:127.0.0.1:0/127.0.0.1:7 -i 2@udp:127.0.0.1:0/127.0.0.1:7",
            "ports 1 and 2 have the same other end, 127.0.0.1:7",
        ),
        ("-i 511@udp:127.0.0.1:0/127.0.0.1:7", "port number 511 is the CPU port's or means drop"),
    ],
)
def test_addresses_that_cannot_be_are_said_in_one_line(line: str, reason: str) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as busy,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free,
    ):
        busy.bind((HOST, 0))
        free.bind((HOST, 0))
        numbers = {"BUSY": str(busy.getsockname()[1]), "FREE": str(free.getsockname()[1])}
        free.close()
        for word, number in numbers.items():
            line, reason = line.replace(word, number), reason.replace(word, number)
        with pytest.raises(SwitchsumError) as refused:
            run(["--no-p4", *line.split(), "--", "--grpc-server-addr", "127.0.0.1:0"])
        assert reason in str(refused.value)
        assert "\n" not in str(refused.value)
        assert busy.getsockname()[1] == int(numbers["BUSY"])


def test_a_switch_that_cannot_start_leaves_nothing_open() -> None:
    table = PortTable()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((HOST, 0))
        ours = "{}:{}".format(*free.getsockname())
    with pytest.raises(TransportError, match="same other end"):
        PeerPorts(table, {1: f"udp:{ours}/{HOST}:7", 2: f"udp:{HOST}:0/{HOST}:7"})
    assert table.ports() == []
    PeerPorts(table, {1: f"udp:{ours}/{HOST}:7"}).close()


def test_files_of_peers_have_no_slash(tmp_path: Path) -> None:
    InterfaceFiles(tmp_path, {1: "udp:127.0.0.1:7401/127.0.0.1:7402"}).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "udp:127.0.0.1:7401_127.0.0.1:7402_in.pcap",
        "udp:127.0.0.1:7401_127.0.0.1:7402_out.pcap",
    ]


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_two_switches_are_joined_without_root(engine: str) -> None:
    """Host - switch - switch - host; the program sends each frame to port 1, with a header in front."""
    first, last, *joint = ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(4)]
    for end in ends:
        end.bind((HOST, 0))
        end.settimeout(patience(20))
    between = [f"{HOST}:{end.getsockname()[1]}" for end in joint]
    near = f"{HOST}:{first.getsockname()[1]}", f"{HOST}:0"
    far = f"{HOST}:0", f"{HOST}:{last.getsockname()[1]}"
    for end in joint:
        end.close()
    made = [
        {2: f"udp:{near[1]}/{near[0]}", 1: f"udp:{between[0]}/{between[1]}"},
        {2: f"udp:{between[1]}/{between[0]}", 1: f"udp:{far[0]}/{far[1]}"},
    ]
    program = ProgramConfig(device_config=PROGRAM.read_bytes())
    switches = [
        SwitchProcess(Config(listen=f"{HOST}:0", engine=engine, program=program, interfaces=ports))  # type: ignore[arg-type]
        for ports in made
    ]
    running = [threading.Thread(target=switch.run) for switch in switches]
    for thread in running:
        thread.start()
    try:
        [entrance] = [port.name for port in switches[0].ports.ports() if port.number == 2]
        host, port = entrance.removeprefix("udp:").partition("/")[0].split(":")
        first.connect((host, int(port)))
        frame = Random(2).randbytes(200)
        for number in range(20):
            first.send(frame + bytes([number]))
            assert last.recv(2000).endswith(frame + bytes([number]))
        assert eventually(lambda: switches[1].ports.statistics()[1]["tx_frames"] == 20)
        assert switches[0].ports.statistics()[2]["rx_frames"] == 20
    finally:
        for switch, thread in zip(switches, running, strict=True):
            switch.stop()
            thread.join()
            switch.close()
        first.close()
        last.close()
