"""Whatever happens to jobs, what is written to the switch and what is rebuilt from it stay alike."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from switchsum_controller.jobs.registry import Jobs
from switchsum_controller.tables.entries import SwitchState, diff
from switchsum_controller.tables.names import ADMISSION
from switchsum_protocol.errors import JoinRefused, NoCapacity, NotAdmitted
from switchsum_protocol.states import JobState, MemberState

from .planned import SLOTS, address, apply, make_jobs, make_settings, plan, rebuilt


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
        assert incarnation.state is not JobState.OVER

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
                self.jobs.make_live(job, first_number)
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
                assert job.live.state is (JobState.RUNNING if whole else JobState.DRAINING)


ControllerLife.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestControllerLife = ControllerLife.TestCase
