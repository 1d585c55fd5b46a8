"""Switches and hosts that run now, over UDP, in one process: by hand, from a file, by the command."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from support.timing import eventually, patience
from switchsum_protocol.errors import SwitchsumError, UsageError
from switchsum_switch import Switch
from switchsum_switch.live.ends import PcapEnd, frames
from switchsum_switch.live.file import read_network
from switchsum_switch.live.network import LiveNetwork
from switchsum_switch.messages.p4runtime import parse_p4info, v1
from switchsum_switch.wires.packetsocket import open_packet_socket

from .p4runtime_rig import Client
from .test_pytest_plugin import run
from .test_switch_api import FORWARDER, files

ROOT: Final = Path(__file__).parents[2]
EXAMPLE: Final = ROOT / "examples" / "networks" / "two-switches.json"
LONG_S: Final = patience(10)
NAMES: Final = {"h1": 1, "h2": 2, "h3": 3}


def frame(to: int, length: int = 64) -> bytes:
    return bytes.fromhex(f"02000000000{to} 020000000009") + bytes(length - 12)


def forwarder(**options: Any) -> Switch:
    return Switch.from_file(*files("solution", FORWARDER), **options)


@pytest.fixture
def network() -> Iterator[LiveNetwork]:
    with LiveNetwork() as network:
        yield network


def total(network: LiveNetwork, switch: str, name: str) -> dict[int, int]:
    return {port: counts[name] for port, counts in network.counts()[switch].items()}


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_entries_are_written_by_name_while_frames_pass(network: LiveNetwork, engine: str) -> None:
    s1 = network.switch("s1", forwarder(engine=engine))
    h1, h2 = network.host("h1"), network.host("h2")
    network.link("h1", "s1", port=4)
    network.link("s1", "h2", port=7)
    network.start()
    h1.send(frame(2))
    assert eventually(lambda: total(network, "s1", "rx_frames") == {4: 1, 7: 0})
    assert h2.receive(timeout_s=0.05) == []
    s1.tables["stations"].insert({"hdr.ethernet.destination": "02:00:00:00:00:02"}, "forward", port=7)
    sent = [frame(2, length) for length in (14, 60, 1514, 9000)]
    h1.send(*sent)
    assert h2.receive(4, LONG_S) == sent
    assert eventually(lambda: total(network, "s1", "tx_frames") == {4: 0, 7: 4})
    assert total(network, "s1", "rx_bytes") == {4: 64 + sum(map(len, sent)), 7: 0}
    assert network.beyond("s1", 7) == "h2"


@pytest.mark.parametrize("is_bare", [False, True])
def test_a_controller_writes_entries(network: LiveNetwork, is_bare: bool) -> None:
    """And loads the program, if the switch has none."""
    loaded = forwarder(engine="interpreter")
    if is_bare:
        network.bare_switch("s1", device_id=3)
    else:
        network.switch("s1", loaded, device_id=3)
    hosts = [network.host("h1"), network.host("h2")]
    for number, host in enumerate(hosts, start=1):
        network.link(host.name, "s1", port=number)
    network.start()
    client = Client(network.addresses["s1"], election_id=1, device_id=3)
    client.arbitrate()
    if is_bare:
        config = v1.ForwardingPipelineConfig(p4info=parse_p4info(loaded.p4info), p4_device_config=loaded.program)
        action = v1.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        client.call("SetForwardingPipelineConfig", action=action, config=config)
    answer = client.call("GetForwardingPipelineConfig")
    [table] = answer.config.p4info.tables
    action = next(one for one in answer.config.p4info.actions if one.preamble.alias == "forward")
    entry = v1.TableEntry(table_id=table.preamble.id)
    entry.match.add(field_id=1).exact.value = frame(2)[:6]
    entry.action.action.action_id = action.preamble.id
    entry.action.action.params.add(param_id=1, value=b"\2")
    client.insert(table_entry=entry)
    client.close()
    hosts[0].send(frame(2))
    assert hosts[1].receive(1, LONG_S) == [frame(2)]
    if not is_bare:
        assert [str(one) for one in loaded.tables["stations"].entries()] == [
            "hdr.ethernet.destination=02:00:00:00:00:02 -> SwitchIngress.forward(port=2)"
        ]


def test_the_example_floods_and_forwards() -> None:
    with read_network(EXAMPLE) as network:
        network.start()
        h1, h2, h3 = (network.hosts[name] for name in NAMES)
        h1.send(frame(2))
        assert [h2.receive(1, LONG_S), h3.receive(1, LONG_S)] == [[frame(2)]] * 2
        h2.send(frame(1))
        assert h1.receive(1, LONG_S) == [frame(1)]
        assert h3.receive(timeout_s=0.05) == []
    assert total(network, "s2", "tx_frames") == {1: 1, 2: 1}


def test_frames_that_go_round_for_ever_do_not_keep_a_network_from_its_end(network: LiveNetwork) -> None:
    """Two switches with two cables between them flood: a storm, as on real ones."""
    for name in ("s1", "s2"):
        switch = network.switch(name, forwarder())
        switch.multicast.set(1, [1, 2, 3])
        switch.tables["stations"].set_default("flood", group=1)
    network.host("h1")
    network.link("s1", "s2", port=1, other_port=1)
    network.link("s1", "s2", port=2, other_port=2)
    network.link("h1", "s1", port=3)
    network.start()
    network.hosts["h1"].send(frame(2))
    assert eventually(lambda: total(network, "s2", "rx_frames")[1] > 1000)
    network.close()


@pytest.mark.parametrize("seed", range(6))
def test_in_a_random_tree_each_host_gets_what_another_one_floods_once(network: LiveNetwork, seed: int) -> None:
    random = Random(seed)
    switches = [f"s{number}" for number in range(random.randint(1, 5))]
    for number, name in enumerate(switches):
        network.switch(name, forwarder())
        if number:
            network.link(name, random.choice(switches[:number]))
    hosts = [network.host(f"h{number}") for number in range(random.randint(2, 6))]
    for host in hosts:
        network.link(host.name, random.choice(switches), port=random.choice((None, random.randrange(300, 500))))
    for name, switch in network.switches.items():
        switch.multicast.set(1, list(network.counts()[name]))
        switch.tables["stations"].set_default("flood", group=1)
    network.start()
    for sender in hosts:
        sent = [random.randbytes(random.choice((14, 64, 64, 1514))) for _ in range(5)]
        sender.send(*sent)
        for host in hosts:
            assert host.receive(5 if host is not sender else 0, LONG_S) == (sent if host is not sender else [])
    assert [host.receive(1, 0.0) for host in hosts] == [[] for _ in hosts]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda network: network.host("s1"), "two nodes have the name s1"),
        (lambda network: network.link("s1", "s1"), "both ends of a link are s1"),
        (lambda network: network.link("h1", "h2"), "h1 and h2 are hosts"),
        (lambda network: network.link("h1", "s9"), "there is no node s9"),
        (lambda network: network.link("h1", "s1", port=512), "s1 has no port 512"),
        (lambda network: network.link("h1", "s1", port=255), "s1 has no port 255"),
        (lambda network: [network.link(name, "s1", port=1) for name in ("h1", "h2")], "port 1 of s1 has two links"),
        (lambda network: [network.link("h1", "s1") for _ in range(2)], "host h1 has a link already"),
        (lambda network: network.link("h1", "s1", through="udp:1"), "a UDP peer is udp:"),
        (lambda network: network.hosts["h1"].send(b"x"), "host h1 has no link here"),
        (lambda network: [network.start(), network.start()], "runs already"),
        (lambda network: network.beyond("s1", 1), "port 1 of s1 has no link"),
        (lambda network: [network.link("h1", "s1"), network.hosts["h1"].send(bytes(70_000))], "h1 cannot send 70000"),
    ],
)
def test_networks_that_cannot_be_are_refused(network: LiveNetwork, build: Any, reason: str) -> None:
    network.switch("s1", forwarder(engine="interpreter"))
    network.host("h1")
    network.host("h2")
    with pytest.raises(SwitchsumError, match=reason):
        build(network)


def test_a_busy_address_leaves_nothing_open(network: LiveNetwork) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        network.switch("s1", forwarder(engine="interpreter"))
        network.switch("s2", forwarder(engine="interpreter"), listen=f"127.0.0.1:{busy.getsockname()[1]}")
        with pytest.raises(SwitchsumError, match="cannot listen on"):
            network.start()
        assert network.addresses == {}


def described(**changes: Any) -> dict[str, Any]:
    """Return a network with one switch, and with changes of its switch."""
    program, p4info = (str(path) for path in files("solution", FORWARDER))
    return {
        "hosts": {"h1": {"ip": "10.0.1.1/24", "mac": "02:00:00:00:00:01", "commands": []}, "h2": {}},
        "switches": {"s1": {"bmv2_json": program, "p4info": p4info, **changes}},
        "links": [["h1", "s1-p1"], ["h2", "s1-p2", "0", 0.5]],
    }


def entry(**changes: Any) -> dict[str, Any]:
    made = {"table": "stations", "match": {"hdr.ethernet.destination": [5]}, "action_name": "forward"}
    return {**made, "action_params": {"port": 2}, **changes}


def test_the_tutorials_files_are_read(tmp_path: Path) -> None:
    """Their switches name a file, whose paths begin where the exercise lies; keys may be lists."""
    document = described()
    runtime = {"target": "bmv2", **document["switches"]["s1"], "table_entries": [entry()]}
    (tmp_path / "topo").mkdir()
    (tmp_path / "topo" / "s1-runtime.json").write_text(json.dumps(runtime))
    document["switches"]["s1"] = {"runtime_json": "topo/s1-runtime.json"}
    path = tmp_path / "topo" / "topology.json"
    path.write_text(json.dumps(document))
    network = read_network(path, folder=tmp_path, engine="interpreter")
    assert len(list(network.switches["s1"].tables["stations"].entries())) == 1
    network.close()


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "names with values are expected"),
        ({"switch": {}}, "there is no field 'switch'"),
        ({**described(), "links": [["h1"]]}, "a link has two ends"),
        ({**described(), "links": ["h1"]}, "a link: a list is expected"),
        ({**described(), "links": [["h1", "s1-q1"]]}, "'s1-q1' is no end of a link"),
        ({**described(), "links": [["h1", "s2-p1"]]}, "'s2-p1' is no end of a link"),
        ({**described(), "links": [["h1", "h2"]]}, "h1 and h2 are hosts"),
        ({**described(), "hosts": {"h1": {"bridge": 1}}}, "host h1: there is no field 'bridge'"),
        ({**described(), "hosts": {"h1": {"udp": "127.0.0.1"}}, "links": [["h1", "s1-p1"]]}, "a UDP peer is udp:"),
        (
            {**described(), "hosts": {"h1": {"udp": "x", "interface": "y"}}},
            "host h1 has udp and interface: it is one of them",
        ),
        (described(bmv2_json="/nowhere.json"), "/nowhere.json: No such file"),
        (described(p4info="/nowhere.txt"), "/nowhere.txt: No such file"),
        (described(runtime_json="nowhere.json"), "nowhere.json: No such file"),
        (described(port=1), "switch s1: there is no field 'port'"),
        (described(device_id="x"), "switch s1: device_id 'x' is no number"),
        (described(table_entries={}), "table_entries of switch s1: a list is expected"),
        (described(table_entries=[entry(table="routes")]), "switch s1, table_entries 1: .*routes"),
        (described(table_entries=[entry(), entry()]), "switch s1, table_entries 2: .*"),
        (described(table_entries=[entry(action_params={})]), "switch s1, table_entries 1: .*port"),
        (described(table_entries=[{"table": "stations"}]), "switch s1, table_entries 1: action_name is missing"),
        (described(table_entries=[entry(match=[1])]), "switch s1, table_entries 1: "),
        (described(multicast_group_entries=[{"replicas": []}]), "multicast_group_id is missing"),
        (described(multicast_group_entries=[{"multicast_group_id": 1, "replicas": [1]}]), "switch s1, multicast"),
        ({**described(), "switches": {"s1": {"table_entries": []}}}, "switch s1 has table_entries and no program"),
        (described(cpu_port="2"), "s1 has no port 2 for a link"),
    ],
)
def test_files_that_describe_no_network_are_refused_in_one_line(document: Any, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=reason) as refused:
        read_network(path, engine="interpreter")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("name", "text"), [("x.json", "{"), ("x.yaml", "a: [\n - b"), ("x.json", "\udcff")])
def test_files_that_are_no_text_of_their_kind_are_refused(name: str, text: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=name) as refused:
        read_network(tmp_path / name)
    assert "\n" not in str(refused.value)


@contextmanager
def command(document: dict[str, Any], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the command with JSON and yield it when the network runs; interrupt it at the end."""
    (folder / "network.json").write_text(json.dumps(document))
    line = [sys.executable, "-m", "switchsum", "network", str(folder / "network.json"), "--grpc", "0", "--json"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        started = json.loads("".join(iter(process.stdout.readline, "]\n")) + "]")
        assert [node["node"] for node in started] == ["s1", "h1", "h2"]
        yield process
    finally:
        process.kill()
        process.communicate()


def counted(process: subprocess.Popen[str]) -> list[tuple[Any, ...]]:
    """Interrupt the command; return what its ports have counted."""
    process.send_signal(signal.SIGINT)
    text, errors = process.communicate(timeout=patience(60))
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    return [(one["port"], one["to"], one["rx_frames"], one["tx_frames"]) for one in json.loads(text)]


def ends(count: int) -> list[socket.socket]:
    made = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for end in made:
        end.bind(("127.0.0.1", 0))
        end.settimeout(LONG_S)
    return made


def text_of(end: socket.socket) -> str:
    return "{}:{}".format(*end.getsockname())


FORWARDS: Final = [entry(match={"hdr.ethernet.destination": "02:00:00:00:00:02"})]


def test_the_command_runs_until_it_is_interrupted_and_shows_the_counts(tmp_path: Path) -> None:
    document = described(table_entries=FORWARDS)
    free, hosts = ends(2), ends(2)
    names = [f"{text_of(ours)}/{text_of(theirs)}" for ours, theirs in zip(free, hosts, strict=True)]
    document["hosts"] = {"h1": {"udp": names[0]}, "h2": {"udp": f"udp:{names[1]}"}}
    hosts[0].connect(free[0].getsockname())
    for end in free:
        end.close()
    with command(document, tmp_path) as process:
        hosts[0].send(frame(2))
        assert hosts[1].recv(2000) == frame(2)
        assert counted(process) == [(1, "h1", 1, 0), (2, "h2", 0, 1)]
    for end in hosts:
        end.close()


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_a_host_may_be_behind_an_interface(tmp_path: Path) -> None:
    for line in (
        *("link add near type veth peer name far", "link set near up", "link set far up", "link set lo up"),
        *("link set near addrgenmode none", "link set far addrgenmode none"),
    ):
        subprocess.run(["ip", *line.split()], check=True)
    document = described(table_entries=FORWARDS)
    [free], [host] = ends(1), ends(1)
    document["hosts"] = {"h1": {"udp": f"{text_of(free)}/{text_of(host)}"}, "h2": {"interface": "near"}}
    host.connect(free.getsockname())
    free.close()
    with host, open_packet_socket("far") as far, command(document, tmp_path) as process:
        far.settimeout(LONG_S)
        host.send(frame(2, 100))
        while far.recv(2000) != frame(2, 100):  # the kernel sends frames of its own
            pass
        assert counted(process)[1][3] == 1


TEST: Final = """
def test_a_network(p4_network):
    network = p4_network("network.json", engine="interpreter")
    network.hosts["h1"].send(bytes(5) + b"\\5" + bytes(60))
    assert network.hosts["h2"].receive(1, 60) == [bytes(5) + b"\\5" + bytes(60)]
"""


def test_the_fixture_starts_and_ends_a_network(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text(json.dumps(described(table_entries=[entry()])))
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["switchsum_switch.pytest_plugin"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_own.py").write_text(TEST)
    assert "1 passed" in run(tmp_path, "-W", "error")


def capture(path: Path, frames: list[bytes], *, gap_s: float = 0.0, form: str = "<", magic: int = 0xA1B2C3D4) -> Path:
    parts = 1e9 if magic == 0xA1B23C4D else 1e6
    written = struct.pack(f"{form}IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    for number, one in enumerate(frames):
        seconds, part = divmod(round((1000 + number * gap_s) * parts), round(parts))
        written += struct.pack(f"{form}IIII", seconds, part, len(one), len(one)) + one
    path.write_bytes(written)
    return path


@pytest.mark.parametrize("form", ["<", ">"])
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D])
def test_capture_files_of_all_kinds_are_read(tmp_path: Path, form: str, magic: int) -> None:
    random = Random(f"{form}{magic}")
    sent = [random.randbytes(random.randrange(14, 9000)) for _ in range(random.randrange(1, 50))]
    path = capture(tmp_path / "x.pcap", sent, gap_s=0.25, form=form, magic=magic)
    assert [one for _, one in frames(path)] == sent
    assert [time_s for time_s, _ in frames(path)] == [1000 + number * 0.25 for number in range(len(sent))]


def test_capture_files_are_hosts(network: LiveNetwork, tmp_path: Path) -> None:
    """One sends, one records, and the record can be played again."""
    sent = [frame(2, 60 + number) for number in range(100)]
    s1 = network.switch("s1", forwarder())
    s1.tables["stations"].insert({"hdr.ethernet.destination": "02:00:00:00:00:02"}, "forward", port=2)
    player = PcapEnd(capture(tmp_path / "in.pcap", sent, gap_s=0.001))
    recorder = PcapEnd(capture(tmp_path / "none.pcap", []), tmp_path / "out.pcap")
    for number, (name, end) in enumerate({"h1": player, "h2": recorder}.items(), start=1):
        network.host(name)
        network.attach(name, end)
        network.link(name, "s1", port=number)
    network.start()
    assert eventually(lambda: recorder.received == len(sent))
    assert player.played.is_set()
    with pytest.raises(UsageError, match=r"host h1 is pcap:.*in\.pcap"):
        network.hosts["h1"].send(frame(2))
    network.close()
    assert (player.sent, player.received, recorder.sent) == (len(sent), 0, 0)
    assert [one for _, one in frames(tmp_path / "out.pcap")] == sent
    assert total(network, "s1", "tx_frames") == {1: 0, 2: len(sent)}


def test_a_capture_file_keeps_its_times(network: LiveNetwork, tmp_path: Path) -> None:
    s1 = network.switch("s1", forwarder(engine="interpreter"))
    s1.tables["stations"].insert({"hdr.ethernet.destination": "02:00:00:00:00:02"}, "forward", port=2)
    network.host("h1")
    path = capture(tmp_path / "in.pcap", [frame(2)] * 4, gap_s=1.0)
    network.attach("h1", PcapEnd(path, pace=10.0, after_s=0.1))
    h2 = network.host("h2")
    network.link("h1", "s1", port=1)
    network.link("h2", "s1", port=2)
    began = time.monotonic()
    network.start()
    assert h2.receive(4, LONG_S) == [frame(2)] * 4
    assert time.monotonic() - began > 0.4  # three gaps of a tenth, and a tenth before them


def test_a_network_ends_while_a_capture_file_is_played(network: LiveNetwork, tmp_path: Path) -> None:
    network.switch("s1", forwarder(engine="interpreter"))
    network.host("h1")
    end = PcapEnd(capture(tmp_path / "in.pcap", [frame(2)] * 3, gap_s=3600.0))
    network.attach("h1", end)
    network.link("h1", "s1")
    network.start()
    assert eventually(lambda: end.sent == 1)
    network.close()
    assert not end.played.is_set()


def head(kind: int = 1) -> bytes:
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, kind)


def one_frame(length: int, here: int) -> bytes:
    return struct.pack("<IIII", 1, 1, here, length) + bytes(here)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"", "the file is empty"),
        (b"\xd4\xc3", "this is no pcap file"),
        (head()[:20], "this is no pcap file"),
        (b"GIF89a" * 9, "this is no pcap file"),
        (b"\x0a\x0d\x0d\x0a" + bytes(30), "pcapng is not read here"),
        (head(kind=113), "of link type 113, not of Ethernet"),
        (head() + one_frame(60, 60)[:-1], "ends within frame 1"),
        (head() + one_frame(60, 60) + bytes(9), "ends within frame 2"),
        (head() + one_frame(1514, 96), "of frame 1 only 96 of 1514 bytes"),
        (head() + one_frame(13, 13), "frame 1 has 13 bytes, and a port takes 14 to 10240"),
        (head() + one_frame(10241, 10241), "frame 1 has 10241 bytes"),
    ],
)
def test_files_that_are_no_captures_are_refused_in_one_line(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=reason) as refused:
        PcapEnd(path)
    assert "\n" not in str(refused.value)


