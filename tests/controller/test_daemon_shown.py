"""What a running controller shows and counts, and its drop simulator."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from switchsum_controller.switches.switch_session import Session
from switchsum_protocol import member_rpc, reports, rpc
from switchsum_protocol.errors import NotAdmitted, SwitchLost, UnknownJob, UsageError
from switchsum_protocol.frame import Header, Kind, Reason, payload_bytes
from switchsum_switch.wires.headers import LOWER_BYTES

from .conftest import Start
from .rig import (
    LANES,
    LONG_S,
    SLOTS,
    AnySwitch,
    Bmv2Switch,
    EmbeddedSwitch,
    RunningController,
    admit,
    count,
    create,
    eventually,
    join_all,
    program,
    sum_of_round,
)

pytestmark = pytest.mark.timeout(120)


def test_loss_is_simulated_where_members_are_now_or_later(switch: AnySwitch, start: Start) -> None:
    running = start()
    reported = running.client.set_loss(rpc.LossRequest(egress=1.0))
    assert (reported.ingress_loss, reported.egress_loss) == (0.0, 1.0)  # though no port has members yet
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
    sample = partial(running.controller.users.sample, "a")
    with pytest.raises(UsageError, match="has slots 0 to 3, not slot 4"):
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


@pytest.mark.parametrize("what", ["slots", "statistics"])
def test_a_switch_that_is_read_holds_up_nobody_else(
    embedded: EmbeddedSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    running = RunningController(embedded.address, f"unix:{tmp_path}/controller")
    asked, go_on = threading.Event(), threading.Event()
    name = {"slots": "query", "statistics": "count_events"}[what]
    read = getattr(Session, name)

    def read_late(session: Session, *values: Any) -> Any:
        asked.set()
        assert go_on.wait(LONG_S)
        return read(session, *values)

    monkeypatch.setattr(Session, name, read_late)
    try:
        create(running)
        users = running.controller.users
        ask = {
            "slots": lambda: len(users.slots(rpc.SlotsRequest(job="a")).slots),
            "statistics": lambda: len(users.statistics(member_rpc.Empty()).switches),
        }[what]
        with ThreadPoolExecutor(2) as pool:
            reading = pool.submit(ask)
            assert asked.wait(LONG_S)
            try:
                others = pool.submit(create, running, "b")
                others.result(timeout=LONG_S / 2)
                assert not reading.done()
            finally:
                go_on.set()
            assert reading.result(timeout=LONG_S) == {"slots": 2 * SLOTS, "statistics": 1}[what]
    finally:
        running.stop()


def test_a_connection_that_ends_while_its_switch_is_read_is_lost(
    embedded: EmbeddedSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = RunningController(embedded.address, f"unix:{tmp_path}/controller")
    read = Session.query

    def read_closed(session: Session, *values: Any) -> Any:
        session.close()
        return read(session, *values)

    try:
        create(running)
        with monkeypatch.context() as patched:
            patched.setattr(Session, "query", read_closed)
            with pytest.raises(SwitchLost, match="closed meanwhile"):
                running.client.slots(rpc.SlotsRequest(job="a"))
        eventually(lambda: running.controller.reconciler.fleet.is_up)
        assert len(running.client.slots(rpc.SlotsRequest(job="a")).slots) == 2 * SLOTS
    finally:
        running.stop()


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
    assert second.host == "h?[2J" + "x" * (member_rpc.MOST_TEXT - 5)
    for wrong in (-1, 1 << 64):
        with pytest.raises(UsageError, match="begun"):
            running.client.call("Report", replace(report, begun=wrong), member_rpc.Empty)
    with pytest.raises(UsageError, match="NaN is no number"):
        running.client.call("Report", replace(report, waiting_s=float("nan")), member_rpc.Empty)
    with pytest.raises(NotAdmitted):
        running.client.call("Report", replace(report, nonce=1), member_rpc.Empty)
    with pytest.raises(UnknownJob):
        running.client.workers(rpc.JobRequest(job="b"))
