"""Two controllers, or other P4Runtime clients, want the same switch."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from switchsum.cli import controller as command
from switchsum_controller.service import controller as daemon
from switchsum_controller.service import reconciler
from switchsum_controller.service.config import Config
from switchsum_controller.switches.client import P4RuntimeClient
from switchsum_controller.switches.switch_session import Session
from switchsum_controller.tables.entries import SwitchState
from switchsum_controller.trees.fabric import ONLY
from switchsum_protocol import rpc
from switchsum_protocol.errors import LocalError, SwitchLost

from .conftest import Start
from .rig import (
    LONG_S,
    SWITCH,
    AnySwitch,
    Bmv2Switch,
    RunningController,
    admit,
    create,
    eventually,
    join_all,
    program,
    show,
    sum_of_round,
)

pytestmark = pytest.mark.timeout(120)


def test_the_second_controller_of_a_switch_waits_for_the_first_to_go_and_has_nothing_to_write(
    switch: AnySwitch, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    create(first)
    workers = join_all(first, switch)
    number = admit(workers).first_number
    second = RunningController(switch.address, f"unix:{tmp_path}/second")
    try:
        assert not second.connected.wait(1.0)
        create(first, "b")
        assert sum_of_round(workers, number) == [3, 3]
        first.stop()
        written: list[object] = []
        monkeypatch.setattr(Session, "write", lambda _, steps, timeout_s: written.append(steps))
        assert second.connected.wait(LONG_S)
        assert not written
        assert all(second.client.heartbeat(worker.request).lost == [] for worker in workers)
        assert sum_of_round(workers, number + 1) == [3, 3]
        assert [job.job for job in second.client.list_jobs().jobs] == ["a", "b"]
    finally:
        second.stop()


def test_a_controller_that_was_ousted_starts_from_what_is_on_the_switch(
    switch: AnySwitch, start: Start, tmp_path: Path
) -> None:
    first = start()
    create(first)
    second = RunningController(switch.address, f"unix:{tmp_path}/second", election_id=1 << 20)
    try:
        assert second.connected.wait(LONG_S)
        second.client.remove_job(rpc.RemoveJobRequest(job="a"))
        create(second, "b")
        eventually(lambda: not first.controller.reconciler.fleet.is_up)
        with pytest.raises(SwitchLost, match=f"controller {1 << 20} is primary"):
            first.client.list_jobs()
    finally:
        second.stop()


def test_members_hear_at_once_that_another_client_has_taken_the_switch(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    admit(workers)
    assert sum_of_round(workers, workers[0].ready().first_number) == [3, 3]
    stranger = P4RuntimeClient(switch.address, election_id=1 << 100)
    stranger.connect()
    eventually(lambda: not running.controller.reconciler.fleet.is_up)
    asked = time.monotonic()
    for worker in workers:
        with pytest.raises(SwitchLost, match="another P4Runtime client has become primary"):
            running.client.heartbeat(worker.request)
    assert time.monotonic() - asked < reconciler.SWITCH_WAIT_S
    running.client.leave(workers[0].request)

    stranger.close()  # the place is vacant: the controller takes it again, and nobody goes on as if nothing had been
    eventually(lambda: running.controller.reconciler.fleet.is_up)
    with pytest.raises(SwitchLost, match="another P4Runtime client"):
        running.client.heartbeat(workers[1].request)
    job = show(running)
    assert (job.state, {member.state for member in job.members}) == ("waiting", {"expected"})
    again = join_all(running, switch)
    assert sum_of_round(again, admit(again).first_number) == [3, 3]


def test_a_primary_that_came_and_went_between_two_looks_is_noticed_by_a_write(switch: AnySwitch, start: Start) -> None:
    if isinstance(switch, Bmv2Switch):
        pytest.skip("BMv2 gives the place back to the client that had it before")
    running = start()
    create(running)
    workers = join_all(running, switch)
    admit(workers)
    with running.controller.reconciler.changed:  # the stream's news waits
        stranger = P4RuntimeClient(switch.address, election_id=1 << 100)
        stranger.connect()
        stranger.close()
        with pytest.raises(SwitchLost):
            running.controller.reconciler.fleet.change({ONLY: SwitchState()})
    with pytest.raises(SwitchLost, match="another P4Runtime client"):
        running.client.heartbeat(workers[0].request)


def test_a_controller_that_stands_by_ends_by_a_signal_that_comes_while_another_one_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def be_late(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise LocalError("another process listens there already")

    monkeypatch.setattr("switchsum_controller.service.server.Service", be_late)
    monkeypatch.setattr(command, "is_listening", lambda _: True)
    kept = daemon.Controller(Config(program=program(), switch_address="unix:/nowhere", address=SWITCH))
    former = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with pytest.raises(SystemExit) as ended:
            command.take_place(kept, "unix:/nowhere", standby=True)
        assert ended.value.code == 0
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), former, strict=True):
            signal.signal(number, handler)


def test_a_launched_controller_waits_until_its_switch_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([False, False, True])
    asked = []

    def look(address: str) -> bool:
        asked.append(address)
        return next(looks)

    monkeypatch.setattr(command, "is_listening", look)
    command.await_switch("unix:/there", lambda: False)
    assert asked == ["unix:/there"] * 3
    command.await_switch("unix:/there", lambda: True)  # it is to stop
    assert len(asked) == 3
