"""Links between switches, found by LLDP: over embedded switches with cables, and by hand what cables may do wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum_controller.switches import discovery, lldp
from switchsum_controller.switches.lldp import LOST_BYTES, End
from switchsum_controller.switches.neighbours import (
    PERIOD_S,
    PROBED_PORTS,
    TTL_S,
    FoundLink,
    Neighbours,
    is_bare,
    to_yaml,
    with_tree,
)
from switchsum_controller.switches.switch_session import Session
from switchsum_controller.tables.entries import Change, Write
from switchsum_controller.tables.names import lldp_entry
from switchsum_protocol import rpc
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_protocol.frame import LANE_BYTES, Kind
from switchsum_protocol.wire import parse_frame

from .rig import LANES, EmbeddedSwitch, RunningController, Worker, admit, eventually, program

KEY = b"k" * 32
NAMES = ("left", "middle", "right")
CABLES = {("left", 4): ("middle", 1), ("middle", 2): ("right", 3)}
HOST_PORTS = {"left": 3, "right": 4}
"""Where a host is, which may hand frames on."""


class Net:
    """Three switches in a row, and a thread that carries what leaves a port to the other end of its cable."""

    def __init__(self, scratch: Path) -> None:
        self.switches = {}
        for name in NAMES:
            (scratch / name).mkdir()
            self.switches[name] = EmbeddedSwitch(scratch / name)
        self.cables = CABLES | {far: near for near, far in CABLES.items()}
        self.left: list[tuple[str, int, bytes]] = []
        """What has left other ports."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    @property
    def fleet(self) -> dict[str, dict[str, dict[str, str]]]:
        """The file that names switches and addresses alone."""
        return {"switches": {name: {"p4runtime": switch.address} for name, switch in self.switches.items()}}

    def _carry(self) -> None:
        while not self._stopping.wait(0.002):
            for name, switch in self.switches.items():
                sent = switch._switch.memory.sent
                frames = sent[:]
                del sent[: len(frames)]
                for port, frame in frames:
                    if (far := self.cables.get((name, port))) is not None:
                        self.switches[far[0]].send(far[1], frame)
                    else:
                        self.left.append((name, port, frame))

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        for switch in self.switches.values():
            switch.close()


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    made = Net(tmp_path_factory.mktemp("net"))
    yield made
    made.close()


def link(near: str, port: int, far: str, far_port: int) -> FoundLink:
    return FoundLink(ends=(End(switch=near, port=port), End(switch=far, port=far_port)))


ROW = [link("left", 4, "middle", 1), link("middle", 2, "right", 3)]


