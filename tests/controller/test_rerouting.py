"""A job over embedded switches moves to another root, which the old one does not disturb when it is back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchsum.cli.draw import job_text
from switchsum_controller.switches.connection import SwitchConnection
from switchsum_controller.tables.names import ADMISSION
from switchsum_controller.trees import moves
from switchsum_controller.trees.fabric import Fabric, FabricSwitch
from switchsum_protocol import member_rpc, rpc
from switchsum_protocol.clients.member_client import MemberClient
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError

from .rig import LONG_S, SWITCH, admit, eventually
from .test_tree_of_switches import PLACES, Tree, create, show

ROOTS = ("root", "other")
LEAVES = ("left", "right")
SUMS = dict.fromkeys(PLACES, 1 + 2 + 3)


def fabric_at(addresses: dict[str, str]) -> Fabric:
    """Return two leaves below a root, and another switch that may take its place."""
    ports = {name: {"left": 1, "right": 2} for name in ROOTS} | {name: {"root": 4, "other": 3} for name in LEAVES}
    switches = {
        name: FabricSwitch(p4runtime=addresses[name], address=SWITCH, ports=ports[name]) for name in (*ROOTS, *LEAVES)
    }
    return Fabric(switches=switches, parents=dict.fromkeys(LEAVES, "root"))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    monkeypatch.setattr(moves, "AWAY_S", 0.2)
    monkeypatch.setattr("switchsum_controller.jobs.registry.UNHEARD_S", 3600.0)  # these workers have no connections
    made = Tree(tmp_path, fabric_at, (*ROOTS, *LEAVES))
    assert made.running.connected.wait(LONG_S)
    yield made
    made.close()


def admission_at(tree: Tree, name: str) -> int:
    """Return how many members' entries a switch has."""
    with tree.running.controller.reconciler.changed:
        return len(tree.running.controller.reconciler.fleet.connections[name].need().read_state().table(ADMISSION))


def root_of(tree: Tree) -> set[str]:
    return {pair[1] for pair in show(tree).tree}


