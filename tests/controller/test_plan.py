from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from switchsum import p4src
from switchsum.controller.branch import ADMISSION, FROM_ABOVE, RESULT_ADDRESS, UPLINK
from switchsum.controller.entries import Entry, Group, Replica, SwitchState, apply, diff
from switchsum.controller.job import Job
from switchsum.controller.jobs import Jobs
from switchsum.controller.machines import IncarnationState, MemberState
from switchsum.controller.plan import (
    BROADCAST,
    FLOOD_GROUP,
    IDENTITY,
    RECORD_RANK,
    STATIONS,
    Identity,
    Loss,
    Settings,
    plan,
)
from switchsum.controller.rebuild import rebuild
from switchsum.controller.schema import Schema, decode_group, encode_group
from switchsum.controller.windows import frames_held, most_in_flight, window_slots
from switchsum.protocol.errors import JoinRefused, NoCapacity, NotAdmitted
from switchsum.protocol.member_rpc import MOST_IN_FLIGHT
from switchsum.protocol.p4runtime import parse_p4info
from switchsum.protocol.wire import Address

HERE = Address(mac=0x02_00_00_00_00_FE, ip=0x0A00_00FE, port=21333)
SLOTS = 16
SCHEMA = Schema(parse_p4info(p4src.load(128).p4info))


def make_settings(**fields: Any) -> Settings:
    return Settings(identity=Identity(address=HERE, growth_bytes=512), **fields)


def make_jobs() -> Jobs:
    return Jobs(SLOTS, itertools.count(1000).__next__, itertools.count(1 << 60).__next__)


def address(rank: int) -> Address:
    return Address(mac=0x02_00_00_00_00_00 + rank, ip=0x0A00_0001 + rank, port=5000 + rank)


def running_job(
    jobs: Jobs, name: str = "a", workers: int = 2, ports: list[int] | None = None, slots: int | None = 4
) -> Job:
    job = jobs.create(name, workers=workers, slots=slots, timeout_s=8.0)
    for rank in range(workers):
        nonce = jobs.join(name, rank=rank, world_size=workers, now=0.0)[1].nonce
        assert jobs.hello(nonce, rank, address(rank), ports[rank] if ports else rank + 1, 0.0)
    jobs.admit(job, first_number=7)
    return job


def rebuilt(state: SwitchState, now: float = 0.0) -> tuple[Jobs, Settings]:
    jobs, settings = make_jobs(), make_settings()
    assert rebuild(state, jobs, settings, now) == []
    return jobs, settings


def find(state: SwitchState, table: str, **match: int) -> Entry:
    [entry] = [entry for entry in state.table(table) if match.items() <= entry.match.items()]
    return entry


def test_a_waiting_job_is_a_record_and_nothing_else() -> None:
    jobs = make_jobs()
    jobs.create("a", workers=2, slots=4, timeout_s=5.0)
    state = plan(jobs, make_settings())
    assert state.groups == {}
    assert {entry.table for entry in state.entries.values()} == {IDENTITY, RESULT_ADDRESS}
    assert find(state, RESULT_ADDRESS).match == {"job": 1, "rank": RECORD_RANK}
    assert find(state, RESULT_ADDRESS).action == "SwitchEgress.drop"
    assert find(state, IDENTITY).params == {"mac": HERE.mac, "ip": HERE.ip, "port": 21333, "growth_bytes": 512}


def test_a_running_job_admits_each_member_with_its_bit_and_knows_where_it_is() -> None:
    jobs = make_jobs()
    jobs.create("first", workers=1, slots=3, timeout_s=5.0)
    job = running_job(jobs, workers=3)
    state = plan(jobs, make_settings())
    for rank in range(3):
        admission = find(state, ADMISSION, rank=rank)
        assert admission.match == {
            "job": 2,
            "tree": 0,
            "rank": rank,
            "epoch": 1,
            "source_ip": address(rank).ip,
            "source_port": address(rank).port,
            "ingress_port": rank + 1,
        }
        assert admission.params == {
            "member": 1 << rank,
            "everybody": 0b111,
            "first_slot": 3,
            "slot_count": 4,
            "group": job.group,
            "cookie": (1 << 60) + rank,
        }
        egress = find(state, RESULT_ADDRESS, job=2, rank=rank)
        here = address(rank)
        assert egress.params == {"mac": here.mac, "ip": here.ip, "port": here.port, "cookie": (1 << 60) + rank}
        assert find(state, STATIONS, mac=address(rank).mac).params == {"port": rank + 1}
    assert state.groups[job.group].replicas == {Replica(port=rank + 1, instance=rank) for rank in range(3)}
    assert state.groups[FLOOD_GROUP].replicas == {Replica(port=port, instance=0) for port in (1, 2, 3)}
    assert find(state, STATIONS, mac=BROADCAST).params == {"group": FLOOD_GROUP}


