"""Jobs of a controller that is a process of its own with a switch: created, run, refused; and errors of the switch."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from support.timing import eventually
from switchsum_controller.service import controller as daemon
from switchsum_controller.service.config import Config
from switchsum_controller.switches.switch_session import Build, Session
from switchsum_controller.tables.entries import Write
from switchsum_protocol import member_rpc, rpc
from switchsum_protocol.errors import (
    NoCapacity,
    NotAdmitted,
    RankTaken,
    RemoteError,
    UnknownJob,
    UsageError,
    VersionMismatch,
    WorldSizeMismatch,
)
from switchsum_protocol.frame import WIRE_VERSION, Kind, Reason
from switchsum_switch.messages.p4runtime import Code, Failure, P4RuntimeError

from .conftest import Start
from .rig import (
    LONG_S,
    SLOTS,
    SWITCH,
    AnySwitch,
    Bmv2Switch,
    Worker,
    admit,
    answers,
    create,
    following,
    join_all,
    show,
    sum_of_round,
)

pytestmark = pytest.mark.timeout(120)


def test_a_job_from_the_first_join_to_the_second_run(switch: AnySwitch, start: Start) -> None:
    running = start()
    created = create(running)
    assert created.state == "waiting"
    numbers = []
    for epoch in (created.epoch, following(created.epoch)):
        workers = join_all(running, switch)
        assert {worker.joined.epoch for worker in workers} == {epoch}
        assert workers[0].joined.growth_bytes == (512 if isinstance(switch, Bmv2Switch) else None)
        workers[0].hello()
        assert eventually(lambda: workers[0].ready(wait_s=0.05).missing == [1])  # noqa: B023 - called at once
        assert not workers[0].ready(wait_s=0.05).admitted
        ready = admit(workers)
        assert (ready.first_slot, ready.slot_count, ready.window_slots) == (0, SLOTS, SLOTS)
        numbers.append(ready.first_number)
        assert show(running).state == "running"
        for round_number in range(3):
            assert sum_of_round(workers, ready.first_number + round_number) == [3, 3]
        for worker in workers:
            running.client.leave(worker.request)
        assert show(running).state == "waiting"
    assert numbers == [1, 4], "the second run starts beyond what the slots have seen"
    stranger = workers[0]
    stranger.contribute(numbers[-1] + 3, 1)
    [answer] = answers(switch, 1)
    assert (answer.header.kind, answer.header.reason) == (Kind.REJECT, Reason.NOT_ADMITTED)


def test_the_window_is_what_bmv2s_ports_hold(switch: AnySwitch, start: Start) -> None:
    running = start(port_frames=2)
    create(running)
    assert admit(join_all(running, switch)).window_slots == 2


def test_a_job_without_a_number_of_slots_keeps_as_many_as_its_members_want(switch: AnySwitch, start: Start) -> None:
    running = start(port_frames=2)
    made = running.client.create_job(rpc.CreateJobRequest(job="a", workers=2, timeout_s=LONG_S))
    assert (made.slot_count, made.window_slots, made.fits_slots) == (member_rpc.MOST_IN_FLIGHT, 0, True)
    assert admit(join_all(running, switch)).window_slots == 2
    shown = show(running)
    assert (shown.slot_count, shown.window_slots) == (2, 2)
    running.stop()
    again = start(port_frames=2)
    assert again.connected.wait(LONG_S)
    found = show(again)
    assert (found.first_slot, found.slot_count, found.window_slots, found.fits_slots) == (0, 2, 2, True)


def test_refusals_come_at_once_and_by_name(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    join = running.client.join
    Worker(running.client, switch, 0)
    started = time.monotonic()
    refusals: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (UnknownJob, "no job 'b'", {"job": "b"}),
        (RankTaken, "rank 0 of job 'a' is held", {"rank": 0}),
        (RankTaken, "ranks 0 to 1, not 2", {"rank": 2}),
        (WorldSizeMismatch, "has 2 workers, not 3", {"world_size": 3}),
        (
            VersionMismatch,
            f"wire version 99 .*switchsum 9.9., the controller {WIRE_VERSION} .*switchsum 1.2.",
            {"wire_version": 99, "package_version": "9.9"},
        ),
        (VersionMismatch, "of another", {"wire_digest": "of another"}),
    ]
    running.controller.reconciler.config = replace(running.controller.reconciler.config, package_version="1.2")
    for error, text, fields in refusals:
        with pytest.raises(error, match=text):
            join(member_rpc.JoinRequest(**{"job": "a", "rank": 1, "world_size": 2, **fields}))
    with pytest.raises(UsageError, match="a job 'a' already"):
        create(running)
    with pytest.raises(NoCapacity, match="1020 are free"):
        running.client.create_job(rpc.CreateJobRequest(job="b", workers=2, slots=1021))
    with pytest.raises(NotAdmitted):
        running.client.heartbeat(member_rpc.MemberRequest(job="a", nonce=1))
    assert time.monotonic() - started < LONG_S / 2


def test_a_switch_that_is_full_is_no_fault_of_the_controllers(
    switch: AnySwitch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    write = Session.write

    def refuse(self: Session, steps: list[list[Write]], timeout_s: float | None = None) -> None:
        write(self, steps[:1])
        full = Failure(index=0, code=Code.RESOURCE_EXHAUSTED, message="table full", update=None)
        raise P4RuntimeError("Write", Code.UNKNOWN, "", [full])

    monkeypatch.setattr(Session, "write", refuse)
    with pytest.raises(NoCapacity, match="table full"):
        create(running, "b")
    for worker in workers:
        worker.hello()
    with pytest.raises(NoCapacity, match="table full"):
        workers[0].ready()
    monkeypatch.setattr(Session, "write", write)
    assert [job.job for job in running.client.list_jobs().jobs] == ["a"]
    ready = admit(join_all(running, switch))
    assert ready.admitted


def test_a_program_without_the_controllers_tables_is_refused_at_once() -> None:
    wrong = Build(lanes_per_frame=128, device_config=b"{}", p4info="tables { preamble { id: 1 name: 't' } }")
    for p4info in (wrong.p4info, "no p4info"):
        with pytest.raises(UsageError):
            daemon.Controller(
                Config(program=replace(wrong, p4info=p4info), switch_address="127.0.0.1:1", address=SWITCH)
            )


def test_errors_of_the_switch_that_have_no_class_are_remote_errors(
    switch: AnySwitch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start()

    def refuse(self: Session, steps: list[list[Write]], timeout_s: float | None = None) -> None:
        raise P4RuntimeError("Write", Code.INVALID_ARGUMENT, "never heard of it")

    create(running)
    running.client.set_loss(rpc.LossRequest(port=3, egress=0.5))
    with monkeypatch.context() as patched:
        patched.setattr(Session, "write", refuse)
        with pytest.raises(RemoteError, match="never heard of it"):
            create(running, "b")
        for request in (rpc.LossRequest(ingress=1.0), rpc.LossRequest(port=2, ingress=1.0)):
            with pytest.raises(RemoteError, match="never heard of it"):
                running.client.set_loss(request)
    # Nobody meets a loss that the user was told could not be set.
    ports = running.client.ports()
    assert (ports.ingress_loss, [(one.port, one.egress_loss) for one in ports.ports]) == (0.0, [(3, 0.5)])


def test_a_switch_that_fails_while_it_is_brought_up_to_date_is_tried_again(
    switch: AnySwitch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in ("read_state", "write"):
        failures = iter([P4RuntimeError(method, Code.UNAVAILABLE, "broken off")])
        original = getattr(Session, method)

        def fail_once(*arguments: Any, failures: Any = failures, original: Any = original) -> Any:
            for failure in failures:
                raise failure
            return original(*arguments)

        monkeypatch.setattr(Session, method, fail_once)
    running = start()
    assert running.connected.wait(LONG_S)
    assert create(running).state == "waiting"
