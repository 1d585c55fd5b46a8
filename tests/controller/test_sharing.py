"""Jobs that share slots, from the fleet's file to sums: what the controller plans, refuses, finds again and shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from switchsum.view.rounds import newest_rounds
from switchsum.view.words import slots_text
from switchsum_controller.jobs.registry import Jobs
from switchsum_controller.jobs.slots import SlotRange
from switchsum_controller.plan.plan import branches_of
from switchsum_controller.trees import moves
from switchsum_controller.trees.fabric import Fabric, FabricSwitch
from switchsum_controller.trees.fleet_file import parse
from switchsum_protocol import rpc
from switchsum_protocol.agreement_rpc import AgreeRequest
from switchsum_protocol.errors import NoCapacity, NotAdmitted, UsageError
from switchsum_protocol.frame import LANE_BYTES, NO_BLOCK, Header, Kind, Reason
from switchsum_protocol.wire import parse_frame
from switchsum_switch.messages.samples import SampledFrame
from switchsum_switch.wires.headers import LOWER_BYTES, Address

from . import rig
from .planned import make_settings
from .rig import LONG_S, SWITCH, RunningController, Worker, admit, eventually, program
from .test_tree_of_switches import Tree

AWAY = 4
"""Port of each switch that leads to the other."""
SHARED = 4
FLEET: dict[str, Any] = {
    "switches": {
        "spare": {"p4runtime": "unix:/b", "udp": "10.0.0.2:21333", "role": "aggregator"},
        "root": {"p4runtime": "unix:/a", "udp": "10.0.0.1:21333"},
    },
    "shared_slots": SHARED,
}


def fabric_at(addresses: dict[str, str]) -> Fabric:
    return Fabric(
        switches={
            "root": FabricSwitch(p4runtime=addresses["root"], address=SWITCH, ports={"spare": AWAY}),
            "spare": FabricSwitch(p4runtime=addresses["spare"], address=SWITCH, ports={"root": AWAY}),
        },
        fallback="spare",
        shared_slots=SHARED,
    )


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """Yield a switch and an aggregator with a controller."""
    monkeypatch.setattr("switchsum_controller.jobs.registry.UNHEARD_S", 3600.0)
    made = Tree(tmp_path, fabric_at, ("root", "spare"))
    yield made
    made.close()


def create(pair: Tree, job: str = "a", slots: int | None = None, own: int = 0) -> rpc.JobInfo:
    request = rpc.CreateJobRequest(job=job, workers=2, slots=slots, timeout_s=600.0, shares_slots=True, own_slots=own)
    return pair.running.client.create_job(request)


def join(pair: Tree, job: str, first_port: int) -> tuple[list[Worker], int]:
    """Admit a job's two workers; return them and their first number."""
    workers = []
    for rank in range(2):
        worker = Worker(pair.running.client, pair.switches["root"], rank, job=job)
        worker.port = first_port + rank
        worker.address = Address(
            mac=worker.address.mac + 16 * first_port, ip=worker.address.ip + 16 * first_port, port=40_000 + rank
        )
        workers.append(worker)
    reply = admit(workers)
    assert reply.shares_slots
    return workers, reply.first_number


def header_of(frame: SampledFrame) -> Header:
    header = Header.unpack(bytes.fromhex(frame.head)[LOWER_BYTES:])
    assert header is not None
    return header


def round_of(pair: Tree, workers: list[Worker], values: list[int] | None, **fields: int) -> list[tuple[int, int]]:
    """Let workers contribute, without lanes if there are no values; return value and reason of each result."""
    for worker in workers:
        lanes = b"" if values is None else values[worker.rank].to_bytes(LANE_BYTES) * 128
        given = {"slot": worker.first_slot, "flags": int(values is not None), "block": 0, **fields}
        worker.switch.send(worker.port, worker.frame(Kind.CONTRIBUTION, lanes, **given))
    found = []
    for frames in pair.carry().values():
        for _, frame in frames:
            packet = parse_frame(frame)
            assert packet is not None
            assert packet.header.kind == Kind.RESULT, packet
            found.append((int.from_bytes(packet.payload[:LANE_BYTES]), packet.header.reason))
    return found


