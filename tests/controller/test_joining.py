"""Switches and members that end, or stay away, while the members of a job join."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from switchsum_controller.jobs.slots import Cell
from switchsum_controller.switches.connection import SwitchConnection
from switchsum_controller.trees import moves
from switchsum_protocol import member_rpc, rpc_codec
from switchsum_protocol.errors import CollectiveTimeout, NotAdmitted, SwitchLost, SwitchsumError, UnknownMembership

from .conftest import Start
from .rig import (
    LONG_S,
    AnySwitch,
    RunningController,
    Worker,
    admit,
    create,
    eventually,
    following,
    join_all,
    show,
    sum_of_round,
)
from .test_tree_of_switches import PLACES, Tree
from .test_tree_of_switches import create as create_at

pytestmark = pytest.mark.timeout(120)


def give_up(worker: Worker, error: SwitchsumError) -> None:
    details = rpc_codec.details_of(error)
    worker.client.call(
        "Leave", member_rpc.LeaveRequest(job="a", nonce=worker.request.nonce, error=details), member_rpc.Empty
    )


def test_members_show_themselves_again_to_a_switch_that_was_restarted(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    workers[0].hello()
    eventually(lambda: workers[0].ready(0.0).hello_seen)
    switch.restart()
    eventually(lambda: not workers[0].ready(0.0).hello_seen)
    eventually(lambda: not workers[0].ready(0.0).lost_switch)
    ready = admit(workers)
    assert sum_of_round(workers, ready.first_number) == [3, 3]


def test_a_switch_that_ends_while_a_job_is_admitted_refuses_nobody(
    switch: AnySwitch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start()
    create(running)
    read_numbers, ends = SwitchConnection.read_numbers, [1]

    def end_first(self: SwitchConnection, slots: Sequence[int]) -> list[Cell]:
        if ends:
            ends.pop()
            with self._explained() as session:
                session._client._stream.cancel()
                eventually(lambda: not session.is_connected)
                raise SwitchLost("the switch is gone")
        return read_numbers(self, slots)

    monkeypatch.setattr(SwitchConnection, "read_numbers", end_first)
    workers = join_all(running, switch)
    ready = admit(workers)
    assert not ends
    assert sum_of_round(workers, ready.first_number) == [3, 3]


def test_a_controller_that_has_not_had_its_switch_yet_says_which_one_members_wait_for(tmp_path: Path) -> None:
    running = RunningController(f"unix:{tmp_path}/nothing", f"unix:{tmp_path}/controller")
    try:
        reply = running.client.ready(member_rpc.ReadyRequest(job="a", nonce=7, wait_s=0.0))
        assert reply.lost_switch == f"the switch (unix:{tmp_path}/nothing) does not answer the controller"
    finally:
        running.stop()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """Yield switches of which one that is away for a moment is done without."""
    monkeypatch.setattr(moves, "AWAY_S", 0.3)
    made = Tree(tmp_path)
    yield made
    made.close()


def join_without_left(tree: Tree) -> list[Worker]:
    """Return the workers of a job; the switch left has seen its two, and is done without now."""
    create_at(tree, len(PLACES))
    workers = tree.join()
    for worker in workers[:2]:
        worker.hello()
        eventually(lambda: worker.ready(0.0).hello_seen)  # noqa: B023
    tree.kill("left")
    eventually(lambda: "left" in tree.running.controller.reconciler.fleet.without)
    return workers


def test_a_job_whose_leaf_stays_away_waits_for_it_and_says_so(tree: Tree) -> None:
    workers = join_without_left(tree)
    workers[2].hello()  # all have come, and the switch of two of them is done without by all others
    eventually(lambda: workers[2].ready(0.0).hello_seen)
    eventually(lambda: "switch left does not answer, and ranks 0 1 of the job" in workers[0].ready(0.0).lost_switch)
    tree.dead.discard("left")
    tree.switches["left"]._start()
    eventually(lambda: not workers[0].ready(0.0).hello_seen)
    for worker in workers[:2]:  # as a rank does: the first hello may come before the controller has the switch again
        eventually(lambda: (worker.hello(), worker.ready(0.0).hello_seen)[1])  # type: ignore[func-returns-value] # noqa: B023
    ready = admit(workers)
    assert ready.lost_switch == ""
    assert tree.sum_of_round(workers, ready.first_number) == dict.fromkeys(PLACES, 6)


def test_a_job_that_was_held_up_by_a_switch_waits_for_the_rank_alone_that_has_gone_since(tree: Tree) -> None:
    workers = join_without_left(tree)
    workers[2].hello()
    eventually(lambda: "switch left does not answer" in workers[2].ready(0.0).lost_switch)
    give_up(workers[0], CollectiveTimeout("late", [1]))
    reply = workers[2].ready(0.0)
    assert (reply.lost_switch, reply.missing, reply.gave_up) == ("", [], [0])


def begin(tree: Tree, job: str, places: Sequence[tuple[str, int]]) -> tuple[list[Worker], int]:
    """Have a job of its own run at some places; return its workers and the number of its first round."""
    create(tree.running, job, workers=len(places))
    workers = []
    for rank, (name, port) in enumerate(places):
        worker = Worker(tree.running.client, tree.switches[name], rank, job=job, size=len(places))
        worker.port = port
        workers.append(worker)
    return workers, admit(workers).first_number


def test_only_a_job_whose_own_leaf_is_away_waits_for_it(tree: Tree) -> None:
    at_left, at_right = [("left", 1), ("left", 2)], [("right", 1), ("right", 2)]
    theirs, number = begin(tree, "a", at_left)
    mine, _ = begin(tree, "b", at_right)
    tree.kill("left")
    reconciler = tree.running.controller.reconciler
    eventually(lambda: "left" in reconciler.fleet.away())
    assert mine[0].ready(0.0).lost_switch == ""
    eventually(lambda: "left" in reconciler.fleet.without)
    assert reconciler.awaited == {"left"}
    for worker in theirs:
        assert "left (unix:" in worker.ready(0.0).lost_switch
    assert mine[0].ready(0.0).admitted
    assert [show(tree.running, job).state for job in ("a", "b")] == ["stalled", "running"]
    newcomers, _ = begin(tree, "c", [("right", 3), ("root", 3)])
    assert newcomers[0].ready(0.0).lost_switch == ""
    tree.dead.discard("left")
    tree.switches["left"]._start()
    eventually(lambda: all(worker.ready(0.0).admitted for worker in theirs))
    assert reconciler.awaited == reconciler.fleet.without == set()
    assert tree.sum_of_round(theirs, number) == dict.fromkeys(at_left, 3)


def test_a_member_whose_hello_may_be_lost_at_a_switch_that_is_away_is_told_so(tree: Tree) -> None:
    create_at(tree, len(PLACES))
    tree.kill("left")
    eventually(lambda: "left" in tree.running.controller.reconciler.fleet.without)
    workers = tree.join()
    workers[2].hello()
    eventually(lambda: workers[2].ready(0.0).hello_seen)
    for worker in workers:
        lost = worker.ready(0.0).lost_switch
        assert "left (unix:" in lost
        assert lost.endswith("does not answer the controller, and no hello of ranks 0, 1 has come")


def test_a_switch_at_which_ranks_that_join_may_be_is_tried_again_soon(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "PATIENCE", 1e9)  # as after a try that nothing answered, which takes seconds
    create_at(tree, len(PLACES))
    tree.kill("left")
    reconciler = tree.running.controller.reconciler
    eventually(
        lambda: "left" in reconciler.fleet.without and not reconciler.absences.is_due("left", reconciler.clock() + 60.0)
    )
    tree.dead.discard("left")
    tree.switches["left"]._start()
    workers = tree.join()
    for worker in workers:  # as a rank does
        eventually(lambda: (worker.hello(), worker.ready(0.0).hello_seen)[1])  # type: ignore[func-returns-value] # noqa: B023
    ready = admit(workers)
    assert tree.sum_of_round(workers, ready.first_number) == dict.fromkeys(PLACES, 6)


def test_who_came_and_gave_up_is_not_missing(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running, workers=4)
    workers = [Worker(running.client, switch, rank, size=4) for rank in range(3)]
    for worker in workers:
        worker.hello()
    eventually(lambda: workers[2].ready(0.0).missing == [3])
    give_up(workers[0], CollectiveTimeout("rank 3 missing", [3]))
    workers[1].client.leave(workers[1].request)  # in order: it will come again, or not
    reply = workers[2].ready(0.0)
    assert (reply.missing, reply.gave_up) == ([1, 3], [0])
    Worker(running.client, switch, 0, size=4)
    reply = workers[2].ready(0.0)
    assert (reply.missing, reply.gave_up) == ([0, 1, 3], [])


def test_a_member_that_gives_a_switch_up_ends_the_wait_of_all(switch: AnySwitch, start: Start) -> None:
    running = start()
    created = create(running)
    workers = join_all(running, switch)
    waiting: list[BaseException] = []

    def wait() -> None:
        try:
            workers[1].ready()
        except SwitchsumError as error:
            waiting.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    give_up(workers[0], SwitchLost("leaf1 does not answer"))
    thread.join()
    assert [(type(error), str(error)) for error in waiting] == [(SwitchLost, "leaf1 does not answer")]
    again = join_all(running, switch)
    assert again[0].joined.epoch == following(created.epoch)
    admit(again)


def test_a_member_that_gives_up_ends_no_running_job(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    ready = admit(workers)
    workers[0].client.leave(workers[0].request)
    successor = Worker(running.client, switch, 0)
    give_up(successor, SwitchLost("no switch"))
    assert running.client.heartbeat(workers[1].request).left == [0]
    give_up(workers[1], SwitchLost("too late for that"))  # it was admitted
    assert ready.admitted
    with pytest.raises(NotAdmitted, match="has left") as caught:
        workers[1].ready(0.0)
    assert type(caught.value) is NotAdmitted


def test_a_controller_that_was_started_anew_says_that_it_knows_no_such_member(switch: AnySwitch, start: Start) -> None:
    first = start()
    create(first)
    workers = join_all(first, switch)
    workers[0].hello()
    eventually(lambda: workers[0].ready(0.0).hello_seen)
    first.stop()
    second = start()
    assert second.connected.wait(LONG_S)
    workers[0].client = second.client
    with pytest.raises(UnknownMembership):
        workers[0].ready(0.0)
    admit(join_all(second, switch))