def test_several_members_may_stand_behind_one_port() -> None:
    jobs = make_jobs()
    job = running_job(jobs, workers=3, ports=[5, 5, 6])
    assert plan(jobs, make_settings()).groups[job.group].replicas == {
        Replica(port=5, instance=0),
        Replica(port=5, instance=1),
        Replica(port=6, instance=2),
    }


def test_stations_that_are_known_beforehand_keep_their_port() -> None:
    jobs = make_jobs()
    running_job(jobs)
    settings = make_settings(stations={address(0).mac: 9, 0xAA: 8}, flood_ports=frozenset({7}))
    state = plan(jobs, settings)
    assert find(state, STATIONS, mac=address(0).mac).params == {"port": 9}
    assert find(state, STATIONS, mac=0xAA).params == {"port": 8}
    assert {replica.port for replica in state.groups[FLOOD_GROUP].replicas} == {2, 7, 8, 9}


@pytest.mark.parametrize(
    ("loss", "port_loss", "expected"),
    [
        (Loss(), {}, {}),
        (Loss(ingress=0.5), {}, {("Ingress", 1): 1 << 31, ("Ingress", 2): 1 << 31}),
        (Loss(egress=1.0), {1: Loss()}, {("Ingress", 1): 0, ("Egress", 1): 0, ("Egress", 2): 0xFFFF_FFFF}),
        (Loss(), {9: Loss(ingress=0.25)}, {("Ingress", 9): 1 << 30, ("Egress", 9): 0}),
    ],
)
def test_loss_is_set_where_members_are_or_where_it_was_asked_for(
    loss: Loss, port_loss: dict[int, Loss], expected: dict[tuple[str, int], int]
) -> None:
    jobs = make_jobs()
    running_job(jobs)
    state = plan(jobs, make_settings(loss=loss, port_loss=port_loss))
    found = {
        (control, entry.match["port"]): entry.params.get("share", 0)
        for control in ("Ingress", "Egress")
        for entry in state.table(f"Switch{control}.{control.lower()}_loss.probability")
    }
    assert found == expected
    _, settings = rebuilt(state)
    assert (settings.loss, settings.port_loss) == (loss, port_loss)


def test_the_program_takes_every_entry_and_gives_it_back() -> None:
    jobs = make_jobs()
    running_job(jobs)
    jobs.create("waiting", workers=32, slots=1, timeout_s=0.5)
    state = plan(jobs, make_settings(loss=Loss(ingress=0.1, egress=0.2), port_loss={3: Loss()}))
    in_trees = {FROM_ABOVE, UPLINK}  # entries of a switch that has another above it: tests/controller/test_fleet.py
    assert {entry.table for entry in state.entries.values()} == set(SCHEMA.tables) - in_trees
    entries = [SCHEMA.decode_entry(SCHEMA.encode_entry(entry)) for entry in state.entries.values()]
    groups = [
        decode_group(encode_group(group).packet_replication_engine_entry.multicast_group_entry)
        for group in state.groups.values()
    ]
    assert SwitchState.of([*entries, *groups]) == state


@pytest.mark.parametrize("table", [ADMISSION, RESULT_ADDRESS])
def test_an_incarnation_that_was_not_written_whole_is_not_rebuilt(table: str) -> None:
    jobs = make_jobs()
    running_job(jobs)
    state = plan(jobs, make_settings())
    state.drop(find(state, table, rank=1))
    again, settings = rebuilt(state)
    job = again.find("a")
    assert job.live is None
    assert job.gathering.epoch == 2
    cleaned = apply(diff(state, plan(again, settings), ADMISSION), state)
    assert cleaned.table(ADMISSION) == []
    assert list(cleaned.groups) == []


def test_a_missing_group_is_written_again() -> None:
    jobs = make_jobs()
    job = running_job(jobs)
    state = plan(jobs, make_settings())
    state.drop(state.groups[job.group])
    again, settings = rebuilt(state)
    [[write]] = diff(state, plan(again, settings), ADMISSION)
    assert isinstance(write.item, Group)
    assert write.item.group == job.group