def test_two_jobs_share_slots_and_who_holds_them_is_seen(pair: Tree) -> None:
    made = create(pair)
    assert (made.shares_slots, made.first_slot, made.slot_count, made.fallback) == (
        True,
        0,
        SHARED,
        "spare",
    )
    leaves = create(pair, "b").number
    (first, number), (second, other) = join(pair, "a", 1), join(pair, "b", 2)
    claim = {"block": NO_BLOCK, "next_block": 0}
    assert round_of(pair, first, None, number=number, digest=1, **claim) == [(0, 0)] * 2
    assert round_of(pair, second, None, number=other, digest=2, **claim) == [(0, Reason.TAKEN)] * 2
    held = pair.running.client.slots(rpc.SlotsRequest(job="b")).slots
    assert {cell.job for cell in held if cell.switch == "root" and cell.slot == 0} == {"a"}
    assert round_of(pair, second, [3, 4], number=other + 1, digest=2) == [(7, Reason.TAKEN)] * 2
    assert round_of(pair, first, [5, 6], number=number + 1, digest=1) == [(11, 0)] * 2
    assert round_of(pair, second, None, number=other + 2, digest=3, **claim) == [(0, 0)] * 2  # it is free now
    counted = {
        (one.job, one.rank): {reason.reason: reason.packets for reason in one.reasons}
        for one in pair.running.client.statistics().members
    }
    assert [counted["b", rank]["taken"] for rank in range(2)] == [2, 2]
    assert counted["a", 0]["taken"] == 0
    pair.running.client.remove_job(rpc.RemoveJobRequest(job="b", force=True))
    held = pair.running.client.slots(rpc.SlotsRequest(job="a")).slots
    assert {cell.job for cell in held if cell.switch == "root" and cell.slot == 0} == {f"#{leaves} (gone)"}


def test_a_job_has_slots_of_its_own_beside_those_that_it_shares(pair: Tree) -> None:
    create(pair)
    made = create(pair, "b", own=2)
    assert (made.first_slot, made.slot_count, made.own_first_slot, made.own_slot_count) == (
        0,
        SHARED,
        SHARED,
        2,
    )
    assert slots_text(made) == "4 to 5, shared 0 to 3"
    (first, number), (second, other) = join(pair, "a", 1), join(pair, "b", 2)
    ready = second[0].ready()
    assert (ready.first_slot, ready.first_shared_slot, ready.slot_count, ready.trees) == (SHARED, 0, SHARED + 2, [2, 4])
    assert ready.window_slots == SHARED + 2
    claim = {"block": NO_BLOCK, "next_block": 0}
    assert round_of(pair, first, None, number=number, digest=1, **claim) == [(0, 0)] * 2
    shared = {"tree": 1, "slot": 0}
    assert round_of(pair, second, None, number=other, digest=2, **claim, **shared) == [(0, Reason.TAKEN)] * 2
    assert round_of(pair, second, [3, 4], number=other, digest=3) == [(7, 0)] * 2
    held = pair.running.client.slots(rpc.SlotsRequest(job="b")).slots
    assert {(one.switch, one.slot) for one in held if one.job == "b" and one.seen} == {
        ("root", SHARED),  # its own
        ("spare", SHARED),  # the first that it shares, behind those of a
    }
    counted = {
        (one.job, one.rank): {reason.reason: reason.packets for reason in one.reasons}
        for one in pair.running.client.statistics().members
    }
    assert counted["b", 0]["taken"] == 1
    pair.restart_controller()
    after = pair.running.client.show_job(rpc.JobRequest(job="b"))
    assert (after.state, slots_text(after)) == ("running", slots_text(made))
    second[0].client = pair.running.client
    assert second[0].ready() == ready
    with pytest.raises(UsageError, match="slots 0 to 3 and 4 to 5, not slot 6"):
        pair.running.controller.users.sample("b", 6, 0.1)


