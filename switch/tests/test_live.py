"""Switches and hosts that run now, over UDP, in one process: by hand, from a file, by the command."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from support.timing import eventually, patience
from switchsum_protocol.errors import SwitchsumError, UsageError
from switchsum_switch import Switch
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
        ({**described(), "hosts": {"h1": {"tap": 1}}}, "host h1: there is no field 'tap'"),
        ({**described(), "hosts": {"h1": {"udp": "127.0.0.1"}}, "links": [["h1", "s1-p1"]]}, "a UDP peer is udp:"),
        ({**described(), "hosts": {"h1": {"udp": "x", "interface": "y"}}}, "host h1 has udp and interface"),
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
