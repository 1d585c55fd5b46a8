"""The p4lang tutorials' solutions on networks without root, from their own files.

`SWITCHSUM_TUTORIALS=CLONE pytest switch/tests/test_tutorials.py`, with p4c-bm2-ss on PATH.  p4runtime and flowcache
have controllers of their own, which the tests run as they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

from support.timing import eventually, patience
from switchsum_switch.live.file import read_network
from switchsum_switch.live.network import LiveNetwork

CLONE: Final = os.environ.get("SWITCHSUM_TUTORIALS", "")
COMPILER: Final = "p4c-bm2-ss"
LONG_S: Final = patience(10)
SILENCE_S: Final = 0.1
MAC: Final = {number: bytes.fromhex(f"08000000{number:02x}{number}{number}") for number in range(1, 5)}
TCP: Final = 6
UDP: Final = 17

pytestmark = [
    pytest.mark.skipif(not CLONE, reason="SWITCHSUM_TUTORIALS names no clone of github.com/p4lang/tutorials"),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not on PATH"),
]

FIRST_GRPC: Final = 50051
"""TCP port of the first switch, at which the controllers look for it."""
CONTROLLER: Final = Path(__file__).parent / "p4runtime" / "tutorial_controller.py"

Start = Callable[..., LiveNetwork]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[LiveNetwork] = []

    def start(exercise: str, topology: str = "topology.json", first_grpc: int = 0) -> LiveNetwork:
        folder = tmp_path / "exercises" / exercise
        shutil.copytree(Path(CLONE) / "exercises" / exercise, folder)
        (folder / "build").mkdir(exist_ok=True)
        for source in {path.name: path for path in (*folder.glob("*.p4"), *folder.glob("solution/*.p4"))}.values():
            base = folder / "build" / source.stem
            info = f"{base}.p4.p4info.txtpb"
            command = [COMPILER, "--p4v", "16", "--p4runtime-files", info, "-o", f"{base}.json", str(source)]
            subprocess.run(command, check=True, capture_output=True)
        made.append(read_network(folder / topology, folder=folder, first_grpc=first_grpc))
        made[-1].start()
        return made[-1]

    yield start
    for network in made:
        network.close()


@contextmanager
def controller(folder: Path) -> Iterator[Callable[[], str]]:
    """Run the solution's controller of an exercise; yield what returns what it has printed, while it runs."""
    (folder / "logs").mkdir()
    (folder.parents[1] / "utils").symlink_to(Path(CLONE).resolve() / "utils")
    shutil.copy(folder / "solution" / "mycontroller.py", folder)
    path = folder / "said"
    with path.open("w") as said:
        command = [sys.executable, "-u", str(CONTROLLER), "mycontroller.py"]
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT)

    def printed() -> str:
        assert process.poll() is None, path.read_text()
        return path.read_text()

    try:
        yield printed
    finally:
        process.kill()
        process.wait()


def says(said: Callable[[], str], text: str) -> bool:
    """Wait until a controller has printed a text."""
    return eventually(lambda: text in said())