def test_a_slot_is_another_jobs_at_the_aggregator(pair: Tree) -> None:
    """Each switch numbers its own slots: the same numbers are reserved by one job here, and by another one there."""
    create(pair)
    create(pair, "b")  # behind those of a, at the aggregator
    request = rpc.CreateJobRequest(job="own", workers=2, slots=SHARED, timeout_s=600.0)
    assert pair.running.client.create_job(request).first_slot == SHARED
    found = {(one.switch, one.slot): one.job for one in pair.running.client.slots(rpc.SlotsRequest(limit=99)).slots}
    assert {found["root", slot] for slot in range(SHARED)} == {""}  # nobody holds one
    assert {found["spare", slot] for slot in range(SHARED)} == {"a"}
    assert {found["root", SHARED + slot] for slot in range(SHARED)} == {"own"}
    assert {found["spare", SHARED + slot] for slot in range(SHARED)} == {"b"}


def test_a_slot_is_looked_at_where_the_job_has_it(pair: Tree) -> None:
    """The second job's slots at the aggregator are behind those of the first."""
    create(pair)
    made = create(pair, "b")
    assert (made.first_slot, made.fallback_slot) == (0, SHARED)
    request = rpc.CreateJobRequest(job="own", workers=2, slots=2, timeout_s=600.0)
    assert pair.running.client.create_job(request).first_slot == SHARED
    for job, there in (("b", SHARED), ("own", None)):
        held = pair.running.client.slots(rpc.SlotsRequest(job=job)).slots
        at_spare = sorted({cell.slot for cell in held if cell.switch == "spare"})
        assert at_spare == ([] if there is None else [*range(there, there + SHARED)])
    [worker, _], number = join(pair, "b", 2)
    frames = [worker.frame(Kind.CONTRIBUTION, b"", number=number, slot=slot) for slot in (1, SHARED + 1)]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(pair.running.controller.users.sample, "b", 1, 2.0)
        while not asked.done():
            for frame in frames:
                pair.switches["root"].send(worker.port, frame)
                pair.switches["spare"].send(AWAY, frame)
            time.sleep(0.01)
    found = {(name, header_of(frame).slot) for name, frame in asked.result()}
    assert found == {("root", 1), ("spare", SHARED + 1)}


def test_rounds_of_a_shared_slot_are_the_jobs_own(pair: Tree) -> None:
    """Nobody of b is missing in the slot that a holds; what b lacks at the aggregator is in the slot's number here."""
    create(pair)
    create(pair, "b")
    (first, number), (second, other) = join(pair, "a", 1), join(pair, "b", 2)
    claim = {"block": NO_BLOCK, "next_block": 0}
    assert round_of(pair, first, None, number=number, digest=1, **claim) == [(0, 0)] * 2
    assert round_of(pair, first[:1], [5], number=number + 1, digest=1) == []
    assert round_of(pair, second, None, number=other, digest=2, slot=1, **claim) == [(0, 0)] * 2
    assert round_of(pair, second[1:], None, number=other, digest=3, **claim) == []

    def missing(job: str) -> dict[int, list[int]]:
        shown = pair.running.client.show_job(rpc.JobRequest(job=job))
        rounds = newest_rounds(shown, pair.running.client.slots(rpc.SlotsRequest(job=job)).slots)
        assert [one.slot for one in rounds] == [*range(SHARED)]
        return {one.slot: one.missing for one in rounds if one.missing}

    eventually(lambda: missing("a") == {0: [1]})  # frames that bring no answer may not have been taken yet
    eventually(lambda: missing("b") == {0: [0]})


def test_a_restarted_controller_finds_the_job_again(pair: Tree) -> None:
    create(pair)
    workers, number = join(pair, "a", 1)
    before = pair.running.client.show_job(rpc.JobRequest(job="a"))
    pair.restart_controller()
    after = pair.running.client.show_job(rpc.JobRequest(job="a"))
    assert (after.epoch, after.state, after.shares_slots) == (before.epoch, "running", True)
    assert [one.address for one in after.members] == [one.address for one in before.members]
    claim = {"block": NO_BLOCK, "next_block": 0}
    assert round_of(pair, workers, None, number=number, digest=1, **claim) == [(0, 0)] * 2