def test_a_controller_that_knows_addresses_alone_finds_a_tree_and_adds_over_it(net: Net, tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(net.fleet))
    fabric = discovery.load(path, program())
    assert fabric.home == "middle"
    assert fabric.parents == {"left": "middle", "right": "middle"}
    assert fabric.spreads_jobs
    assert fabric.switches["middle"].ports == {"left": 1, "right": 2}
    running = RunningController("", f"unix:{tmp_path}/controller", fabric=fabric)
    try:
        running.client.create_job(rpc.CreateJobRequest(job="a", workers=2, slots=2, timeout_s=600.0))
        workers = [Worker(running.client, net.switches[name], rank) for rank, name in enumerate(("left", "right"))]
        number = admit(workers).first_number
        net.left.clear()
        for worker in workers:
            worker.contribute(number, worker.rank + 1)
        eventually(lambda: len(results(net)) == 2)
        assert results(net) == {("left", 1): 3, ("right", 2): 3}
        eventually(lambda: len(running.client.links().links) == len(ROW))
        found = running.client.links()
        assert [(one.switch, one.port, one.far_switch, one.far_port, one.in_tree) for one in found.links] == [
            (*("left", 4, "middle", 1), True),
            (*("middle", 2, "right", 3), True),
        ]
        assert found.faults == []
        neighbours = running.controller.reconciler.neighbours
        eventually(lambda: neighbours.hosts == {"left": {1}, "middle": set(), "right": {2}})
        assert 1 not in dict(neighbours.frames("left"))
        at = ["--controller", f"unix:{tmp_path}/controller", "--json"]
        [tree] = json.loads(CliRunner().invoke(application(), ["tree", "list", *at]).stdout)
        assert (tree["job"], tree["root"], tree["switches"], tree["ranks"]) == ("a", "middle", 3, 2)
        switches = json.loads(CliRunner().invoke(application(), ["switch", "list", *at]).stdout)
        assert [(one["switch"], one["state"], one["trouble"]) for one in switches] == [
            (name, "settled", "") for name in ("middle", "left", "right")
        ]
        assert all(one["entries"] for one in switches)
        middle, left = (
            json.loads(CliRunner().invoke(application(), ["switch", "show", name, *at]).stdout)
            for name in ("middle", "left")
        )
        assert {key: middle[key] for key in switches[0]} == switches[0]
        [tree] = middle["trees"]
        assert (tree["job"], tree["ranks"], tree["above"], tree["below"]) == ("a", [], "", ["left", "right"])
        assert [(one["port"], one["far_switch"], one["far_port"]) for one in middle["links"]] == [
            (1, "left", 4),
            (2, "right", 3),
        ]
        assert [(one["ranks"], one["above"], one["below"]) for one in left["trees"]] == [([0], "middle", [])]
        link = json.loads(CliRunner().invoke(application(), ["link", "show", "middle", "left", *at]).stdout)
        assert [(one["switch"], one["port"], one["far_port"]) for one in link["links"]] == [("left", 4, 1)]
        assert [(one["job"], one["above"], one["below"]) for one in link["trees"]] == [("a", "middle", "left")]
        net.switches["left"].close()
        eventually(lambda: running.client.switches().switches[1].state == "away")
        assert running.client.switches().switches[1].trouble
        net.switches["left"]._start()
        eventually(lambda: [one.state for one in running.client.switches().switches] == ["settled"] * len(NAMES))
        assert CliRunner().invoke(application(), ["link", "list", *at]).exit_code == 0
    finally:
        running.stop()


def results(net: Net) -> dict[tuple[str, int], int]:
    packets = [(name, port, parse_frame(frame)) for name, port, frame in net.left]
    return {
        (name, port): int.from_bytes(packet.payload[:LANE_BYTES])
        for name, port, packet in packets
        if packet is not None and packet.header.kind == Kind.RESULT
    }


@pytest.fixture
def host(net: Net) -> Iterator[None]:
    """A host at two switches that hands frames on both ways."""
    left, right = HOST_PORTS.items()
    net.cables |= {left: right, right: left}
    yield
    del net.cables[left], net.cables[right]


@pytest.mark.usefixtures("host")
def test_a_host_that_hands_frames_on_is_no_link_where_its_ports_are_known(net: Net) -> None:
    assert len(discovery.discover(net.fleet, program()).links) == len(ROW) + 1  # it looks as a cable does
    given = net.fleet
    for name, port in HOST_PORTS.items():
        given["switches"][name]["stations"] = {"02:00:00:00:00:01": port}  # type: ignore[assignment]
    found = discovery.discover(given, program())
    assert (found.links, found.faults) == (tuple(ROW), ())


@pytest.mark.usefixtures("host")
def test_hosts_that_have_entries_on_a_switch_are_known_without_being_told(net: Net) -> None:
    for name, port in HOST_PORTS.items():
        switch = Session(program(), net.switches[name].address)
        switch.connect()
        entry = replace(lldp_entry(), match={"mac": 0x02_00_00_00_00_01}, params={"port": port})
        switch.write([[Write(change=Change.INSERT, item=entry)]])
        switch.close()
    found = discovery.discover(net.fleet, program())
    assert (found.links, found.faults) == (tuple(ROW), ())
    for one in net.switches.values():
        one.restart()