def ipv4(
    source: int, to: int | str, protocol: int = UDP, data: bytes = b"data", tos: int = 0, more: bytes = b""
) -> bytes:
    """Return an IPv4 packet of a host to a host (10.0.N.N) or an address; `more` are options."""
    address = to if isinstance(to, str) else f"10.0.{to}.{to}"
    size = 20 + len(more)
    head = bytes([0x40 | size // 4, tos]) + (size + len(data)).to_bytes(2) + bytes(4) + bytes([64, protocol])
    ends = bytes([10, 0, source, source, *map(int, address.split("."))])
    words = [int.from_bytes((head + ends + more)[at : at + 2]) for at in range(0, size - 2, 2)]
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return head + (~total & 0xFFFF).to_bytes(2) + ends + more + data


def tcp(port: int, to_port: int, flags: int) -> bytes:
    return port.to_bytes(2) + to_port.to_bytes(2) + bytes(8) + bytes([0x50, flags]) + bytes(6)


def framed(packet: bytes, kind: int = 0x0800, to: bytes = bytes(6), source: int = 1) -> bytes:
    return to + MAC[source] + kind.to_bytes(2) + packet


def test_basic(start: Start) -> None:
    network = start("basic", "pod-topo/topology.json")
    for source in range(1, 5):
        for to in range(1, 5):
            if source == to:
                continue
            network.hosts[f"h{source}"].send(framed(ipv4(source, to, data=bytes([source, to])), source=source))
            [came] = network.hosts[f"h{to}"].receive(1, LONG_S)
            assert (came[:6], came[-2:]) == (MAC[to], bytes([source, to]))
            hops = 1 if (source - 1) // 2 == (to - 1) // 2 else 3
            assert came[14 + 8] == 64 - hops
    network.hosts["h1"].send(framed(ipv4(1, "10.9.9.9")))
    assert not any(host.receive(1, SILENCE_S) for host in network.hosts.values())


def test_basic_tunnel(start: Start) -> None:
    network = start("basic_tunnel")
    for to in (2, 3):
        sent = framed(bytes([8, 0, 0, to]) + ipv4(1, 1), 0x1212)
        network.hosts["h1"].send(sent)
        assert network.hosts[f"h{to}"].receive(1, LONG_S) == [sent]


def test_calc(start: Start) -> None:
    network = start("calc")
    operators: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "&": lambda a, b: a & b,
        "|": lambda a, b: a | b,
        "^": lambda a, b: a ^ b,
    }
    random = Random(1)
    for operator, compute in operators.items():
        a, b = random.getrandbits(32), random.getrandbits(32)
        asked = b"P4\x01" + operator.encode() + a.to_bytes(4) + b.to_bytes(4)
        network.hosts["h1"].send(framed(asked + bytes(4), 0x1234))
        [answer] = network.hosts["h1"].receive(1, LONG_S)
        assert answer[14:] == asked + (compute(a, b) & 0xFFFFFFFF).to_bytes(4)


def test_ecn(start: Start) -> None:
    network = start("ecn")
    network.hosts["h1"].send(framed(ipv4(1, 2, tos=1)))
    [came] = network.hosts["h2"].receive(1, LONG_S)
    assert (came[:6], came[15]) == (bytes.fromhex("080000000202"), 1)  # no queue, no mark


def test_firewall(start: Start) -> None:
    network = start("firewall", "pod-topo/topology.json")
    h1, h3 = network.hosts["h1"], network.hosts["h3"]
    from_outside = framed(ipv4(3, 1, TCP, tcp(80, 1234, 2)), source=3)
    h3.send(from_outside)
    assert h1.receive(1, SILENCE_S) == []
    h1.send(framed(ipv4(1, 3, TCP, tcp(1234, 80, 2))))
    assert len(h3.receive(1, LONG_S)) == 1
    h3.send(from_outside)
    assert len(h1.receive(1, LONG_S)) == 1


def test_link_monitor(start: Start) -> None:
    network = start("link_monitor", "pod-topo/topology.json")
    ports = (4, 1, 4, 1, 3, 2, 3, 2, 1)  # around all switches, and back
    network.hosts["h1"].send(framed(bytes([0]) + bytes(ports), 0x812, to=b"\xff" * 6))
    [came] = network.hosts["h1"].receive(1, LONG_S)
    assert came[14] == len(ports)


def test_load_balance(start: Start) -> None:
    network, flows = start("load_balance"), 64
    network.hosts["h1"].send(
        *(framed(ipv4(1, "10.0.0.1", TCP, tcp(port, 80, 2)), to=bytes.fromhex("000000000001")) for port in range(flows))
    )
    seen = [len(network.hosts[name].receive(flows, 2 * SILENCE_S)) for name in ("h2", "h3")]
    assert sum(seen) == flows
    assert min(seen) > flows / 8


def test_mri(start: Start) -> None:
    network = start("mri")
    network.hosts["h1"].send(framed(ipv4(1, 2, more=bytes([31, 4, 0, 0]))))
    [came] = network.hosts["h2"].receive(1, LONG_S)
    assert (came[14], came[34], came[37]) == (0x40 | 6 + 2 * 2, 31, 2)  # two switches


def test_multicast(start: Start) -> None:
    network = start("multicast", "sig-topo/topology.json")
    sent = framed(ipv4(1, 2), to=b"\xff" * 6)
    network.hosts["h1"].send(sent)
    assert [network.hosts[f"h{to}"].receive(1, LONG_S) for to in (2, 3)] == [[sent]] * 2
    assert network.hosts["h4"].receive(1, SILENCE_S) == []  # its port is not in the group
    network.hosts["h1"].send(framed(ipv4(1, 3), to=MAC[3]))
    assert len(network.hosts["h3"].receive(1, LONG_S)) == 1


def test_qos(start: Start) -> None:
    network = start("qos")
    classes = []
    for protocol in (TCP, UDP):
        network.hosts["h1"].send(framed(ipv4(1, 2, protocol, bytes(20), tos=1)))
        [came] = network.hosts["h2"].receive(1, LONG_S)
        classes.append(came[15] >> 2)
    assert classes == [44, 46]


def test_source_routing(start: Start) -> None:
    network = start("source_routing")
    for ports, to in (((2, 1), 2), ((3, 1), 3), ((2, 3, 1), 3)):
        stack = b"".join((port | (at == len(ports) - 1) << 15).to_bytes(2) for at, port in enumerate(ports))
        network.hosts["h1"].send(framed(stack + ipv4(1, to), 0x1234))
        [came] = network.hosts[f"h{to}"].receive(1, LONG_S)
        assert came[12:15] == b"\x08\x00\x45"
        assert came[14 + 8] == 64 - len(ports)


@pytest.mark.timeout(300)
def test_p4runtime(start: Start, tmp_path: Path) -> None:
    """Its controller loads the program, and builds a tunnel each way; it prints their counters every two seconds."""
    network = start("p4runtime", first_grpc=FIRST_GRPC)
    with controller(tmp_path / "exercises" / "p4runtime") as said:
        assert says(said, "Reading tunnel counters"), said()
        for source, to in ((1, 2), (2, 1)):
            network.hosts[f"h{source}"].send(framed(ipv4(source, to), source=source))
            [came] = network.hosts[f"h{to}"].receive(1, LONG_S)
            assert came[:6] + came[12:14] == MAC[to] + b"\x08\x00"
        for line in (
            "s1 MyIngress.ingressTunnelCounter 100: 1 packets",
            "s1 MyIngress.egressTunnelCounter 200: 1 packets",
        ):
            assert says(said, line), said()


@pytest.mark.timeout(300)
def test_flowcache(start: Start, tmp_path: Path) -> None:
    """Its controller gets the first packet of a flow at each switch, sends it on, and adds an entry that ends idle."""
    network = start("flowcache", first_grpc=FIRST_GRPC)
    h1, h2 = network.hosts["h1"], network.hosts["h2"]

    def crosses() -> list[bytes]:
        h1.send(framed(ipv4(1, 2)))
        return h2.receive(1, patience(3))

    def added(name: str) -> bool:
        return f"For switch {name} flow (SA=10.0.1.1, DA=10.0.2.2, proto=17) added table entry" in said()

    def is_changed() -> bool:
        """Return whether entries of both switches have changed a packet."""
        return [(one[:6], one[15] >> 2, one[14 + 8]) for one in crosses()] == [(MAC[2], 5, 64 - 2)]

    with controller(tmp_path / "exercises" / "flowcache") as said:
        assert says(said, "on s3"), said()
        assert eventually(crosses), said()  # the controller may not have made its clone sessions yet
        assert eventually(lambda: added("s1") and added("s2")), said()
        assert eventually(is_changed), said()
        for name in ("s1", "s2"):
            assert says(said, f"Deleted flow_cache entry on {name}."), said()


def test_every_exercise_is_named_here() -> None:
    exercises = {path.name for path in (Path(CLONE) / "exercises").iterdir() if path.is_dir()}
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert exercises <= tested