def test_a_switch_and_an_aggregator_that_are_restarted_get_their_entries(pair: Tree) -> None:
    create(pair)
    workers, number = join(pair, "a", 1)
    claim = {"block": NO_BLOCK, "next_block": 0}
    for name in ("root", "spare"):
        loads = pair.running.client.heartbeat(workers[0].request).loads
        pair.switches[name].restart()
        eventually(lambda: pair.running.client.heartbeat(workers[0].request).loads > loads)  # noqa: B023
        assert all(worker.ready().admitted for worker in workers)
        assert len(round_of(pair, workers, None, number=number, digest=1, **claim)) == 2
        number += 1


def test_workers_at_the_aggregator_itself_are_refused(pair: Tree) -> None:
    create(pair)
    workers = [Worker(pair.running.client, pair.switches["spare"], rank, job="a") for rank in range(2)]
    for worker in workers:
        worker.hello()
    with pytest.raises(NotAdmitted, match="aggregator"):
        workers[0].ready()


def test_workers_of_a_switch_that_is_in_several_trees_are_refused_by_name() -> None:
    jobs = make_jobs()
    job = jobs.create("a", workers=1, slots=4, timeout_s=8.0, shares_slots=True)
    nonce = jobs.join("a", rank=0, world_size=1, now=0.0)[1].nonce
    assert jobs.hello(nonce, 0, SWITCH, 1, 0.0, switch="root")
    fabric = replace(fabric_at({"root": "", "spare": ""}), others=({},), shares=(1.0, 1.0))
    with pytest.raises(UsageError, match=r"job a shares slots, .* which is in one tree"):
        branches_of(job, job.gathering, make_settings(), fabric)


def test_those_who_go_on_without_a_late_rank_share_slots_as_their_job_does(pair: Tree) -> None:
    create(pair, slots=2, own=1)
    workers, _ = join(pair, "a", 1)
    asked = AgreeRequest(job="a", nonce=workers[0].joined.nonce, after=0, quorum=0.5, patience_s=0.01, wait_s=LONG_S)
    group = pair.running.controller.agreements.agree(asked).group
    made = pair.running.client.show_job(rpc.JobRequest(job=group))
    assert (made.workers, made.shares_slots, made.slot_count, made.fallback) == (1, True, 2, "spare")


def make_jobs(shared: int = 8) -> Jobs:
    return Jobs(16, iter(range(1, 99)).__next__, iter(range(1, 99)).__next__, shared_slots=shared)


def test_reserved_and_shared_slots_are_apart() -> None:
    jobs = make_jobs()
    own = jobs.create("own", workers=2, slots=8, timeout_s=8.0)
    assert (own.slots, jobs.free_slots) == (SlotRange(first=8, count=8), 0)
    with pytest.raises(NoCapacity):
        jobs.create("more", workers=2, slots=1, timeout_s=8.0)
    shared = [
        jobs.create(name, workers=2, slots=slots, timeout_s=8.0, shares_slots=True).slots
        for name, slots in (("a", None), ("b", 6))
    ]
    assert shared == [SlotRange(first=0, count=8), SlotRange(first=8, count=6)]  # at the fallback
    with pytest.raises(UsageError, match="8 slots"):
        jobs.create("liar", workers=2, slots=9, timeout_s=8.0, shares_slots=True)
    with pytest.raises(NoCapacity):
        jobs.create("c", workers=2, slots=None, timeout_s=8.0, shares_slots=True)


def test_slots_of_a_jobs_own_are_reserved_as_those_of_other_jobs() -> None:
    jobs = make_jobs()
    mixed = jobs.create("mixed", workers=2, slots=4, timeout_s=8.0, shares_slots=True, own_slots=6)
    assert (mixed.slots, mixed.own_part) == (SlotRange(first=0, count=4), SlotRange(first=8, count=6))
    assert (mixed.slot_count, jobs.free_slots) == (10, 2)
    own = jobs.create("own", workers=2, slots=None, timeout_s=8.0)
    assert own.slots == SlotRange(first=14, count=2)
    with pytest.raises(NoCapacity):
        jobs.create("more", workers=2, slots=4, timeout_s=8.0, shares_slots=True, own_slots=1)
    jobs.resize("mixed", workers=None, slots=8)
    assert (mixed.slots.count, mixed.own_part) == (8, SlotRange(first=8, count=6))
    jobs.remove("mixed")
    assert jobs.free_slots == 6