def record(**fields: object) -> bytes:
    """The record of a waiting job, with something wrong in it."""
    right: dict[str, object] = {
        "job": "a",
        "workers": 1,
        "first_slot": 0,
        "slot_count": 1,
        "group": 2,
        "timeout_s": 1.0,
        "live": False,
        "epoch": 0,
    }
    return json.dumps(right | fields).encode()


def test_the_least_record_is_a_job() -> None:
    entry = Entry(
        table=RESULT_ADDRESS, match={"job": 9, "rank": RECORD_RANK}, action="SwitchEgress.drop", metadata=record()
    )
    jobs, _ = rebuilt(SwitchState.of([entry]))
    assert [(job.name, job.number) for job in jobs] == [("a", 9)]


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"job":1}',
        b"\xff",
        b'"text"',
        b"null",
        b"[" * 100_000,
        record(group=1),
        record(group=0x8000),
        record(timeout_s=0),
        record(timeout_s="soon"),
        record(workers=33),
        record(workers=math.inf),
        record(workers=1 << 40),
        record(slot_count=0),
        record(first_slot=SLOTS),
        record(first_slot=-1),
    ],
)
def test_entries_of_somebody_else_are_reported_and_removed(metadata: bytes) -> None:
    foreign = [
        Entry(
            table=RESULT_ADDRESS,
            match={"job": 9, "rank": RECORD_RANK},
            action="SwitchEgress.drop",
            metadata=metadata,
        ),
        Entry(table="SwitchIngress.ingress_loss.probability", match={"port": 1}, action="x", metadata=metadata),
    ]
    state = SwitchState.of(foreign)
    jobs, settings = make_jobs(), make_settings()
    assert len(rebuild(state, jobs, settings, 0.0)) == 2
    assert not list(jobs)
    after = apply(diff(state, plan(jobs, settings), ADMISSION), state)
    assert [entry.table for entry in after.entries.values()] == [IDENTITY]


def test_jobs_that_clash_are_not_both_rebuilt() -> None:
    jobs, other = make_jobs(), make_jobs()
    running_job(jobs)
    other.last_number = 5
    other.create("b", workers=1, slots=2, timeout_s=5.0)
    both = SwitchState.of(
        [*plan(jobs, make_settings()).entries.values(), *plan(other, make_settings()).entries.values()]
    )
    again, settings = make_jobs(), make_settings()
    [problem] = rebuild(both, again, settings, 0.0)
    assert "clashes with ['a']" in problem


@pytest.mark.parametrize(
    ("ports", "port_frames", "window"),
    [([1, 2], None, 4), ([1, 2], 32, 4), ([1, 2], 3, 3), ([1, 1], 3, 1), ([1, 1], 1, 1), ([1, 1], 6, 3)],
)
def test_the_window_is_what_the_fullest_port_holds(ports: list[int], port_frames: int | None, window: int) -> None:
    assert window_slots(running_job(make_jobs(), ports=ports), port_frames, 1106) == window


def test_the_window_is_what_the_smallest_socket_holds() -> None:
    jobs = make_jobs()
    job = running_job(jobs, workers=3)
    assert job.live is not None
    for member, kept in zip(job.live.members, (0, 20_000, 14_000), strict=True):
        member.receive_bytes = kept
    assert frames_held(14_000, 1106) == 3
    assert window_slots(job, 100, 1106) == 3
    again, _ = rebuilt(plan(jobs, make_settings()), now=100.0)
    assert window_slots(again.find("a"), 100, 1106) == 3
    for member in job.live.members:
        member.ingress_port = 7  # one socket of the switch for all of them
    assert window_slots(job, 100, 1106) == 1


def test_the_window_is_no_larger_than_any_member_has_use_for() -> None:
    jobs = make_jobs()
    job = running_job(jobs, workers=3)
    assert job.live is not None
    for member, worth in zip(job.live.members, (0, 4 * 1106 - 1, 5 * 1106), strict=True):
        member.window_bytes = worth
    assert window_slots(job, None, 1106) == 3
    assert window_slots(job, 2, 1106) == 2
    assert window_slots(job, None, 8274) == 1
    again, _ = rebuilt(plan(jobs, make_settings()), now=100.0)
    assert window_slots(again.find("a"), None, 1106) == 3


