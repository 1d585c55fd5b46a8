"""A controller of three switches: jobs over a leaf, a root and a leaf, which are restarted while a job runs."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from switchsum.cli.draw import job_text
from switchsum.view.facts import gather
from switchsum.web.local import LocalSource
from switchsum_controller.jobs.job import Job, new_incarnation
from switchsum_controller.jobs.machines import Attachment
from switchsum_controller.jobs.registry import Jobs
from switchsum_controller.jobs.slots import SlotRange
from switchsum_controller.plan.plan import Identity, Settings, branches_of
from switchsum_controller.plan.windows import frames_held, most_in_flight
from switchsum_controller.tables.names import RECORD_RANK
from switchsum_controller.trees.fabric import MOST_TREES, Fabric, FabricSwitch, fabric_of_one, group_of, shared
from switchsum_controller.trees.fleet_file import load, parse
from switchsum_protocol import rpc
from switchsum_protocol.errors import NotAdmitted, SwitchLost, UsageError
from switchsum_protocol.frame import LANE_BYTES, Kind
from switchsum_protocol.wire import parse_frame
from switchsum_switch.wires.headers import Address

from .rig import SWITCH, EmbeddedSwitch, RunningController, Worker, admit, eventually

UP = 4
"""Port of a leaf towards the root."""
PLACES = (("left", 1), ("left", 2), ("right", 1))
"""Switch and port of each rank; the root has its leaves behind ports 1 and 2."""
BELOW = {"left": 1, "right": 2}
NAMES = ("root", "left", "right")


def fabric_at(addresses: dict[str, str]) -> Fabric:
    """Return a root and two leaves."""
    root = FabricSwitch(p4runtime=addresses["root"], address=SWITCH, ports=BELOW)
    leaves = {
        name: FabricSwitch(p4runtime=addresses[name], address=SWITCH, ports={"root": UP}) for name in ("left", "right")
    }
    return Fabric(switches={"root": root, **leaves}, parents=dict.fromkeys(leaves, "root"))


def three_levels_at(addresses: dict[str, str]) -> Fabric:
    """Return a root, an inner switch below it on each side, and a leaf below each of these."""
    inner = {"near": "left", "far": "right"}
    switches = {"root": FabricSwitch(p4runtime=addresses["root"], address=SWITCH, ports={"near": 1, "far": 2})}
    for name, leaf in inner.items():
        switches[name] = FabricSwitch(p4runtime=addresses[name], address=SWITCH, ports={leaf: 1, "root": UP})
        switches[leaf] = FabricSwitch(p4runtime=addresses[leaf], address=SWITCH, ports={name: UP})
    return Fabric(
        switches=switches, parents={**dict.fromkeys(inner, "root"), **{far: near for near, far in inner.items()}}
    )


LEVELS = {2: (fabric_at, NAMES), 3: (three_levels_at, ("root", "near", "left", "far", "right"))}
"""Trees on which everything is tried that is tried on one of them."""


class Tree:
    """Switches, the cables between them, and a controller."""

    def __init__(
        self, scratch: Path, make_fabric: Callable[[dict[str, str]], Fabric] = fabric_at, names: Sequence[str] = NAMES
    ) -> None:
        self.switches = {}
        for name in names:
            (scratch / name).mkdir()
            self.switches[name] = EmbeddedSwitch(scratch / name)
        self._scratch, self._make_fabric = scratch, make_fabric
        self.dead: set[str] = set()
        self.running = self._start()
        self._connect()

    def _connect(self) -> None:
        """Wait until the controller has all switches: it answers callers before, and waits for switches but shortly."""
        fleet = self.running.controller.reconciler.fleet
        eventually(lambda: set(fleet.away()) <= self.dead)

    def _start(self) -> RunningController:
        fabric = self._make_fabric({name: switch.address for name, switch in self.switches.items()})
        self._cables = {
            (name, port): (far, fabric.switches[far].ports[name])
            for name, one in fabric.switches.items()
            for far, port in one.ports.items()
        }
        return RunningController(fabric.switches["root"].p4runtime, f"unix:{self._scratch}/controller", fabric=fabric)

    def restart_controller(self) -> None:
        self.running.stop()
        self.running = self._start()
        self._connect()

    def join(self, places: tuple[tuple[str, int], ...] = PLACES) -> list[Worker]:
        workers = []
        for rank, (name, port) in enumerate(places):
            worker = Worker(self.running.client, self.switches[name], rank, size=len(places))
            worker.port = port
            workers.append(worker)
        return workers

    def carry(self) -> dict[str, list[tuple[int, bytes]]]:
        """Carry frames between switches until none is on its way; return those for workers, by switch."""
        found: dict[str, list[tuple[int, bytes]]] = {name: [] for name in self.switches}
        waiting = deque(name for name in self.switches if name not in self.dead)
        while waiting:
            name = waiting.popleft()
            for port, frame in self.switches[name].collect():
                if (name, port) not in self._cables:
                    found[name].append((port, frame))
                    continue
                far, far_port = self._cables[name, port]
                if far not in self.dead:
                    self.switches[far].send(far_port, frame)
                    waiting.append(far)
        return found

    def sum_of_round(self, workers: list[Worker], number: int) -> dict[tuple[str, int], int]:
        """Let every worker contribute its rank + 1; return what comes to each place."""
        for worker in workers:
            worker.contribute(number, worker.rank + 1)
        sums = {}
        for name, frames in self.carry().items():
            for port, frame in frames:
                packet = parse_frame(frame)
                assert packet is not None
                if packet.header.kind == Kind.HELD:  # of a contribution that came once more
                    continue
                assert packet.header.kind == Kind.RESULT
                sums[name, port] = int.from_bytes(packet.payload[:LANE_BYTES], signed=True)
        return sums

    def close(self) -> None:
        self.running.stop()
        for name, switch in self.switches.items():
            if name not in self.dead:
                switch.close()

    def kill(self, name: str) -> None:
        """End a switch for good."""
        self.switches[name].close()
        self.dead.add(name)


@pytest.fixture(params=LEVELS, ids=lambda levels: f"{levels} levels")
def tree(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """Yield switches with a controller, in trees of two and of three levels."""
    monkeypatch.setattr("switchsum_controller.jobs.registry.UNHEARD_S", 3600.0)  # these workers have no connections
    made = Tree(tmp_path, *LEVELS[request.param])
    yield made
    made.close()


def create(tree: Tree, workers: int) -> None:
    tree.running.client.create_job(rpc.CreateJobRequest(job="a", workers=workers, slots=2, timeout_s=600.0))


def show(tree: Tree) -> rpc.JobInfo:
    return tree.running.client.show_job(rpc.JobRequest(job="a"))


def test_a_job_goes_on_after_each_switch_and_the_controller_were_restarted(tree: Tree) -> None:
    create(tree, len(PLACES))
    workers = tree.join()
    reply = admit(workers)
    wanted = dict.fromkeys(PLACES, 1 + 2 + 3)
    number, loads = reply.first_number, reply.loads
    assert loads == len(tree.switches)
    assert tree.sum_of_round(workers, number) == wanted
    epoch = show(tree).epoch
    for name in tree.switches:
        tree.switches[name].restart()
        loads += 1
        eventually(lambda: tree.running.client.heartbeat(workers[0].request).loads == loads)  # noqa: B023
        assert all(worker.ready().admitted for worker in workers)
        number += 1
        assert tree.sum_of_round(workers, number) == wanted
    tree.restart_controller()
    for worker in workers:
        worker.client = tree.running.client
    assert worker.ready().loads == loads
    assert tree.sum_of_round(workers, number + 1) == wanted
    job = show(tree)
    assert (job.state, job.epoch) == ("running", epoch)
    assert [(member.switch, member.ingress_port) for member in job.members] == list(PLACES)
    drawn = {
        3: "root\n├── left: ranks 0 1\n└── right: ranks 2",
        5: "root\n├── near\n│   └── left: ranks 0 1\n└── far\n    └── right: ranks 2",
    }
    assert job_text(job) == drawn[len(tree.switches)]
    cells = tree.running.client.slots(rpc.SlotsRequest(job="a")).slots
    assert {cell.switch for cell in cells} == set(tree.switches)
    statistics = tree.running.client.statistics()
    assert {one.rank for one in statistics.members} == {0, 1, 2}
    # Each was restarted with a controller that kept its job; what the last rounds brought is counted.
    took = {one.switch: one.contributions for one in statistics.switches}
    assert list(took) == list(tree.switches)
    assert all(took.values()), took
    first = list(tree.switches)[1]
    assert job_text(job, took).startswith(f"root ({took['root']} contributions)\n├── {first}")
    assert f"left: ranks 0 1 ({took['left']} contributions)" in job_text(job, took)
    for worker in workers:
        worker.client.leave(worker.request)
    eventually(lambda: show(tree).state == "waiting")
    assert show(tree).tree == []


def test_while_a_switch_is_away_the_others_are_read_and_it_is_named(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tree, len(PLACES))
    workers, client = tree.join(), tree.running.client
    tree.sum_of_round(workers, admit(workers).first_number)
    client.create_job(rpc.CreateJobRequest(job="b", workers=1, slots=2, timeout_s=600.0))
    alone = [Worker(client, tree.switches["left"], 0, job="b", size=1)]
    alone[0].port = 3
    alone[0].contribute(admit(alone).first_number, 5)
    assert client.statistics().away == []
    tree.kill("right")
    eventually(lambda: client.statistics().away == ["right"])
    found, there = client.statistics(), [name for name in tree.switches if name != "right"]
    counted = {one.switch: one.contributions for one in found.switches}
    assert list(counted) == there
    assert counted["left"] == 3
    assert {one.reason: one.packets for one in found.counters}["contributed"] == sum(counted.values())
    assert [(one.job, one.rank, one.contributions) for one in found.members] == [("a", 0, 1), ("a", 1, 1), ("b", 0, 1)]
    cells = client.slots(rpc.SlotsRequest())
    assert ({cell.switch for cell in cells.slots}, cells.away) == ({*there}, ["right"])
    assert (gather(client, "a").slots, len(gather(client, "b").slots or [])) == ([], 2 * 2 * len(there))
    for name in there:
        tree.kill(name)
    eventually(lambda: len(tree.running.controller.reconciler.fleet.away()) == len(tree.switches))
    with pytest.raises(SwitchLost):
        client.statistics()
    monkeypatch.setattr("switchsum_controller.service.reconciler.SWITCH_WAIT_S", 3600.0)
    with pytest.raises(SwitchLost):  # a page does not wait for it
        LocalSource(tree.running.controller.users).statistics()


def test_the_next_incarnation_begins_beyond_what_every_switch_has_seen(tree: Tree) -> None:
    create(tree, 2)
    apart = tree.join((("left", 1), ("right", 1)))
    number = admit(apart).first_number
    for step in range(3):
        assert set(tree.sum_of_round(apart, number + step).values()) == {3}
    for worker in apart:
        worker.client.leave(worker.request)
    together = tree.join((("right", 1), ("right", 2)))  # their switch is the root of this one, and the others have none
    later = admit(together).first_number
    assert later == number + 3
    assert job_text(show(tree)) == "right: ranks 0 1"
    assert tree.sum_of_round(together, later) == {("right", 1): 3, ("right", 2): 3}


def test_a_job_that_a_bitmap_has_no_room_for_is_refused_and_nothing_is_written(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tree, len(PLACES))
    before = entries_of(tree)
    with monkeypatch.context() as patched:
        patched.setattr("switchsum_controller.trees.forest.MAX_WORKERS", 1)
        workers = tree.join()
        with pytest.raises(NotAdmitted, match="switch root has 0 workers and 2 switches below"):
            admit(workers)
    assert entries_of(tree) == before
    assert show(tree).state == "waiting"
    workers = tree.join()
    assert tree.sum_of_round(workers, admit(workers).first_number) == dict.fromkeys(PLACES, 6)


def entries_of(tree: Tree) -> dict[str, set[str]]:
    """Return what is on each switch beside the records of jobs, which count refused incarnations."""
    states = tree.running.controller.reconciler.fleet.states()
    return {
        name: {f"{entry}" for entry in state.entries.values() if entry.match.get("rank") != RECORD_RANK}
        for name, state in states.items()
    }


def job_at(switches: list[str]) -> Job:
    """Return a job whose members were seen at these switches."""
    live = new_incarnation(5, len(switches))
    for member, name in zip(live.members, switches, strict=True):
        address = Address(mac=member.rank, ip=member.rank, port=1)
        member.attachments[0] = Attachment(address=address, ingress_port=member.rank, switch=name)
        member.cookie = 7 + member.rank
    slots = SlotRange(first=0, count=1)
    job = Job(name="a", number=1, workers=len(switches), slots=slots, group=2, timeout_s=1.0, gathering=live)
    job.live = live
    return job


def lay_out(fabric: Fabric, switches: list[str]) -> dict[str, Any]:
    job = job_at(switches)
    assert job.live is not None
    return branches_of(job, job.live, Settings(identity=Identity(address=SWITCH, growth_bytes=0xFFFF)), fabric)


def test_a_job_that_the_switches_have_no_room_for_is_refused_before_anything_is_written() -> None:
    fabric = fabric_at(dict.fromkeys(("root", "left", "right"), "unix:none"))
    with pytest.raises(UsageError, match="32 bits"):
        lay_out(fabric, [*["root"] * 31, "left", "right"])
    with pytest.raises(UsageError, match=r"'elsewhere'.*--fleet"):
        lay_out(fabric, ["left", "elsewhere"])


def test_cookies_of_switches_are_the_same_each_time_and_change_with_the_members() -> None:
    fabric = fabric_at(dict.fromkeys(("root", "left", "right"), "unix:none"))
    found = [lay_out(fabric, ["left", "right"]) for _ in range(2)]
    assert found[0] == found[1]
    cookies = {place.cookie for place in found[0]["root"][0].places}
    assert len(cookies) == 2
    others = {place.cookie for place in lay_out(fabric, ["left", "right", "right"])["root"][0].places}
    assert not cookies & others


def test_one_switch_is_a_fabric_of_one() -> None:
    fabric = fabric_of_one("unix:none")
    [[branch]] = lay_out(fabric, [""] * 3).values()
    assert branch.above is None
    assert [(place.rank, place.bit) for place in branch.places] == [(rank, rank) for rank in range(3)]
    assert Jobs(4, int, int).free_slots == 4


ROOT = {"p4runtime": "unix:a", "udp": "127.0.0.1:1"}
OTHER = {"p4runtime": "unix:b", "udp": "127.0.0.1:2"}


@pytest.mark.parametrize(("trees", "frames"), [(1, 3.0), (2, 2.0), (4, 1.5)])
def test_each_tree_brings_a_switch_frames_for_its_share_of_the_slots(trees: int, frames: float, tmp_path: Path) -> None:
    """Of four machines' switches, some of which are roots: a root gets three frames for a slot of its tree."""
    names = "abcd"
    switches = {name: {"p4runtime": f"unix:{name}", "udp": f"127.0.0.1:{port}"} for port, name in enumerate(names, 1)}
    above = [{"above": {name: root for name in names if name != root}} for root in names[:trees]]
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps({"switches": switches, "trees": above, "link_bytes": 425_984}))
    fabric = load(path, 256)
    assert fabric.frames_per_slot == pytest.approx(frames)
    job = job_at([*names])
    assert job.live is not None
    assert frames_held(fabric.link_bytes, 1114) == 92
    assert most_in_flight(job.live, None, 1114, fabric) == int(92 / frames)