def test_a_damaged_capture_is_refused_or_read_as_frames(tmp_path: Path) -> None:
    random, path, refused = Random(64), tmp_path / "x.pcap", 0
    whole = capture(path, [random.randbytes(random.randrange(14, 300)) for _ in range(20)]).read_bytes()
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        path.write_bytes(damaged[: random.choice((len(damaged), random.randrange(len(damaged))))])
        try:
            PcapEnd(path)
        except UsageError as error:
            refused += "\n" not in str(error)
    assert 100 < refused < 500


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pcap": "x.pcap", "pace": -1}, "pace and after_s are numbers from 0"),
        ({"pcap": "x.pcap", "pace": "fast"}, "host h1: pace 'fast' is no number"),
        ({"pcap": "x.pcap", "after_s": True}, "host h1: after_s True is no number"),
        ({"pcap": "x.pcap", "tap": "t"}, "host h1 has pcap and tap: it is one of them"),
        ({"pcap": "x.pcap", "record": "no/where.pcap"}, "where.pcap: No such file"),
        ({"pcap": "x.pcap", "record": "../{folder}/x.pcap"}, "x.pcap: the file would be written over"),
        ({"record": "y.pcap"}, "host h1 has record and no pcap"),
        ({"tap": "a" * 16}, "is no name of a TAP device"),
        ({"tap": "a/b"}, "is no name of a TAP device"),
        ({"tap": "t", "mac": "01:00:00:00:00:01"}, "is no Ethernet address of a host"),
        ({"tap": "t", "mac": "x"}, "is no Ethernet address of a host"),
        ({"tap": "t", "ip": "10.0.0.300/8"}, "is no IPv4 address with a prefix"),
    ],
)
def test_hosts_that_cannot_be_are_refused_in_one_line(fields: dict[str, Any], reason: str, tmp_path: Path) -> None:
    capture(tmp_path / "x.pcap", [frame(2)])
    path = tmp_path / "network.json"
    text = json.dumps({**described(), "hosts": {"h1": fields, "h2": {}}})
    path.write_text(text.replace("{folder}", tmp_path.name))
    with pytest.raises(UsageError, match=reason) as refused:
        read_network(path, engine="interpreter")
    assert "\n" not in str(refused.value)