def test_a_switch_that_runs_another_program_keeps_it_and_is_named(net: Net) -> None:
    assert discovery.discover(net.fleet, program()).links == tuple(ROW)
    other = replace(program(), lanes_per_frame=2 * LANES, device_config=program().device_config + b" ")
    found = discovery.discover(net.fleet, other)
    assert (found.links, len(found.faults)) == ((), len(NAMES))
    assert all(
        (fault.switches, f"{name} at " in fault.text, "another program" in fault.text) == ([name], True, True)
        for name, fault in zip(NAMES, found.faults, strict=True)
    )
    left = Session(program(), net.switches["left"].address)
    assert left.connect() is False  # it has what it had
    left.close()


def test_the_command_prints_links_and_writes_a_topology_that_a_plan_is_made_of(net: Net, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    fleet, found = tmp_path / "fleet.json", tmp_path / "found.yaml"
    given = net.fleet
    for number, name in enumerate(("left", "right")):
        given["switches"][name]["stations"] = {f"02:00:00:00:00:0{number}": 1}  # type: ignore[assignment]
    fleet.write_text(json.dumps(given))
    run = partial(CliRunner().invoke, application())
    done = run(["topology", "discover", "--fleet", str(fleet), "-o", str(found), "--lanes", str(LANES)])
    assert (done.exit_code, done.stdout.splitlines()) == (0, [str(link) for link in ROW])
    assert "nothing is wrong" in run(["topology", "check", str(found)]).stdout
    assert "rate of the plan      1000 Mbit/s" in run(["tree", "plan", str(found)]).stdout
    given["switches"]["gone"] = {"p4runtime": f"unix:{tmp_path}/none"}
    fleet.write_text(json.dumps(given))
    done = run(["topology", "discover", "--fleet", str(fleet), "--lanes", str(LANES), "--json"])
    assert done.exit_code == 1
    assert len(json.loads(done.stdout)["links"]) == len(ROW)
    assert json.loads(done.stdout)["faults"][0].startswith("gone at unix:")


def heard(cables: list[tuple[tuple[str, int], str]]) -> Neighbours:
    """Return what was heard of frames: the port each left, and the switch to which it came."""
    found = Neighbours(("a", "b", "c"), KEY)
    for (name, port), hearer in cables:
        found.hear(hearer, lldp.build(End(switch=name, port=port), TTL_S, KEY)[LOST_BYTES:], 0.0)
    return found


BOTH = [(("a", 1), "b"), (("b", 2), "a")]


def test_a_link_goes_when_it_is_not_heard_any_more_and_comes_back() -> None:
    found = heard(BOTH)
    assert found.look(1.0) == ([link("a", 1, "b", 2)], [])
    assert found.news(1.0) == []
    assert found.is_due(1.0)
    assert not found.is_due(1.0 + PERIOD_S / 2)
    found.hear("b", lldp.build(End(switch="a", port=1), TTL_S, KEY)[LOST_BYTES:], 10.0)
    assert found.news(1.0 + TTL_S) == [
        "the link from port 1 of a to port 2 of b is gone",
        "b hears port 1 of a, and a hears no port of b: a link works one way, or a host hands frames on",
    ]
    assert found.news(2.0 + TTL_S) == []


@pytest.mark.parametrize(
    ("cables", "links", "fault", "switches"),
    [
        ([(("a", 1), "a")], 0, "port 1 of a leads back to a itself", {"a"}),
        ([*BOTH, (("a", 1), "c")], 0, "b and c both hear port 1 of a", {"a", "b", "c"}),
        (
            [*BOTH, (("a", 3), "b")],
            0,
            "ports 1 and 3 of a lead to b, port 2 of b to a: a port has one peer",
            {"a", "b"},
        ),
        ([*BOTH, (("a", 3), "b"), (("b", 4), "a")], 0, "leave one of them", {"a", "b"}),
        ([*BOTH, (("c", 3), "b")], 1, "c hears no port of b: a link works one way", {"b", "c"}),
    ],
    ids=["loop", "hub", "two claim one", "two links", "one way"],
)
def test_what_is_no_cable_with_two_ends_makes_no_link_and_is_told(
    cables: list[tuple[tuple[str, int], str]], links: int, fault: str, switches: set[str]
) -> None:
    found, faults = heard(cables).look(1.0)
    assert len(found) == links
    assert [set(one.switches) for one in faults if fault in one.text] == [switches], faults


def test_a_port_where_a_host_is_seen_later_is_no_link_any_more() -> None:
    found = heard(BOTH)
    assert [port for port, _ in found.frames("a")] == list(PROBED_PORTS)
    assert found.news(1.0) == []
    found.hosts = {"a": {1}}
    assert [port for port, _ in found.frames("a")] == [port for port in PROBED_PORTS if port != 1]
    assert found.news(1.0) == [
        "the link from port 1 of a to port 2 of b is gone",
        "b hears port 1 of a, where a host is: it hands frames on",
        "a hears port 2 of b, and b hears no port of a: a link works one way, or a host hands frames on",
    ]
    assert found.look(1.0 + TTL_S) == ([], [])


def test_frames_that_this_controller_has_not_built_are_not_believed() -> None:
    frame = lldp.build(End(switch="a", port=1), TTL_S, KEY)
    assert len(frame) >= lldp.LEAST_BYTES
    assert lldp.parse(frame[LOST_BYTES:], KEY) == (End(switch="a", port=1), TTL_S)
    for at in range(LOST_BYTES, len(frame)):
        changed = bytearray(frame)
        changed[at] ^= 1
        claim = lldp.parse(bytes(changed[LOST_BYTES:]), KEY)
        assert claim is None or claim == (End(switch="a", port=1), TTL_S), at  # a source or padding says nothing
        lldp.parse(frame[LOST_BYTES:at], KEY)
    assert lldp.parse(frame[LOST_BYTES:], b"another") is None


def test_a_bare_file_gets_the_lowest_tree_and_is_written_as_a_topology() -> None:
    given = {"switches": {name: {"p4runtime": f"unix:{name}"} for name in ("leaf1", "leaf2", "spine1", "spine2")}}
    assert is_bare(given)
    links = [link(f"leaf{leaf}", spine, f"spine{spine}", leaf) for leaf in (1, 2) for spine in (1, 2)]
    made = with_tree(given, [*links, link("leaf1", 9, "leaf2", 9)])
    # Both leaves end three links now, and the spines two: no switch of the fleet is further than one link from a leaf.
    assert {name: one.get("above") for name, one in made["switches"].items()} == {
        "leaf1": None, "leaf2": "leaf1", "spine1": "leaf1", "spine2": "leaf1",
    }  # fmt: skip
    assert not is_bare(made)
    with pytest.raises(LocalError, match="no link connects spine1, spine2 with leaf1"):
        with_tree(given, [link("leaf1", 9, "leaf2", 9)])
    topology = pytest.importorskip("switchsum.planning.topology")
    given["switches"]["leaf1"]["stations"] = {"02:00:00:00:00:01": 7}  # type: ignore[assignment]
    given["switches"]["leaf2"]["stations"] = {"02:00:00:00:00:02": 7}  # type: ignore[assignment]
    network, problems = topology.parse(to_yaml(given, links, 100.0))
    assert problems == []
    assert network.hosts == ("02:00:00:00:00:01", "02:00:00:00:00:02")
    assert {cable.mbit for cable in network.cables} == {100.0}
    assert len(network.cables) == 6


BARE = '{"switches": {"a": {"p4runtime": "unix:a"}, "b": {"p4runtime": "unix:b"}}}'


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        "[]",
        '{"switches": {"a": {}}}',
        '{"switches": {"a": {"p4runtime": 5}}}',
        BARE.replace("unix:b", "unix:a"),
        BARE.replace('"b": ', '"a": '),
        BARE.replace("}}}", '}}, "link_bytes": -1}'),
        BARE.replace("}}}", '}}, "tree": []}'),
        BARE.replace('"unix:b"', '"unix:b", "station": {}'),
    ],
)
def test_a_file_that_names_no_addresses_is_refused_before_switches_are_asked(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"fleet\.json"):
        discovery.read_fleet(path)
    with patch.object(discovery, "discover") as asked, pytest.raises(UsageError):
        discovery.load(path, program())
    assert not asked.called
