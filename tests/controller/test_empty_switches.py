"""Members are told of each switch that has come without its rounds: a slot that waits for nothing repeats only then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from switchsum_controller.switches.switch_session import Session
from switchsum_controller.tables.entries import Change, SwitchState, Write
from switchsum_controller.tables.names import IDENTITY
from switchsum_controller.trees.fabric import Fabric, FabricSwitch
from switchsum_protocol import member_rpc, rpc
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError

from .rig import LONG_S, SWITCH, Worker, admit, eventually, program
from .test_tree_of_switches import NAMES, PLACES, Tree, create, fabric_at

SUMS = dict.fromkeys(PLACES, 1 + 2 + 3)


def with_far_leaf(addresses: dict[str, str]) -> Fabric:
    """Return the root and its two leaves, and a third leaf."""
    three = fabric_at(addresses)
    root = FabricSwitch(p4runtime=addresses["root"], address=SWITCH, ports={**three.switches["root"].ports, "far": 3})
    far = FabricSwitch(p4runtime=addresses["far"], address=SWITCH, ports={"root": 4})
    return Fabric(switches={**three.switches, "root": root, "far": far}, parents={**three.parents, "far": "root"})


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    monkeypatch.setattr("switchsum_controller.jobs.registry.UNHEARD_S", 3600.0)  # these workers have no connections
    made = Tree(tmp_path, with_far_leaf, (*NAMES, "far"))
    assert made.running.connected.wait(LONG_S)
    yield made
    made.close()


def run_job(tree: Tree) -> tuple[list[Worker], member_rpc.ReadyReply]:
    create(tree, len(PLACES))
    workers = tree.join()
    return workers, admit(workers)


def start_again(tree: Tree, workers: list[Worker]) -> None:
    tree.running = tree._start()
    for worker in workers:
        worker.client = tree.running.client
    assert workers[0].ready().admitted


def reported(workers: list[Worker]) -> int:
    return workers[0].client.heartbeat(workers[0].request).loads


def test_a_controller_that_was_killed_when_it_had_loaded_the_program_of_the_root(tree: Tree) -> None:
    workers, reply = run_job(tree)
    assert tree.sum_of_round(workers, reply.first_number) == SUMS
    tree.running.stop()
    tree.switches["root"].restart()
    dying = Session(program(), tree.switches["root"].address)
    assert dying.connect()
    dying.close()
    start_again(tree, workers)
    assert reported(workers) == reply.loads + 1
    assert tree.sum_of_round(workers, reply.first_number + 1) == SUMS


def test_a_controller_that_was_killed_when_it_had_told_some_switches(tree: Tree) -> None:
    workers, reply = run_job(tree)
    tree.running.stop()
    dying = Session(program(), tree.switches["far"].address)
    dying.connect()
    [identity] = dying.read_state().table(IDENTITY)
    record = {**json.loads(identity.metadata), "loads": reply.loads + 1}
    dying.write([[Write(change=Change.MODIFY, item=replace(identity, metadata=json.dumps(record).encode()))]])
    dying.close()
    start_again(tree, workers)
    assert reported(workers) == reply.loads + 1


def test_a_switch_that_is_lost_again_when_it_has_the_program(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    workers, reply = run_job(tree)
    reads = Session.read_state
    refused: list[Session] = []

    def read_state(switch: Session) -> SwitchState:
        if not refused:
            refused.append(switch)
            raise P4RuntimeError("Read", Code.DEADLINE_EXCEEDED, "it is busy")
        return reads(switch)

    monkeypatch.setattr(Session, "read_state", read_state)
    tree.switches["root"].restart()
    eventually(lambda: reported(workers) > reply.loads)
    assert refused
    assert tree.sum_of_round(workers, reply.first_number) == SUMS


def test_a_root_that_comes_back_while_a_leaf_of_another_job_stays_away(tree: Tree) -> None:
    workers, reply = run_job(tree)
    tree.running.client.create_job(rpc.CreateJobRequest(job="b", workers=1, slots=2, timeout_s=600.0))
    admit([Worker(tree.running.client, tree.switches["far"], 0, job="b", size=1)])
    tree.kill("far")
    tree.switches["root"].restart()
    eventually(lambda: reported(workers) == reply.loads + 1)
    assert tree.sum_of_round(workers, reply.first_number) == SUMS