def test_the_command_plays_and_records(tmp_path: Path) -> None:
    document = described(table_entries=FORWARDS)
    capture(tmp_path / "in.pcap", [frame(2)] * 5)
    capture(tmp_path / "none.pcap", [])
    document["hosts"] = {"h1": {"pcap": "in.pcap", "pace": 0}, "h2": {"pcap": "none.pcap", "record": "out.pcap"}}
    with command(document, tmp_path) as process:
        assert eventually(lambda: len(list(frames(tmp_path / "out.pcap"))) == 5)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=patience(60))
    ports, hosts = (json.loads(part + "]") for part in text.split("]")[:2])
    assert [(one["port"], one["rx_frames"], one["tx_frames"]) for one in ports] == [(1, 5, 0), (2, 0, 5)]
    assert [(one["host"], one["tx_frames"], one["rx_frames"]) for one in hosts] == [("h1", 5, 0), ("h2", 0, 5)]


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_a_host_may_be_this_machines_network_stack(tmp_path: Path) -> None:
    """The kernel asks for an address, gets an answer, and sends a datagram; the answer comes to its socket."""
    document = described(
        table_entries=[
            entry(match={"hdr.ethernet.destination": "02:00:00:00:00:02"}),
            entry(match={"hdr.ethernet.destination": "02:00:00:00:00:01"}, action_params={"port": 1}),
            {"table": "stations", "default_action": True, "action_name": "forward", "action_params": {"port": 2}},
        ]
    )
    document["hosts"]["h1"] = {"tap": "near", "ip": "10.0.1.1/24", "mac": "02:00:00:00:00:01"}
    path = tmp_path / "network.json"
    path.write_text(json.dumps(document))
    with read_network(path, engine="interpreter") as network, socket.socket(type=socket.SOCK_DGRAM) as own:
        network.start()
        h2 = network.hosts["h2"]
        own.settimeout(LONG_S)
        own.sendto(b"hello", ("10.0.1.2", 7))
        here, there = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
        while (asked := h2.receive(1, LONG_S)[0])[12:14] != b"\x08\x06":  # the kernel has more to say
            pass
        assert asked[22:28] == here
        assert asked[28:32] + asked[38:42] == bytes((10, 0, 1, 1, 10, 0, 1, 2))
        h2.send(here + there + b"\x08\x06" + asked[14:20] + b"\0\2" + there + asked[38:42] + here + asked[28:32])
        while not (datagram := h2.receive(1, LONG_S)[0]).endswith(b"hello") or datagram[12:14] != b"\x08\x00":
            pass
        back = bytearray(here + there + datagram[12:])
        back[26:30], back[30:34], back[34:36], back[36:38] = back[30:34], back[26:30], back[36:38], back[34:36]
        back[40:42] = b"\0\0"  # no checksum
        h2.send(bytes(back))
        assert own.recv(100) == b"hello"
    assert not Path("/sys/class/net/near").exists()


