from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from switchsum.cli import controller as command
from switchsum.controller import daemon, upkeep
from switchsum.controller.client import P4RuntimeClient
from switchsum.controller.config import Config
from switchsum.controller.entries import SwitchState, Write
from switchsum.controller.fabric import ONLY
from switchsum.controller.switch import Build, Switch
from switchsum.protocol import member_rpc, reports, rpc
from switchsum.protocol.errors import (
    ControllerUnreachable,
    LocalError,
    NoCapacity,
    NotAdmitted,
    RankTaken,
    RemoteError,
    SwitchLost,
    UnknownJob,
    UsageError,
    VersionMismatch,
    WorldSizeMismatch,
)
from switchsum.protocol.frame import LOWER_BYTES, WIRE_VERSION, Header, Kind, Reason, payload_bytes
from switchsum.protocol.p4runtime import Code, Failure, P4RuntimeError

from ..timing import patience
from .conftest import Start
from .rig import (
    LANES,
    LONG_S,
    SWITCH,
    AnySwitch,
    Bmv2Switch,
    RunningController,
    Worker,
    admit,
    answers,
    eventually,
    program,
    sum_of_round,
)

pytestmark = pytest.mark.timeout(120)

SLOTS = 4


def create(running: RunningController, job: str = "a", workers: int = 2, timeout_s: float = LONG_S) -> rpc.JobInfo:
    return running.client.create_job(rpc.CreateJobRequest(job=job, workers=workers, slots=SLOTS, timeout_s=timeout_s))


def show(running: RunningController, job: str = "a") -> rpc.JobInfo:
    return running.client.show_job(rpc.JobRequest(job=job))


def join_all(running: RunningController, switch: AnySwitch, size: int = 2, job: str = "a") -> list[Worker]:
    return [Worker(running.client, switch, rank, job=job, size=size) for rank in range(size)]


def count(running: RunningController, reason: Reason) -> int:
    [counter] = [one for one in running.client.statistics().counters if one.reason == reason.name.lower()]
    return counter.packets


def following(epoch: int, steps: int = 1) -> int:
    """Return the epoch after one; the first is drawn at random."""
    return (epoch + steps) & 0xFFFF


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
        waiting = workers[0].ready(wait_s=0.05)
        assert (waiting.admitted, waiting.missing) == (False, [1])
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


