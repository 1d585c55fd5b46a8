"""What the tables of a switch should have for a controller's jobs, and the jobs that are rebuilt from them."""

from __future__ import annotations

import json
import math

import pytest

from switchsum_controller.plan.plan import Loss
from switchsum_controller.plan.rebuild import rebuild
from switchsum_controller.switches.schema import decode_group, encode_group
from switchsum_controller.tables.entries import Entry, Group, Replica, SwitchState, diff
from switchsum_controller.tables.names import (
    ADMISSION,
    BROADCAST,
    FALLBACK,
    FLOOD_GROUP,
    FROM_ABOVE,
    IDENTITY,
    RECORD_RANK,
    RESULT_ADDRESS,
    STATIONS,
    UPLINK,
)
from switchsum_protocol.errors import NotAdmitted
from switchsum_protocol.states import JobState, MemberState

from .planned import HERE, SCHEMA, SLOTS, address, apply, find, make_jobs, make_settings, plan, rebuilt, running_job


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
    # Entries of a switch that has another above it, or a fallback: tests/controller/test_fleet.py and test_sharing.py.
    in_trees = {FROM_ABOVE, UPLINK, f"{FALLBACK}.fallback"}
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
    assert "overlaps with ['a']" in problem


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
    assert (live.state, live.first_number) == (JobState.DRAINING, 7)
    with pytest.raises(NotAdmitted):
        again.heartbeat(left, 100.0)
    assert again.heartbeat(lost, 100.0)[2].state is MemberState.LOST
    assert again.heartbeat(stays, 103.0)[2].state is MemberState.ADMITTED
    assert not again.tick(104.0)
    again.leave(stays)
    assert again.find("a").live is None