def test_a_file_of_three_levels(tmp_path: Path) -> None:
    leaf, inner = (
        {"p4runtime": f"unix:{above}", "udp": f"127.0.0.1:{port}", "above": above}
        for port, above in ((2, "inner"), (3, "root"))
    )
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps({"switches": {"leaf": leaf, "inner": inner, "root": ROOT}, "link_bytes": 9}))
    fabric = load(path, 256)
    assert (fabric.home, fabric.frames_per_slot, fabric.link_bytes) == ("root", 1, 9)
    assert fabric.switches["inner"].ports == {"leaf": 1, "root": 1}
    job = job_at(["leaf", "root"])
    assert job.live is not None
    assert [tree.levels for tree in fabric.trees_of(job, job.live)] == [3]


def test_switches_with_interfaces_are_known_by_port_and_have_one_address() -> None:
    root = {"p4runtime": "unix:a", "ports": {"leaf": 7}, "stations": {"02:00:00:00:00:09": 7}}
    leaf = {"p4runtime": "unix:b", "ports": {"root": 3}, "stations": {"02:00:00:00:00:09": 1}, "above": "root"}
    fabric = parse(json.dumps({"switches": {"root": root, "leaf": leaf}}), 256)
    found = lay_out(fabric, ["leaf", "root"])
    assert found["leaf"][0].above.address == SWITCH
    assert found["leaf"][0].above.port == 3
    assert [(place.port, place.address == SWITCH) for place in found["root"][0].places][-1] == (7, True)
    assert fabric.switches["leaf"].stations == {0x02_00_00_00_00_09: 1}