def test_ready_answers_as_soon_as_the_last_hello_has_come(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    found: list[member_rpc.ReadyReply] = []
    waiting = [threading.Thread(target=lambda w=worker: found.append(w.ready())) for worker in workers]
    for thread in waiting:
        thread.start()
    started = time.monotonic()
    for worker in workers:
        worker.hello()
    for thread in waiting:
        thread.join()
    assert [reply.admitted for reply in found] == [True, True]
    assert time.monotonic() - started < LONG_S / 2


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
    running.controller._config = replace(running.controller._config, package_version="1.2")
    for error, text, fields in refusals:
        with pytest.raises(error, match=text):
            join(member_rpc.JoinRequest(**{"job": "a", "rank": 1, "world_size": 2, **fields}))
    with pytest.raises(UsageError, match="a job 'a' already"):
        create(running)
    with pytest.raises(NoCapacity, match="1020 are free"):
        running.client.create_job(rpc.CreateJobRequest(job="b", workers=2, slots=1021))
    with pytest.raises(NotAdmitted):
        running.client.heartbeat(member_rpc.MemberRequest(job="a", nonce=1))
    assert time.monotonic() - started < patience(2)


def watch_writes(monkeypatch: pytest.MonkeyPatch) -> list[Write]:
    writes: list[Write] = []
    write = Switch.write

    def spy(self: Switch, steps: list[list[Write]]) -> None:
        writes.extend(one for step in steps for one in step)
        write(self, steps)

    monkeypatch.setattr(Switch, "write", spy)
    return writes


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
    first = start()
    create(first)
    workers = join_all(first, switch)
    admit(workers)
    first.stop()
    read_state = Switch.read_state

    def read_slowly(self: Switch) -> SwitchState:
        time.sleep(0.5)
        return read_state(self)

    monkeypatch.setattr(Switch, "read_state", read_slowly)
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


def test_a_killed_member_is_lost_and_can_be_replaced(switch: AnySwitch, start: Start) -> None:
    running = start()
    epoch = create(running, timeout_s=patience(0.6)).epoch
    workers = join_all(running, switch)
    admit(workers)
    alive = workers[0]
    eventually(lambda: running.client.heartbeat(alive.request).lost == [1])
    assert running.client.heartbeat(alive.request).epoch == epoch
    with pytest.raises(NotAdmitted, match="declared lost"):
        workers[1].ready()
    [replacement] = [Worker(running.client, switch, 1)]
    assert running.client.heartbeat(alive.request).epoch == replacement.joined.epoch == following(epoch)
    with pytest.raises(RankTaken):
        Worker(running.client, switch, 0)
    running.client.leave(alive.request)
    again = Worker(running.client, switch, 0)
    ready = admit([again, replacement])
    assert sum_of_round([again, replacement], ready.first_number) == [3, 3]


def test_who_joins_with_the_rank_of_a_killed_process_waits_until_that_is_lost(switch: AnySwitch, start: Start) -> None:
    running = start()
    epoch = create(running, timeout_s=patience(60)).epoch
    workers = join_all(running, switch)
    admit(workers)
    connections: list[Callable[[], None]] = []

    def note(end: Callable[[], None]) -> bool:
        connections.append(end)
        return True

    for worker in workers:
        next(running.controller.attend(worker.request, note))
    with pytest.raises(RankTaken):  # its process lives
        Worker(running.client, switch, 1)
    connections[1]()
    eventually(lambda: not running.controller._jobs.member(workers[1].request.nonce)[2].connections)
    replacement = Worker(running.client, switch, 1)
    assert replacement.joined.epoch == following(epoch)
    assert running.client.heartbeat(workers[0].request).lost == [1]


@pytest.mark.parametrize("action", ["remove", "resize"])
def test_members_are_cut_off_when_their_job_is_removed_or_resized(switch: AnySwitch, start: Start, action: str) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    ready, ready_epoch = admit(workers), workers[0].joined.epoch
    with pytest.raises(UsageError, match="has 2 members, whom this would cut off; --force"):
        running.client.remove_job(rpc.RemoveJobRequest(job="a"))
    with pytest.raises(UsageError, match="has 2 members, whom this would cut off; --force"):
        running.client.resize_job(rpc.ResizeJobRequest(job="a", workers=3))
    with pytest.raises(UsageError, match="--workers or --slots"):
        running.client.resize_job(rpc.ResizeJobRequest(job="a"))
    same = running.client.resize_job(rpc.ResizeJobRequest(job="a", workers=2))
    assert (same.epoch, same.state) == (ready_epoch, "running")
    running.client.heartbeat(workers[0].request)
    if action == "remove":
        running.client.remove_job(rpc.RemoveJobRequest(job="a", force=True))
    else:
        resized = running.client.resize_job(rpc.ResizeJobRequest(job="a", workers=3, slots=8, force=True))
        assert (resized.workers, resized.slot_count, resized.epoch) == (3, 8, following(ready_epoch, 2))
    switch.collect()
    workers[0].contribute(ready.first_number, 1)
    [answer] = answers(switch, 1)
    assert answer.header.reason == Reason.NOT_ADMITTED
    with pytest.raises(NotAdmitted, match=f"was {action}"):
        running.client.heartbeat(workers[0].request)
    if action == "resize":
        assert admit(join_all(running, switch, size=3)).slot_count == 8


def test_members_hear_what_each_of_them_has_issued(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running, workers=3)
    workers = join_all(running, switch, size=3)
    admit(workers)

    def compare(rank: int, wait_s: float = LONG_S) -> list[str]:
        nonce = workers[rank].request.nonce
        request = member_rpc.CompareRequest(job="a", nonce=nonce, operation=f"sum {rank}", wait_s=wait_s)
        return running.client.compare(request).operations

    assert compare(0, wait_s=0.0) == ["sum 0", "", ""]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(compare, range(3))) == [["sum 0", "sum 1", "sum 2"]] * 3


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


