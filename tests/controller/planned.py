"""Jobs and the tables that they want, without a switch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from switchsum import p4src
from switchsum_controller.jobs.job import Job
from switchsum_controller.jobs.registry import Jobs
from switchsum_controller.plan.plan import Identity, Settings, plan_all
from switchsum_controller.plan.rebuild import rebuild
from switchsum_controller.switches.schema import Schema
from switchsum_controller.tables.entries import Change, Entry, SwitchState, Write
from switchsum_controller.trees.fabric import ONLY, fabric_of_one
from switchsum_switch.messages.p4runtime import parse_p4info
from switchsum_switch.wires.headers import Address

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
    jobs.make_live(job, first_number=7)
    return job


def rebuilt(state: SwitchState, now: float = 0.0) -> tuple[Jobs, Settings]:
    jobs, settings = make_jobs(), make_settings()
    assert rebuild(state, jobs, settings, now) == []
    return jobs, settings


def find(state: SwitchState, table: str, **match: int) -> Entry:
    [entry] = [entry for entry in state.table(table) if match.items() <= entry.match.items()]
    return entry


def plan(jobs: Jobs, settings: Settings) -> SwitchState:
    """Return all entries and groups that a controller's only switch should have."""
    return plan_all(jobs, settings, fabric_of_one(""))[ONLY]


def apply(steps: Sequence[Sequence[Write]], state: SwitchState) -> SwitchState:
    """Return the state after the writes; raises ValueError for a write that a switch would refuse."""
    after = SwitchState(dict(state.entries), dict(state.groups))
    for write in (write for step in steps for write in step):
        # P4Runtime refuses to insert what exists, and to modify or delete what does not.
        exists = after.has(write.item) or (isinstance(write.item, Entry) and write.item.is_default)
        if exists is (write.change is Change.INSERT):
            raise ValueError(f"{write.change} of {'an existing' if exists else 'a missing'} {write.item}")
        if write.change is Change.DELETE:
            after.drop(write.item)
        else:
            after.put(write.item)
    return after