@pytest.mark.parametrize(
    ("slots", "own", "shares", "text"),
    [
        (None, 300, True, "256 slots at most, not 300 of its own"),
        (8, 250, True, "256 slots at most, not 250 of its own and 8"),
        (8, -1, True, "not -1 of its own"),
        (4, 4, False, "only a job that shares slots"),
    ],
)
def test_quotas_that_contradict_one_another_are_refused(slots: int | None, own: int, shares: bool, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make_jobs().create("a", workers=2, slots=slots, timeout_s=8.0, shares_slots=shares, own_slots=own)


def test_without_an_aggregator_no_job_shares_slots() -> None:
    with pytest.raises(UsageError, match="aggregator"):
        make_jobs(0).create("a", workers=2, slots=None, timeout_s=8.0, shares_slots=True)


def test_a_job_uses_its_quota_of_the_shared_slots() -> None:
    fabric = fabric_at({"root": "", "spare": ""})
    for number in range(1, 9):
        part = fabric.slots_here(number, SlotRange(first=900, count=2))
        assert part.count == 2
        assert part.end <= SHARED
    assert fabric.slots_here(5, SlotRange(first=900, count=SHARED)) == SlotRange(first=0, count=SHARED)


@pytest.mark.parametrize(("shared", "count"), [(256, 32), (256, 100), (7, 2), (256, 1)])
def test_as_many_jobs_as_there_are_parts_have_parts_of_their_own(shared: int, count: int) -> None:
    fabric = replace(fabric_at({"root": "", "spare": ""}), shared_slots=shared)
    for first in (1, 5):
        numbers = range(first, first + shared // count)
        used = [slot for one in numbers for slot in fabric.slots_here(one, SlotRange(first=0, count=count)).indices()]
        assert len(set(used)) == len(used) == shared // count * count
        assert max(used) == shared - 1


def test_a_fleet_names_its_aggregator() -> None:
    fabric = parse(json.dumps(FLEET), 128)
    assert (fabric.home, fabric.fallback, fabric.shared_slots) == ("root", "spare", SHARED)
    assert fabric.most_workers == 32
    assert fabric.switches["root"].ports == {"spare": 1}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"shared_slots": 0}, "shared_slots must be"),
        ({"shared_slots": 513}, "shared_slots must be"),
        ({"switches": {**FLEET["switches"], "root": FLEET["switches"]["spare"]}}, "one switch may be an aggregator"),
        ({"switches": {"root": {**FLEET["switches"]["root"], "role": "king"}}}, "role must be"),
        ({"switches": {"root": FLEET["switches"]["root"]}}, "shared_slots must be"),
        (
            {"switches": {"root": FLEET["switches"]["root"], "spare": {**FLEET["switches"]["spare"], "above": "root"}}},
            "no part of a tree",
        ),
    ],
)
def test_a_fleet_whose_aggregator_makes_no_sense_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        parse(json.dumps({**FLEET, **change}), 128)


def test_a_fallback_that_runs_another_build_for_a_job_is_not_used_and_its_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "AWAY_S", 0.3)
    pair = Tree(tmp_path, fabric_at, ("root", "spare"))
    try:
        create(pair, "b")
        pair.running.stop()
        pair.switches["spare"].restart()
        other = RunningController(pair.switches["spare"].address, f"unix:{tmp_path}/other", program=program(256))
        other.client.create_job(rpc.CreateJobRequest(job="theirs", workers=1, slots=4, timeout_s=600.0))
        with monkeypatch.context() as patch:
            patch.setattr(rig, "LANES", 256)
            admit([Worker(other.client, pair.switches["spare"], 0, job="theirs", size=1)])
        other.stop()
        pair.running = pair._start()
        eventually(lambda: "spare" in pair.running.controller.reconciler.fleet.without)
        create(pair)
        workers = [Worker(pair.running.client, pair.switches["root"], rank) for rank in range(2)]
        for worker in workers:
            assert "another build of this program" in worker.ready(0.0).lost_switch
            worker.hello()
        eventually(lambda: workers[0].ready(0.0).lost_switch.startswith("switch spare, the fallback of jobs"))
        assert "cannot be used: it runs another build of this program" in workers[0].ready(0.0).lost_switch
    finally:
        pair.close()