def test_survivors_form_a_job_of_their_own(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running, workers=3, timeout_s=patience(1.6))
    workers = join_all(running, switch, size=3)
    admit(workers)

    def ask(worker: Worker) -> member_rpc.ReformReply:
        request = member_rpc.ReformRequest(job="a", nonce=worker.request.nonce, wait_s=0.1)
        while (reply := running.client.reform(request)).rank < 0:
            assert set(reply.missing) <= {0, 1, 2}
        return reply

    # Rank 1 says nothing any more, and after a while it is not waited for.
    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(ask, [workers[0], workers[2]]))
    assert replies == [member_rpc.ReformReply(rank=0, world_size=2), member_rpc.ReformReply(rank=1, world_size=2)]
    with pytest.raises(NotAdmitted):
        running.client.heartbeat(workers[0].request)
    again = join_all(running, switch)
    assert [worker.joined.epoch for worker in again] == [following(workers[0].joined.epoch, 2)] * 2
    ready = admit(again)
    assert sum_of_round(again, ready.first_number) == [3, 3]
    # The dead incarnation's frames are refused.
    refused = count(running, Reason.NOT_ADMITTED)
    workers[1].contribute(ready.first_number + 1, 100)
    workers[0].contribute(ready.first_number + 1, 100)
    eventually(lambda: count(running, Reason.NOT_ADMITTED) == refused + 2)
    assert sum_of_round(again, ready.first_number + 1) == [3, 3]


def test_loss_is_simulated_where_members_are_now_or_later(switch: AnySwitch, start: Start) -> None:
    running = start()
    told = running.client.set_loss(rpc.LossRequest(egress=1.0))
    assert (told.ingress_loss, told.egress_loss) == (0.0, 1.0)  # though no port has members yet
    create(running)
    workers = join_all(running, switch)
    ready = admit(workers)
    ports = {port.port: (port.members, port.ingress_loss, port.egress_loss) for port in running.client.ports().ports}
    assert ports == {1: (["a/0"], 0.0, 1.0), 2: (["a/1"], 0.0, 1.0)}
    assert sum_of_round(workers, ready.first_number, results=0) == []
    eventually(lambda: count(running, Reason.LOST_EGRESS) == 2)
    running.client.set_loss(rpc.LossRequest(port=1))
    assert sum_of_round(workers, ready.first_number + 1, results=1) == [3]
    running.client.set_loss(rpc.LossRequest(ingress=1.0))
    assert sum_of_round(workers, ready.first_number + 2, results=0) == []
    eventually(lambda: count(running, Reason.LOST_INGRESS) == 2)
    running.client.set_loss(rpc.LossRequest())
    assert sum_of_round(workers, ready.first_number + 2) == [3, 3]
    for request in (rpc.LossRequest(port=255), rpc.LossRequest(port=511), rpc.LossRequest(ingress=1.5)):
        with pytest.raises(UsageError):
            running.client.set_loss(request)