def test_a_job_goes_on_over_another_root_and_stays_there(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    create(tree, len(PLACES))
    workers = tree.join()
    reply = admit(workers)
    number = reply.first_number
    assert tree.sum_of_round(workers, number) == SUMS
    # Of the next round the left leaf has sent its partial to the root, and nobody has a result.
    for worker in workers[:2]:
        worker.contribute(number + 1, worker.rank + 1)
    assert not any(tree.carry().values())
    tree.kill("root")
    eventually(lambda: root_of(tree) == {"other"})
    eventually(lambda: tree.running.client.heartbeat(workers[0].request).loads == reply.loads + 1)
    job = show(tree)
    assert (job.state, [*map(str, job.moved)]) == ("running", ["root stays away: its tree has root other, not root"])
    assert job.moved[0].away == ["root"]
    assert job_text(job) == "other\n├── left: ranks 0 1\n└── right: ranks 2"
    assert f"job a moves: {job.moved[0]}" in caplog.text
    links = {frozenset((one.switch, one.far_switch)) for one in tree.running.client.links().links if one.in_tree}
    assert links >= {frozenset((leaf, "other")) for leaf in LEAVES}
    assert tree.sum_of_round(workers, number + 1) == SUMS
    assert tree.running.controller.users.sample("a", 0, 0.0) == []  # the others are asked
    # Without the root jobs are made, and a controller that is started anew knows of all.
    tree.running.client.create_job(rpc.CreateJobRequest(job="b", workers=1, slots=2, timeout_s=600.0))
    tree.restart_controller()
    for worker in workers:
        worker.client = tree.running.client
    eventually(lambda: {one.job for one in tree.running.client.list_jobs().jobs} == {"a", "b"})
    assert workers[0].ready().admitted
    assert show(tree).moved == job.moved
    assert tree.sum_of_round(workers, number + 2) == SUMS
    # The root comes back with nothing in it, and the job stays where it is.
    tree.dead.clear()
    tree.switches["root"]._start()
    eventually(lambda: {one.state for one in tree.running.client.switches().switches} == {"settled"})
    assert (admission_at(tree, "root"), root_of(tree)) == (0, {"other"})
    assert tree.sum_of_round(workers, number + 3) == SUMS
    # Its next incarnation has the tree that all jobs have.
    for worker in workers:
        worker.client.leave(worker.request)
    workers = tree.join()
    number = admit(workers).first_number
    assert (root_of(tree), show(tree).moved) == ({"root"}, [])
    assert tree.sum_of_round(workers, number) == SUMS


def test_a_root_that_only_the_controller_has_lost_adds_for_nobody_after_the_move(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tree, len(PLACES))
    workers = tree.join()
    number = admit(workers).first_number
    assert tree.sum_of_round(workers, number) == SUMS
    for worker in workers[:2]:
        worker.contribute(number + 1, worker.rank + 1)
    tree.carry()  # the root has half of the round
    with monkeypatch.context() as patched:
        cut_off(tree, "root", patched.setattr)
        eventually(lambda: root_of(tree) == {"other"})
        # The old root has its entries, and the leaves do not listen to it.
        assert tree.sum_of_round(workers, number + 1) == SUMS
    eventually(lambda: {one.state for one in tree.running.client.switches().switches} == {"settled"})
    eventually(lambda: admission_at(tree, "root") == 0)
    assert root_of(tree) == {"other"}
    assert tree.sum_of_round(workers, number + 2) == SUMS
    # And back: what the old root had of rounds is gone when it is a root again.
    with monkeypatch.context() as patched:
        cut_off(tree, "other", patched.setattr)
        eventually(lambda: root_of(tree) == {"root"})
        assert tree.sum_of_round(workers, number + 3) == SUMS


def cut_off(tree: Tree, name: str, patch: Callable[[object, str, object], None]) -> None:
    """Let the controller lose a switch that goes on."""
    connection, opens = tree.running.controller.reconciler.fleet.connections[name], SwitchConnection.open
    gone = P4RuntimeError("StreamChannel", Code.UNAVAILABLE, "cut off")

    def refuse(one: SwitchConnection) -> object:
        if one is connection:
            raise gone
        return opens(one)

    patch(SwitchConnection, "open", refuse)
    with tree.running.controller.reconciler.changed:
        connection.detach(gone)


def test_a_link_between_switches_that_are_there_is_missed(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tree, len(PLACES))
    workers = tree.join()
    number = admit(workers).first_number
    controller = tree.running.controller
    with controller.reconciler.changed:
        found = {
            frozenset((name, far)) for name, ports in controller.reconciler.fabric.links().items() for far in ports
        } - {frozenset(("right", "root"))}
        for now in (controller.reconciler.clock() - 60.0, controller.reconciler.clock()):
            moves.note_links(controller.reconciler.cuts, controller.reconciler.fabric, found, [], now)
    eventually(lambda: root_of(tree) == {"other"})
    eventually(lambda: bool(show(tree).moved))
    [move] = show(tree).moved
    assert (str(move), move.away) == ("the link from right to root stays away: its tree has root other, not root", [])
    assert tree.sum_of_round(workers, number) == SUMS
    assert show(tree).state == "running"


def test_a_member_is_missed_while_a_switch_takes_long_not_to_answer(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tree, len(PLACES))
    workers = tree.join()
    admit(workers)
    controller, waited = tree.running.controller, [0.0]
    right = controller.reconciler.fleet.connections["right"]
    gone = P4RuntimeError("StreamChannel", Code.DEADLINE_EXCEEDED, "the switch does not answer arbitration")
    opens, clock = SwitchConnection.open, controller.reconciler.clock

    def wait_in_vain(connection: SwitchConnection) -> object:
        if connection is not right:
            return opens(connection)
        waited[0] += 5.5
        time.sleep(0.1)
        for _ in range(1000):  # hellos and LLDP frames: in this time more than one event comes
            controller.reconciler.events.put(lambda: None)
        raise gone

    monkeypatch.setattr(SwitchConnection, "open", wait_in_vain)
    monkeypatch.setattr(controller.reconciler, "clock", lambda: clock() + waited[0])
    left = MemberClient(tree.running.service.address, timeout_s=LONG_S)
    news = left.stream("Attend", workers[0].request, member_rpc.HeartbeatReply, waits=True)
    next(iter(news))
    with controller.reconciler.changed:
        right.detach(gone)
    eventually(lambda: waited[0] > 20)
    assert show(tree).members[0].state == "admitted"
    left.close()
    eventually(lambda: show(tree).members[0].state != "admitted")


def test_a_job_waits_for_a_leaf_and_is_told_why(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    create(tree, len(PLACES))
    workers = tree.join()
    number = admit(workers).first_number
    tree.kill("right")
    eventually(lambda: "job a waits: switch right does not answer, and rank 2 of the job" in caplog.text)
    assert show(tree).state == "stalled"
    tree.dead.clear()
    tree.switches["right"]._start()
    eventually(lambda: show(tree).state == "running")
    eventually(lambda: {one.state for one in tree.running.client.switches().switches} == {"settled"})
    assert (root_of(tree), show(tree).moved) == ({"root"}, [])
    assert tree.sum_of_round(workers, number) == SUMS
