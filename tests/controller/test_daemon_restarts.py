"""A controller or its switch ends and is started again, or the switch is not there yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.timing import patience
from switchsum_controller.service import reconciler, upkeep
from switchsum_controller.service.members import Members
from switchsum_controller.service.users import Users
from switchsum_controller.switches.switch_session import Session
from switchsum_controller.tables.entries import SwitchState, Write
from switchsum_protocol import member_rpc, rpc
from switchsum_protocol.errors import ControllerUnreachable, SwitchLost

from .conftest import Start
from .rig import (
    LONG_S,
    SLOTS,
    AnySwitch,
    RunningController,
    Worker,
    admit,
    create,
    eventually,
    join_all,
    show,
    sum_of_round,
)

pytestmark = pytest.mark.timeout(120)


def watch_writes(monkeypatch: pytest.MonkeyPatch) -> list[Write]:
    writes: list[Write] = []
    write = Session.write

    def spy(self: Session, steps: list[list[Write]], timeout_s: float | None = None) -> None:
        writes.extend(one for step in steps for one in step)
        write(self, steps, timeout_s)

    monkeypatch.setattr(Session, "write", spy)
    return writes


def left_running(start: Start, switch: AnySwitch) -> list[Worker]:
    """Return the members of a job whose controller has ended."""
    first = start()
    create(first)
    workers = join_all(first, switch)
    admit(workers)
    first.stop()
    return workers


def test_a_restarted_controller_disturbs_nothing_and_knows_everybody(
    switch: AnySwitch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    create(first)
    create(first, "waiting", workers=7, timeout_s=123.5)
    first.client.set_loss(rpc.LossRequest(port=3, ingress=0.5))
    workers = join_all(first, switch)
    ready = admit(workers)
    assert sum_of_round(workers, ready.first_number) == [3, 3]
    before = (show(first).epoch, show(first).first_slot, first.client.ports())
    first.stop()
    assert sum_of_round(workers, ready.first_number + 1) == [3, 3], "the switch needs no controller"

    writes = watch_writes(monkeypatch)
    second = start()
    assert second.connected.wait(LONG_S)
    assert writes == []
    assert (show(second).epoch, show(second).first_slot, second.client.ports()) == before
    assert (show(second, "waiting").workers, show(second, "waiting").timeout_s) == (7, 123.5)
    for worker in workers:
        worker.client = second.client
        assert second.client.heartbeat(worker.request).lost == []
        assert worker.ready() == ready
    assert sum_of_round(workers, ready.first_number + 2) == [3, 3]
    for worker in workers:
        second.client.leave(worker.request)
    assert admit(join_all(second, switch)).first_number == ready.first_number + 3


def test_nobody_is_sent_away_by_a_controller_that_knows_nothing_yet(
    switch: AnySwitch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = left_running(start, switch)
    read_state = Session.read_state

    def read_slowly(self: Session) -> SwitchState:
        time.sleep(0.5)
        return read_state(self)

    monkeypatch.setattr(Session, "read_state", read_slowly)
    second = start()
    assert second.client.heartbeat(workers[0].request).lost == []
    second.client.leave(workers[1].request)
    assert [member.state for member in show(second).members] == ["admitted", "left"]


def test_a_controller_that_died_before_everybody_had_left(switch: AnySwitch, start: Start) -> None:
    first = start()
    create(first, timeout_s=patience(1.0))
    workers = join_all(first, switch)
    admit(workers)
    first.client.leave(workers[0].request)
    first.stop()
    second = start()
    assert second.connected.wait(LONG_S)
    states = [member.state for member in show(second).members]
    assert states == ["left", "admitted"], "who has left is not declared lost later"
    eventually(lambda: show(second).state == "waiting")


def test_an_ephemeral_job_whose_members_were_all_killed_keeps_no_slots(switch: AnySwitch, start: Start) -> None:
    first = start()
    request = rpc.CreateJobRequest(job="a", workers=2, slots=SLOTS, timeout_s=patience(0.6), ephemeral=True)
    first.client.create_job(request)
    admit(join_all(first, switch))
    first.stop()
    second = start()  # it knows from the switch what kind of job it is
    assert second.connected.wait(LONG_S)
    assert show(second).state == "running"
    eventually(lambda: not second.client.list_jobs().jobs)


def test_a_switch_that_was_restarted_gets_everything_again(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    ready = admit(workers)
    assert sum_of_round(workers, ready.first_number) == [3, 3]
    assert ready.loads == 1
    running.connected.clear()
    switch.restart()
    assert running.connected.wait(LONG_S)
    assert running.client.heartbeat(workers[0].request) == member_rpc.HeartbeatReply(
        epoch=workers[0].joined.epoch, loads=2
    )
    assert sum_of_round(workers, ready.first_number + 1) == [3, 3]


def test_without_a_switch_callers_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "SWITCH_WAIT_S", 0.2)
    running = RunningController(f"unix:{tmp_path}/nowhere", f"unix:{tmp_path}/controller")
    try:
        for call in (
            lambda: create(running),
            lambda: show(running),
            running.client.list_jobs,
            running.client.statistics,
        ):
            with pytest.raises(SwitchLost, match="no connection to the switch at unix:"):
                call()
        member = member_rpc.MemberRequest(job="a", nonce=1)
        for tell in (running.client.heartbeat, running.client.leave):
            with pytest.raises(ControllerUnreachable, match="has just started"):
                tell(member)
    finally:
        running.stop()


def test_calls_wait_a_moment_for_a_switch_that_is_on_its_way(
    embedded: AnySwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "SWITCH_WAIT_S", LONG_S)
    embedded.close()
    running = RunningController(embedded.address, f"unix:{tmp_path}/controller")
    timer = threading.Timer(0.5, embedded._start)  # type: ignore[attr-defined]
    timer.start()
    assert create(running).state == "waiting"
    timer.join()
    running.stop()


def test_nobody_is_answered_between_a_switch_s_connection_and_the_reading_of_its_jobs(
    switch: AnySwitch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = left_running(start, switch)
    connect_one = upkeep.Upkeep._connect_one
    asked: list[threading.Thread] = []
    replies: list[object] = []

    def ask(call: Callable[[], object]) -> None:
        try:
            replies.append(call())
        except Exception as error:
            replies.append(error)

    def connect_and_be_asked(self: upkeep.Upkeep, *arguments: Any) -> bool:
        came = connect_one(self, *arguments)
        if came and not asked:
            other = rpc.CreateJobRequest(job="b", workers=1, slots=SLOTS)
            kept = self._reconciler
            for call in (
                partial(Members(kept).heartbeat, workers[0].request),
                partial(Users(kept).create_job, other),
            ):
                asked.append(threading.Thread(target=ask, args=(call,)))
                asked[-1].start()
            for thread in asked:
                thread.join(0.2)
        return came

    monkeypatch.setattr(upkeep.Upkeep, "_connect_one", connect_and_be_asked)
    second = start()
    assert show(second).state == "running"
    for thread in asked:
        thread.join(LONG_S)
    heartbeat = next(reply for reply in replies if isinstance(reply, member_rpc.HeartbeatReply))
    created = next(reply for reply in replies if isinstance(reply, rpc.JobInfo))
    assert (heartbeat.lost, created.number) == ([], show(second).number + 1)