def test_a_new_incarnations_frames_are_counted_from_0(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    for _ in range(2):
        workers = join_all(running, switch)
        ready = admit(workers)
        sum_of_round(workers, ready.first_number)
        members = running.client.statistics().members
        assert [(one.rank, one.contributions, one.results) for one in members] == [(0, 1, 1), (1, 1, 1)]
        for member in members:
            assert {one.reason: one.packets for one in member.reasons if one.packets} == {"contributed": 1}
        for worker in workers:
            running.client.leave(worker.request)
    assert running.client.statistics().members == []


def test_packets_of_a_slot_are_seen_as_they_pass_and_not_by_bmv2(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    number = admit(workers).first_number
    sample = partial(running.controller.sample, "a")
    with pytest.raises(UsageError, match="has slots 0 to 3, and not slot 4"):
        sample(4, 0.0)
    if isinstance(switch, Bmv2Switch):
        with pytest.raises(UsageError, match="shows no packets"):
            sample(1, 0.0)
        return
    assert sample(1, 0.0) == []
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(sample, 1, 2.0)
        while not asked.done():
            for slot, worker in itertools.product((1, 2), workers):
                worker.contribute(number, 1, slot)
            number += 1
            time.sleep(0.01)
    found = [frame for _, frame in asked.result()]
    assert len(found) >= 4
    for frame in found:
        header = Header.unpack(bytes.fromhex(frame.head)[LOWER_BYTES:])
        assert header is not None
        assert (header.kind, header.slot) == (Kind.RESULT if frame.is_sent else Kind.CONTRIBUTION, 1)
        assert frame.length > len(frame.head) // 2


def test_slots_counters_and_identity_are_shown(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running, "other")
    create(running)
    workers = join_all(running, switch)
    ready = admit(workers)
    assert ready.first_slot == SLOTS
    sum_of_round(workers, ready.first_number, slot=2)
    workers[1].contribute(ready.first_number + 1, 1, slot=2)
    switch.collect()
    cells = running.client.slots(rpc.SlotsRequest(job="a")).slots
    assert [(cell.slot, cell.version, cell.job) for cell in cells] == [
        (slot, version, "a") for slot in range(SLOTS, 2 * SLOTS) for version in (0, 1)
    ]
    used = {(cell.slot, cell.number): cell.seen for cell in cells if cell.seen}
    assert used == {(SLOTS + 2, ready.first_number): 0b11, (SLOTS + 2, ready.first_number + 1): 0b10}
    assert len(running.client.slots(rpc.SlotsRequest(limit=3)).slots) == 6
    assert running.client.slots(rpc.SlotsRequest(limit=-1)).slots == []
    eventually(lambda: count(running, Reason.CONTRIBUTED) == 3)
    assert count(running, Reason.COMPLETED) == 1
    first, second = running.client.statistics().members
    assert [(one.job, one.rank, one.contributions, one.results) for one in (first, second)] == [
        ("a", 0, 1, 1),
        ("a", 1, 2, 1),
    ]
    assert second.contribution_bytes == 2 * first.contribution_bytes > 2 * payload_bytes(LANES)
    assert {one.reason: one.packets for one in second.reasons if one.packets} == {"contributed": 2}
    info = running.client.info()
    assert (info.lanes_per_frame, info.program_digest, info.switch) == (128, program().digest, switch.address)
    assert info.free_slots == 1024 - 2 * SLOTS
    assert [job.job for job in running.client.list_jobs().jobs] == ["other", "a"]


def test_a_switch_that_is_full_is_no_fault_of_the_controllers(
    switch: AnySwitch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    write = Switch.write

    def refuse(self: Switch, steps: list[list[Write]]) -> None:
        write(self, steps[:1])
        full = Failure(index=0, code=Code.RESOURCE_EXHAUSTED, message="table full", update=None)
        raise P4RuntimeError("Write", Code.UNKNOWN, "", [full])

    monkeypatch.setattr(Switch, "write", refuse)
    with pytest.raises(NoCapacity, match="table full"):
        create(running, "b")
    for worker in workers:
        worker.hello()
    with pytest.raises(NoCapacity, match="table full"):
        workers[0].ready()
    monkeypatch.setattr(Switch, "write", write)
    assert [job.job for job in running.client.list_jobs().jobs] == ["a"]
    ready = admit(join_all(running, switch))
    assert ready.admitted


def test_without_a_switch_callers_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "SWITCH_WAIT_S", 0.2)
    running = RunningController(f"unix:{tmp_path}/nowhere", f"unix:{tmp_path}/controller")
    try:
        for call in (
            lambda: create(running),
            lambda: show(running),
            running.client.list_jobs,
            running.client.statistics,
        ):
            with pytest.raises(SwitchLost, match="no switch at unix:"):
                call()
        member = member_rpc.MemberRequest(job="a", nonce=1)
        for tell in (running.client.heartbeat, running.client.leave):
            with pytest.raises(ControllerUnreachable, match="just been started"):
                tell(member)
    finally:
        running.stop()


def test_calls_wait_a_moment_for_a_switch_that_is_on_its_way(
    embedded: AnySwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SWITCH_WAIT_S", LONG_S)
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
    first = start()
    create(first)
    workers = join_all(first, switch)
    admit(workers)
    first.stop()
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
            for call in (partial(self.heartbeat, workers[0].request), partial(self.create_job, other)):  # type: ignore[attr-defined]
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
        monkeypatch.setattr(Switch, "write", lambda _, steps: written.append(steps))
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
        eventually(lambda: not first.controller._fleet.is_up)
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
    eventually(lambda: not running.controller._fleet.is_up)
    asked = time.monotonic()
    for worker in workers:
        with pytest.raises(SwitchLost, match="another P4Runtime client has become primary"):
            running.client.heartbeat(worker.request)
    assert time.monotonic() - asked < upkeep.SWITCH_WAIT_S
    running.client.leave(workers[0].request)

    stranger.close()  # the place is vacant: the controller takes it again, and nobody goes on as if nothing had been
    eventually(lambda: running.controller._fleet.is_up)
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
    with running.controller._changed:  # the stream's news waits
        stranger = P4RuntimeClient(switch.address, election_id=1 << 100)
        stranger.connect()
        stranger.close()
        with pytest.raises(SwitchLost):
            running.controller._fleet.change({ONLY: SwitchState()})
    with pytest.raises(SwitchLost, match="another P4Runtime client"):
        running.client.heartbeat(workers[0].request)


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

    def refuse(self: Switch, steps: list[list[Write]]) -> None:
        raise P4RuntimeError("Write", Code.INVALID_ARGUMENT, "never heard of it")

    create(running)
    running.client.set_loss(rpc.LossRequest(port=3, egress=0.5))
    with monkeypatch.context() as patched:
        patched.setattr(Switch, "write", refuse)
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
        original = getattr(Switch, method)

        def fail_once(*arguments: Any, failures: Any = failures, original: Any = original) -> Any:
            for failure in failures:
                raise failure
            return original(*arguments)

        monkeypatch.setattr(Switch, method, fail_once)
    running = start()
    assert running.connected.wait(LONG_S)
    assert create(running).state == "waiting"


def test_short_hellos_show_that_long_ones_get_lost(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    first, second = join_all(running, switch)
    second.hello()
    first.hello(whole=False)
    eventually(lambda: first.ready(wait_s=0.0).hello_cut)
    assert not first.ready(wait_s=0.0).hello_seen
    assert second.ready(wait_s=0.0).missing == [0]
    assert admit([first]).admitted
    assert not second.ready(wait_s=0.0).hello_cut


@pytest.mark.parametrize(("part", "said"), [("mac", "Ethernet address, .* at ports 1 and 2"), ("ip", "IP address")])
def test_two_hosts_of_one_address_are_refused(switch: AnySwitch, start: Start, part: str, said: str) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    workers[1].address = replace(workers[1].address, **{part: getattr(workers[0].address, part)})
    for worker in workers:
        worker.hello()
    with pytest.raises(NotAdmitted, match=f"ranks 0 and 1 have the same {said}"):
        workers[0].ready()
    again = join_all(running, switch)
    assert sum_of_round(again, admit(again).first_number) == [3, 3]


def test_ranks_of_one_host_have_its_addresses(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    workers[1].address = replace(workers[0].address, port=workers[1].address.port)
    workers[1].port = workers[0].port
    ready = admit(workers)
    assert sum_of_round(workers, ready.first_number) == [3, 3]


def test_hellos_of_strangers_are_ignored(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    first, second = join_all(running, switch)
    switch.send(3, first.frame(Kind.HELLO, number=1, digest=2))
    switch.send(3, second.frame(Kind.HELLO, rank=0))
    assert first.ready(wait_s=0.2).missing == [0, 1]
    assert admit([first, second]).admitted
    assert {member.ingress_port for member in show(running).members} == {1, 2}


def test_reports_of_members_are_kept_by_rank(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    report = reports.WorkerReport(
        job="a", nonce=workers[1].joined.nonce, host="h\x1b[2J" + "x" * 99, begun=7, waiting_s=2.5
    )
    running.client.call("Report", report, member_rpc.Empty)
    first, second = running.client.workers(rpc.JobRequest(job="a")).workers
    assert first == rpc.WorkerInfo(rank=0)
    assert (second.rank, second.begun, second.waiting_s) == (1, 7, 2.5)
    assert 0 <= second.age_s < LONG_S
    assert second.host == "h?[2J" + "x" * (reports.MOST_TEXT - 5)
    for wrong in (-1, 1 << 64):
        with pytest.raises(UsageError, match="begun"):
            running.client.call("Report", replace(report, begun=wrong), member_rpc.Empty)
    with pytest.raises(UsageError, match="waiting_s"):
        running.client.call("Report", replace(report, waiting_s=float("nan")), member_rpc.Empty)
    with pytest.raises(NotAdmitted):
        running.client.call("Report", replace(report, nonce=1), member_rpc.Empty)
    with pytest.raises(UnknownJob):
        running.client.workers(rpc.JobRequest(job="b"))


def test_a_controller_that_stands_by_ends_by_a_signal_that_comes_while_another_one_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def be_late(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise LocalError("another process listens there already")

    monkeypatch.setattr("switchsum.controller.service.Service", be_late)
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