@pytest.mark.parametrize(
    ("kept", "worth", "port_frames", "wanted"),
    [
        ((0, 0), (0, 0), None, MOST_IN_FLIGHT),  # packet links of the embedded switch
        ((0, 0), (4 * 1106, 5 * 1106), None, 4),  # shared memory: the smaller cache
        ((0, 0), (0, 0), 64, 64),  # BMv2: what its rings hold
        ((20_000, 14_000), (0, 0), None, 3),  # UDP: the smaller socket
    ],
)
def test_a_job_wants_as_many_slots_as_its_links_and_caches(
    kept: tuple[int, ...], worth: tuple[int, ...], port_frames: int | None, wanted: int
) -> None:
    job = running_job(make_jobs())
    assert job.live is not None
    for member, receive_bytes, window_bytes in zip(job.live.members, kept, worth, strict=True):
        member.receive_bytes, member.window_bytes = receive_bytes, window_bytes
    assert most_in_flight(job.live, port_frames, 1106) == wanted


def test_slots_that_members_do_not_want_are_free_for_other_jobs() -> None:
    jobs = make_jobs()
    first = jobs.create("a", workers=2, slots=None, timeout_s=8.0)
    assert (first.slots.count, jobs.free_slots) == (SLOTS, 0)
    with pytest.raises(NoCapacity):
        jobs.create("b", workers=2, slots=None, timeout_s=8.0)
    jobs.fit(first, 5)
    second = jobs.create("b", workers=2, slots=None, timeout_s=8.0)
    assert (first.slots.first, first.slots.count, second.slots.first, second.slots.count) == (0, 5, 5, 11)
    jobs.fit(first, 9)  # the next incarnation wants more, and there is no more
    assert first.slots.count == 5
    jobs.remove("b")
    jobs.fit(first, 9)
    assert first.slots.count == 9
    again, _ = rebuilt(plan(jobs, make_settings()))
    assert again.find("a").fits_slots
    jobs.resize("a", workers=None, slots=3)
    assert not first.fits_slots


def test_after_a_restart_members_stand_where_they_stood() -> None:
    jobs = make_jobs()
    job = running_job(jobs, workers=3)
    assert job.live is not None
    left, lost, stays = (member.nonce for member in job.live.members)
    jobs.leave(left)
    jobs.tick(0.0)
    jobs.heartbeat(stays, 5.5)
    for now in (1.5, 3.0, 4.5, 5.5):
        jobs.tick(now)
    assert [member.state for member in job.live.members] == ["left", "lost", "admitted"]

    again, _ = rebuilt(plan(jobs, make_settings()), now=100.0)
    live = again.find("a").live
    assert live is not None
    assert [member.state for member in live.members] == ["left", "lost", "admitted"]
    assert (live.state, live.first_number) == (IncarnationState.DRAINING, 7)
    with pytest.raises(NotAdmitted):
        again.heartbeat(left, 100.0)
    assert again.heartbeat(lost, 100.0)[2].state is MemberState.LOST
    assert again.heartbeat(stays, 103.0)[2].state is MemberState.ADMITTED
    assert not again.tick(104.0)
    again.leave(stays)
    assert again.find("a").live is None


def live_part(jobs: Jobs) -> Sequence[object]:
    """Everything of jobs that must outlive a controller."""
    return sorted(
        (
            job.name,
            job.number,
            job.workers,
            job.ephemeral,
            job.slots,
            job.group,
            job.timeout_s,
            job.gathering.epoch,
            None if job.live is None else (job.live.epoch, job.live.state, job.live.first_number),
            None
            if job.live is None
            else [(m.rank, m.state, m.nonce, m.address, m.ingress_port) for m in job.live.members],
        )
        for job in jobs
    )