def test_a_file_says_whether_jobs_are_spread_and_has_one_tree_then() -> None:
    switches = {"root": ROOT, "leaf": {**OTHER, "above": "root"}}
    assert not parse(json.dumps({"switches": switches}), 256).spreads_jobs
    assert parse(json.dumps({"switches": switches, "spread_jobs": True}), 256).spreads_jobs
    with pytest.raises(UsageError, match="spread_jobs must be true or false, not 1"):
        parse(json.dumps({"switches": switches, "spread_jobs": 1}), 256)
    with pytest.raises(UsageError, match="one tree of its own"):
        parse(json.dumps(two_roots(spread_jobs=True)), 256)


def two_roots(**fields: Any) -> dict[str, Any]:
    """Return a file of two leaves below two roots, of which the first has three quarters of the slots."""
    switches = {
        name: {"p4runtime": f"unix:{name}", "udp": f"127.0.0.1:{port}"}
        for port, name in enumerate(("left", "right", "fast", "slow"), 1)
    }
    trees = [
        {"above": dict.fromkeys(("left", "right"), root), "share": share} for root, share in (("fast", 3), ("slow", 1))
    ]
    return {"switches": switches, "trees": trees, **fields}


def test_a_job_has_two_trees_at_once_each_with_its_own_slots() -> None:
    fabric = parse(json.dumps(two_roots()), 256)
    assert fabric.home == "fast"
    job = job_at(["left", "right"])
    job.slots = SlotRange(first=5, count=8)
    assert job.live is not None
    assert fabric.slots_of_trees(job, job.live) == [6, 2]
    found = branches_of(job, job.live, Settings(identity=Identity(address=SWITCH, growth_bytes=0xFFFF)), fabric)
    assert {name: [branch.tree for branch in branches] for name, branches in found.items()} == {
        "fast": [0], "slow": [1], "left": [0, 1], "right": [0, 1],
    }  # fmt: skip
    assert [branch.slots for branch in found["left"]] == [SlotRange(first=5, count=6), SlotRange(first=11, count=2)]
    groups = [branch.group for branch in found["left"]]
    assert groups[0] == job.group
    assert len(set(groups)) == 2
    ranks = [branch.above.rank for name in ("left", "right") for branch in found[name] if branch.above]
    assert sorted(ranks) == [2, 3, 4, 5]
    assert fabric.pairs_of(job, job.live) == [
        ["left", "fast"], ["right", "fast"], ["left", "slow", "1"], ["right", "slow", "1"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("slots", "shares", "expected"), [(256, [1000, 400], [183, 73]), (1, [1, 1], [1, 0]), (5, [9, 1, 1], [3, 1, 1])]
)
def test_slots_are_shared_in_proportion_and_each_tree_has_one(
    slots: int, shares: list[float], expected: list[int]
) -> None:
    assert shared(slots, shares) == expected


def test_groups_of_trees_are_no_jobs_and_all_different() -> None:
    groups = {group_of(group, tree) for group in range(2, 1026) for tree in range(MOST_TREES)}
    assert len(groups) == 1024 * MOST_TREES
    assert all(group_of(group, tree) > 1026 for group in range(2, 1026) for tree in range(1, MOST_TREES))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "p4runtime"),
        ('{"switches": {}}', "p4runtime"),
        (json.dumps({"switches": {"a": {**ROOT, "above": "b"}}}), "no switch 'b' above"),
        (json.dumps({"switches": {"a": ROOT, "b": ROOT}}), "a and b have no switch above"),
        (
            json.dumps({"switches": {"a": {**ROOT, "above": "b"}, "b": {**ROOT, "above": "a"}}}),
            "`above`: a, b, a",
        ),
        (json.dumps({"switches": {"a": ROOT, "b": {"p4runtime": "unix:c", "above": "a"}}}), "b: udp must be IP:PORT"),
        (json.dumps({"switches": {"a": {"p4runtime": "c"}}}), "a: p4runtime: an address is host:port"),
        (json.dumps({"switches": {"a": {"udp": "x"}}}), "a: p4runtime is missing"),
        (json.dumps({"switches": {"a": {**ROOT, "prot": 1}}}), "switch a: it may have .*, but not 'prot'"),
        (json.dumps({"switches": {"a": {**ROOT, "port": 511}}}), "port must be"),
        (json.dumps({"switches": {"a": {**ROOT, "port": 255}}}), "port must be"),
        (json.dumps({"switches": {"a": ROOT}, "link_bytes": -1}), "link_bytes"),
        (json.dumps({"switches": {"a": ROOT}, "tree": []}), "a fleet may have .*, but not 'tree'"),
        ('{"switches": {"a": {"p4runtime": "unix:a"}, "a": {"p4runtime": "unix:b"}}}', "^'a' is given twice"),
        (json.dumps({"switches": {"": ROOT}}), "not ''"),
        (json.dumps({"switches": {"a\x1b": ROOT}}), "must be printable text"),
        (json.dumps({"switches": {"a": {"p4runtime": "unix:"}}}), "a: p4runtime: an address is"),
        *(
            (
                json.dumps({"switches": {"a": {**ROOT, "udp": udp}, "b": {**OTHER, "above": "a"}}}),
                "a: udp must be IP:PORT",
            )
            for udp in ("127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-5", "0.0.0.0:1", "224.0.0.1:1", "localhost:1")
        ),
        (json.dumps(two_roots(trees=[])), "trees must be a list of 1 to 8"),
        *(
            (json.dumps(two_roots(trees=[{"above": {"left": "fast"}, "share": share}])), "a tree must have")
            for share in (0, math.nan, 1e308, 10**400, True, "1")
        ),
        (json.dumps(two_roots(trees=[{"above": {"left": ["fast"]}}])), "a tree must have"),
        (
            json.dumps(two_roots(trees=[{"above": {"left": "fast"}, "shares": 1}])),
            "a tree may have .*, but not 'shares'",
        ),
        (json.dumps(two_roots(trees=[{"above": {"left": "top"}}])), "'top', which is not among"),
        (json.dumps(two_roots(trees=[{"above": {"left": "fast", "right": "slow"}}])), "have no switch above"),
        (
            json.dumps({"switches": {"a": ROOT, "b": {**ROOT, "udp": "127.0.0.1:2", "above": "a"}}}),
            "a and b have the same p4runtime, unix:a",
        ),
        (
            json.dumps({"switches": {"a": ROOT, "b": {**ROOT, "p4runtime": "unix:b", "above": "a"}}}),
            "a and b have the same address, 127.0.0.1:1",
        ),
        (
            json.dumps(
                {
                    "switches": {
                        "a": {"p4runtime": "unix:a", "ports": {"b": 1, "c": 1}},
                        "b": {"p4runtime": "unix:b", "ports": {"a": 1}, "above": "a"},
                        "c": {"p4runtime": "unix:c", "ports": {"a": 1}, "above": "a"},
                    }
                }
            ),
            "a: two of b, c have the same port",
        ),
        (json.dumps({"switches": {"a": ROOT, "b": {**ROOT, "above": "a", "ports": {}}}}), "b: ports must.*: a"),
        (json.dumps({"switches": {"a": ROOT, "b": {**ROOT, "above": "a", "ports": {"a": "1"}}}}), "b: ports must"),
        (json.dumps({"switches": {"a": {**ROOT, "ports": {"b": 1}}}}), "a: ports names 'b', which is not another"),
        (json.dumps({"switches": {"a": {**ROOT, "stations": {"nobody": 1}}}}), "a: stations must map"),
        (json.dumps({"switches": {"a": {**ROOT, "stations": {"01:00:5e:00:00:01": 1}}}}), "a: stations must map"),
        (
            json.dumps({"switches": {"a": {**ROOT, "stations": {"02:0:0:0:0:a": 1, "02:0:0:0:0:A": 2}}}}),
            "stations must map",
        ),
        (json.dumps({"switches": {"a": {**ROOT, "stations": {"02:00:00:00:00:01": 511}}}}), "a: stations must map"),
    ],
)
def test_a_file_that_makes_no_tree_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse(text, 256)