def test_without_root_a_tap_device_is_refused_in_one_line() -> None:
    """As another user, in a process of its own: the test itself may be root."""
    code = """
import os
from switchsum_switch.live.ends import TapEnd
if not os.getuid():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
TapEnd("sumtap0")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "TransportError: cannot make the TAP device sumtap0: " in done.stderr.splitlines()[-1]


def test_two_networks_share_a_link(network: LiveNetwork) -> None:
    """As two commands do, in which a switch of the other one is a host."""
    free = ends(2)
    one, other = (text_of(end) for end in free)
    for end in free:
        end.close()
    with LiveNetwork() as second:
        for half, name in ((network, "s1"), (second, "s2")):
            switch = half.switch(name, forwarder(engine="interpreter"))
            switch.tables["stations"].insert({"hdr.ethernet.destination": "02:00:00:00:00:02"}, "forward", port=2)
            half.host("far")
        network.host("h1")
        network.link("h1", "s1", port=1)
        network.link("far", "s1", port=2, through=f"udp:{one}/{other}")
        h2 = second.host("h2")
        second.link("far", "s2", port=1, through=f"udp:{other}/{one}")
        second.link("h2", "s2", port=2)
        network.start()
        second.start()
        network.hosts["h1"].send(frame(2))
        assert h2.receive(1, LONG_S) == [frame(2)]