class ControllerLife(RuleBasedStateMachine):
    """A controller's day: whatever happens, the switch follows by valid writes, and a restart changes nothing."""

    names = st.sampled_from(["a", "a", "b", "c"])
    ranks = st.integers(0, 2)

    @initialize()
    def start(self) -> None:
        self.jobs, self.settings = make_jobs(), make_settings()
        self.nonces = list(range(1000, 1003))  # some that will be drawn, some that may not
        self.switch = SwitchState()
        self.now = 0.0
        self.epochs: dict[str, int] = {}
        self.jobs.create("a", workers=3, slots=4, timeout_s=3.0)
        self.everybody_joins("a")
        self.admit(first_number=5, refused=False)

    @rule(name=names, workers=st.integers(1, 3), slots=st.integers(1, 8))
    def create(self, name: str, workers: int, slots: int) -> None:
        if name not in [job.name for job in self.jobs]:
            try:
                self.jobs.create(name, workers=workers, slots=slots, timeout_s=3.0)
            except NoCapacity:
                assert self.jobs.free_slots < SLOTS

    @rule(name=st.sampled_from(["b", "c"]))
    def remove(self, name: str) -> None:
        if name in [job.name for job in self.jobs]:
            self.jobs.remove(name)
            self.epochs.pop(name, None)

    @rule(name=names, workers=st.integers(1, 3) | st.none(), slots=st.integers(1, 8) | st.none())
    def resize(self, name: str, workers: int | None, slots: int | None) -> None:
        if name in [job.name for job in self.jobs]:
            try:
                self.jobs.resize(name, workers=workers, slots=slots)
            except NoCapacity:
                assert slots is not None

    @rule(name=names, rank=ranks, size=st.integers(1, 3))
    def join(self, name: str, rank: int, size: int) -> None:
        try:
            self.nonces.append(self.jobs.join(name, rank=rank, world_size=size, now=self.now)[1].nonce)
        except JoinRefused:
            pass

    @precondition(lambda self: self.nonces)
    @rule(data=st.data(), rank=ranks, port=st.integers(1, 3))
    def hello(self, data: st.DataObject, rank: int, port: int) -> None:
        self.jobs.hello(data.draw(st.sampled_from(self.nonces)), rank, address(rank), port, self.now)

    @rule()
    def everybody_says_hello(self) -> None:
        for job in self.jobs:
            for member in job.gathering.members:
                self.jobs.hello(member.nonce, member.rank, address(member.rank), member.rank + 1, self.now)

    @rule(name=names)
    def everybody_joins(self, name: str) -> None:
        for job in self.jobs:
            if job.name == name and job.live is None:
                for member in job.gathering.members:
                    if member.state is MemberState.EXPECTED:
                        self.jobs.join(name, rank=member.rank, world_size=job.workers, now=self.now)
                    self.jobs.hello(member.nonce, member.rank, address(member.rank), member.rank + 1, self.now)
                assert job.is_complete

    @rule(name=names, rank=ranks, politely=st.booleans())
    def somebody_goes(self, name: str, rank: int, politely: bool) -> None:
        for job in self.jobs:
            if job.name == name and job.live is not None and rank in job.live.ranks(MemberState.ADMITTED):
                if politely:
                    self.jobs.leave(job.live.members[rank].nonce)
                else:
                    job.live.members[rank].heard_s = self.now - job.timeout_s - 1
                    assert self.jobs.tick(self.now)

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        try:
            _, incarnation, member = self.jobs.heartbeat(data.draw(st.sampled_from(self.nonces)), self.now)
        except (NotAdmitted, NoCapacity):
            return
        assert member in incarnation.members
        assert incarnation.state is not IncarnationState.OVER

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.jobs.leave(data.draw(st.sampled_from(self.nonces)))

    @rule(seconds=st.sampled_from([0.5, 1.0, 1.9]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.jobs.tick(self.now)

    @rule(first_number=st.integers(0, 0xFFFF_FFFF), refused=st.booleans())
    def admit(self, first_number: int, refused: bool) -> None:
        for job in self.jobs:
            if job.is_complete:
                assert not job.live
                epoch = job.gathering.epoch
                self.jobs.admit(job, first_number)
                assert self.epochs.get(job.name) != epoch
                self.epochs[job.name] = epoch
                if refused:
                    self.jobs.refuse(job, NoCapacity("the switch is full"))

    @rule()
    def restart(self) -> None:
        last = live_part(self.jobs)
        self.jobs, self.settings = rebuilt(self.switch, self.now)
        assert live_part(self.jobs) == last
        assert diff(self.switch, plan(self.jobs, self.settings), ADMISSION) == []

    @invariant()
    def the_switch_follows(self) -> None:
        desired = plan(self.jobs, self.settings)
        self.switch = apply(diff(self.switch, desired, ADMISSION), self.switch)
        assert self.switch == desired

    @invariant()
    def no_two_jobs_share_anything(self) -> None:
        slots = [slot for job in self.jobs for slot in job.slots.indices()]
        assert len(slots) == len(set(slots)) == SLOTS - self.jobs.free_slots
        for shared in ("number", "group"):
            values = [getattr(job, shared) for job in self.jobs]
            assert len(values) == len(set(values))

    @invariant()
    def a_live_incarnation_has_somebody_in_it(self) -> None:
        for job in self.jobs:
            if job.live is not None:
                admitted = job.live.ranks(MemberState.ADMITTED)
                whole = len(admitted) == job.workers
                assert admitted
                assert job.live.state is (IncarnationState.RUNNING if whole else IncarnationState.DRAINING)


ControllerLife.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestControllerLife = ControllerLife.TestCase
