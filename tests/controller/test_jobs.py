from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from switchsum_controller.jobs.job import Job
from switchsum_controller.jobs.machines import Fault, FaultKind, Incarnation, JobMember
from switchsum_controller.jobs.registry import MAX_FORMER, RETURN_S, UNVISITED_S, Jobs
from switchsum_protocol.errors import NoCapacity, NotAdmitted, RankTaken, UnknownJob, UsageError, WorldSizeMismatch
from switchsum_protocol.reports import WorkerReport
from switchsum_protocol.states import JobState, MemberState
from switchsum_switch.wires.headers import Address

TIMEOUT_S = 8.0
"""A silent member is lost after 5 s."""
"""A member is lost after 5 s."""


def make_jobs(total_slots: int = 16) -> Jobs:
    return Jobs(total_slots, itertools.count(1).__next__, itertools.count(0).__next__)


def create(jobs: Jobs, name: str = "a", workers: int = 2, slots: int = 4) -> Job:
    return jobs.create(name, workers=workers, slots=slots, timeout_s=TIMEOUT_S)


def join(jobs: Jobs, rank: int, name: str = "a", now: float = 0.0) -> int:
    return jobs.join(name, rank=rank, world_size=jobs.find(name).workers, now=now)[1].nonce


def address(rank: int) -> Address:
    return Address(mac=0x02_00_00_00_00_00 + rank, ip=0x0A00_0001 + rank, port=5000)


def run(jobs: Jobs, name: str = "a", now: float = 0.0) -> list[int]:
    """Bring a job to life; return its members' nonces."""
    job = jobs.find(name)
    nonces = [join(jobs, rank, name, now) for rank in range(job.workers)]
    for rank, nonce in enumerate(nonces):
        assert not job.is_complete
        assert jobs.hello(nonce, rank, address(rank), rank + 1, now)
    assert job.is_complete
    jobs.make_live(job, first_number=1)
    return nonces


def state(jobs: Jobs, name: str = "a") -> JobState | None:
    live = jobs.find(name).live
    return live.state if live else None


def test_a_job_lives_until_its_last_member_has_left_and_can_be_run_again() -> None:
    jobs = make_jobs()
    job = create(jobs)
    for epoch in (1, 2, 3):
        first, second = run(jobs)
        assert job.live is not None
        assert (job.live.epoch, state(jobs)) == (epoch, JobState.RUNNING)
        jobs.leave(first)
        assert state(jobs) is JobState.DRAINING
        jobs.leave(second)
        assert state(jobs) is None


def test_the_next_incarnation_gathers_while_the_last_one_drains() -> None:
    jobs = make_jobs()
    job = create(jobs)
    first, second = run(jobs)
    jobs.leave(first)
    again = join(jobs, 0)
    assert jobs.hello(again, 0, address(0), 1, 0.0)
    with pytest.raises(RankTaken):
        join(jobs, 1)  # rank 1 still runs
    jobs.leave(second)
    assert jobs.hello(join(jobs, 1), 1, address(1), 2, 0.0)
    assert job.is_complete


def test_how_an_incarnation_has_ended_is_kept_until_the_next_one_begins() -> None:
    jobs = make_jobs()
    job = create(jobs, workers=3)
    nonces = run(jobs)
    assert (job.has_ended, job.fault) == (False, None)
    for nonce in nonces:
        jobs.leave(nonce)
    assert (job.has_ended, job.fault) == (True, None)  # in order
    nonces = run(jobs, now=20.0)
    assert not job.has_ended
    jobs.heartbeat(nonces[0], 26.0)
    jobs.tick(26.0)  # two of three are lost, both because of what one of them knows
    jobs.heartbeat(nonces[0], 31.0)
    jobs.tick(33.0)
    assert not job.has_ended
    jobs.leave(nonces[0])
    assert (job.has_ended, job.fault) == (True, Fault(kind=FaultKind.LOST, ranks=[1, 2]))
    nonces = run(jobs, now=40.0)
    assert (job.has_ended, job.fault) == (False, None)


def test_ranks_that_differ_are_why_others_are_lost() -> None:
    jobs = make_jobs()
    job = create(jobs)
    differ = Fault(kind=FaultKind.MISMATCH, ranks=[1], text="rank 1 issued max; rank 0 issued sum")
    for replies in (differ, None):
        first, _ = run(jobs)
        assert job.live is not None
        job.live.fault = replies
        job.live.agreement.mismatch = "" if replies else "rank 1 asks with other terms"
        jobs.heartbeat(first, 6.0)
        jobs.tick(6.0)
        jobs.leave(first)
        expected = replies or Fault(kind=FaultKind.MISMATCH, ranks=[], text="rank 1 asks with other terms")
        assert (job.has_ended, job.fault) == (True, expected)


def test_silence_loses_a_member_and_a_replacement_moves_everybody_on() -> None:
    jobs = make_jobs()
    job = create(jobs)
    alive, dead = run(jobs)
    assert job.live is not None
    for now in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        jobs.heartbeat(alive, now)
        assert bool(jobs.tick(now)) == (now == 6.0)
    assert job.live.ranks(MemberState.LOST) == [1]
    assert job.epoch_for(job.live) == job.live.epoch
    assert jobs.heartbeat(dead, 6.0)[2].state is MemberState.LOST  # it is told so, should it be alive after all
    join(jobs, 1, now=6.0)
    assert job.epoch_for(job.live) == job.gathering.epoch == 2
    jobs.leave(alive)
    with pytest.raises(NotAdmitted, match=r"declared rank \d lost"):
        jobs.heartbeat(dead, 6.0)


def test_a_member_lives_as_long_as_its_connection_however_silent_it_is() -> None:
    jobs = make_jobs()
    job = create(jobs)
    busy, dead = run(jobs)
    for nonce in (busy, dead):
        jobs.attend(nonce, 0.0)
    for now in range(1, 100):
        assert not jobs.tick(float(now))
    jobs.depart(dead, 99.0)
    assert not jobs.tick(99.0 + RETURN_S)
    assert [member.rank for _, member in jobs.tick(99.5 + RETURN_S)] == [1]
    assert job.live is not None
    assert job.live.ranks(MemberState.LOST) == [1]
    assert jobs.heartbeat(busy, 102.0)[2].state is MemberState.ADMITTED


def test_a_connection_that_breaks_and_comes_back_loses_nobody() -> None:
    jobs = make_jobs()
    create(jobs)
    nonce, _ = run(jobs)
    jobs.attend(nonce, 0.0)
    jobs.attend(nonce, 1.0)  # the new one before the old one is known to have ended
    jobs.depart(nonce, 2.0)
    for now in (2.0, 4.0):
        assert not jobs.tick(now)
    jobs.depart(nonce, 4.0)
    jobs.tick(5.0)
    jobs.attend(nonce, 5.5)
    assert 0 not in [member.rank for now in (7.0, 8.0, 9.0) for _, member in jobs.tick(now)]
    jobs.leave(nonce)
    jobs.depart(nonce, 9.0)  # what has left is not there any more, and nothing is wrong with that


def test_silence_before_admission_frees_the_rank() -> None:
    jobs = make_jobs()
    job = create(jobs)
    silent, seen = join(jobs, 0), join(jobs, 1)
    assert jobs.hello(seen, 1, address(1), 2, 0.0)
    jobs.tick(5.0)
    jobs.tick(5.5)
    assert job.gathering.members == [JobMember(rank=0, heard_s=0.0), JobMember(rank=1, heard_s=0.0)]
    with pytest.raises(NotAdmitted, match="heard nothing from this rank"):
        jobs.heartbeat(silent, 5.5)
    assert not jobs.hello(seen, 1, address(1), 2, 5.5)
    join(jobs, 0, now=5.5)


def test_who_takes_a_freed_rank_has_nothing_of_the_member_before() -> None:
    jobs = make_jobs()
    job = create(jobs)
    before = join(jobs, 0)
    assert jobs.hello(before, 0, address(0), 1, 0.0, whole=False)
    member = job.gathering.members[0]
    member.issued = "allreduce"
    member.reported.note(WorkerReport(job="a", nonce=before), now=1.0)
    assert member.is_cut
    jobs.leave(before)
    assert member == JobMember(rank=0)


def test_a_link_that_is_silent_is_not_one_that_cuts_frames() -> None:
    """Its switch may be away for a moment: short hellos over the other link say nothing of it."""
    jobs = make_jobs()
    job = create(jobs)
    nonce = join(jobs, 0)
    member = job.gathering.members[0]
    member.rates = [100.0, 100.0]
    assert jobs.hello(nonce, 0, address(0), 1, 0.0)
    assert jobs.hello(nonce, 0, address(0), 1, 0.0, whole=False)
    assert (member.unseen, member.is_cut) == ([1], False)
    assert jobs.hello(nonce, 0, address(1), 2, 0.0, whole=False, link=1)
    assert (member.unseen, member.is_cut) == ([1], True)
    assert jobs.hello(nonce, 0, address(1), 2, 0.0, link=1)
    assert (member.unseen, member.is_cut) == ([], False)


def test_a_controller_that_was_stopped_does_not_take_it_out_on_its_members() -> None:
    jobs = make_jobs()
    create(jobs)
    run(jobs)
    jobs.tick(0.0)
    assert not jobs.tick(1000.0)  # suspended: nobody could have been heard
    assert not jobs.tick(1002.0)
    assert not jobs.tick(1004.0)
    assert jobs.tick(1006.0)


def test_the_time_for_which_a_controller_waits_for_a_switch_is_no_pause() -> None:
    jobs = make_jobs()
    create(jobs)
    run(jobs)
    jobs.tick(0.0)
    assert not jobs.tick(4.0, waited_s=4.0)  # it hears of members all the same
    assert not jobs.tick(1004.0, waited_s=0.5)  # it was stopped, too
    assert jobs.tick(1005.5, waited_s=1.0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "b"}, UnknownJob),
        ({"rank": 2}, RankTaken),
        ({"rank": -1}, RankTaken),
        ({"rank": 0}, RankTaken),
        ({"world_size": 3}, WorldSizeMismatch),
    ],
)
def test_refusals_to_join(arguments: dict[str, object], error: type[Exception]) -> None:
    jobs = make_jobs()
    create(jobs)
    join(jobs, 0)
    values = {"name": "a", "rank": 1, "world_size": 2, **arguments}
    with pytest.raises(error):
        jobs.join(
            str(values["name"]), rank=int(str(values["rank"])), world_size=int(str(values["world_size"])), now=0.0
        )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": ""}, UsageError),
        ({"name": "a" * 65}, UsageError),
        ({"name": "a\n"}, UsageError),
        ({"name": "taken"}, UsageError),
        ({"workers": 0}, UsageError),
        ({"workers": 33}, UsageError),
        ({"slots": 0}, UsageError),
        ({"slots": 17}, UsageError),
        ({"slots": 13}, NoCapacity),
        ({"timeout_s": 0.0}, UsageError),
        ({"timeout_s": 1e-9}, UsageError),
        ({"timeout_s": 1e300}, UsageError),
        ({"timeout_s": float("nan")}, UsageError),
        ({"timeout_s": float("inf")}, UsageError),
    ],
)
def test_refusals_to_create(arguments: dict[str, object], error: type[Exception]) -> None:
    jobs = make_jobs()
    create(jobs, "taken")
    with pytest.raises(error):
        jobs.create(**{"name": "a", "workers": 2, "slots": 4, "timeout_s": 1.0, **arguments})  # type: ignore[arg-type]
    assert [job.name for job in jobs] == ["taken"]
    assert jobs.free_slots == 12


def cut_off_by_removal(jobs: Jobs) -> None:
    jobs.remove("a")


def cut_off_by_resizing(jobs: Jobs) -> None:
    jobs.resize("a", workers=3, slots=None)


def cut_off_by_the_switch(jobs: Jobs) -> None:
    jobs.refuse(jobs.find("a"), NotAdmitted("the switch was resized"))


@pytest.mark.parametrize("cut_off", [cut_off_by_removal, cut_off_by_resizing, cut_off_by_the_switch])
@pytest.mark.parametrize("lives", [False, True])
def test_members_that_are_cut_off_are_told_why(cut_off: Callable[[Jobs], None], lives: bool) -> None:
    jobs = make_jobs()
    create(jobs)
    nonces = run(jobs) if lives else [join(jobs, 0), join(jobs, 1)]
    cut_off(jobs)
    for nonce in nonces:
        with pytest.raises(NotAdmitted, match=r"was re(mov|siz)ed"):
            jobs.heartbeat(nonce, 0.0)
        jobs.leave(nonce)  # what is over may be left


def test_resizing_moves_slots_or_changes_nothing() -> None:
    jobs = make_jobs()
    job, other = create(jobs), create(jobs, "b")
    epoch = job.gathering.epoch
    with pytest.raises(NoCapacity):
        jobs.resize("a", workers=None, slots=13)
    with pytest.raises(UsageError):
        jobs.resize("a", workers=0, slots=None)
    assert (job.slots.first, job.slots.count, job.gathering.epoch) == (0, 4, epoch)
    jobs.resize("a", workers=5, slots=6)
    assert (job.slots.first, job.slots.count, job.workers) == (8, 6, 5)
    assert job.gathering.epoch == epoch + 1
    assert other.slots.first == 4
    jobs.resize("a", workers=None, slots=4)
    assert job.slots.first == 0


def test_numbers_of_removed_jobs_are_not_used_again_soon() -> None:
    jobs = make_jobs()
    numbers = []
    for _ in range(5):
        numbers.append(create(jobs).number)
        jobs.remove("a")
    assert numbers == [1, 2, 3, 4, 5]
    jobs.last_number = 0xFFFF
    assert create(jobs).number == 1
    jobs.last_number = 0xFFFF
    assert create(jobs, "b").number == 2


def test_epochs_wrap() -> None:
    jobs = make_jobs()
    job = create(jobs, workers=1)
    job.gathering = Incarnation(epoch=0xFFFF, members=[JobMember(rank=0)])
    for epoch in (0xFFFF, 0, 1):
        [nonce] = run(jobs)
        assert job.live is not None
        assert job.live.epoch == epoch
        jobs.leave(nonce)


def test_hellos_of_nobody_are_refused_and_late_ones_change_nothing() -> None:
    jobs = make_jobs()
    job = create(jobs)
    nonces = run(jobs)
    assert job.live is not None
    assert not jobs.hello(12345, 0, address(0), 1, 0.0)
    assert not jobs.hello(nonces[0], 1, address(0), 1, 0.0)
    assert jobs.hello(nonces[0], 0, address(7), 7, 0.0)
    assert job.live.members[0].address == address(0)


def test_former_members_are_forgotten_in_the_end() -> None:
    jobs = make_jobs()
    create(jobs)
    first = join(jobs, 0)
    jobs.leave(first)
    for _ in range(MAX_FORMER):
        jobs.leave(join(jobs, 0))
    with pytest.raises(NotAdmitted, match="no such membership"):
        jobs.heartbeat(first, 0.0)


def test_nonces_are_never_0_and_never_the_same() -> None:
    drawn = iter([0, 7, 7, 0, 8, 7, 8, 9])
    jobs = Jobs(16, drawn.__next__, itertools.count().__next__)
    create(jobs, workers=3)
    assert [join(jobs, rank) for rank in (0, 1)] == [7, 8]
    jobs.leave(7)
    assert join(jobs, 0) == 9  # 7 is remembered as one that has left


def test_every_membership_has_a_cookie_of_its_own() -> None:
    jobs = make_jobs()
    job = create(jobs)
    run(jobs)
    first = [member.cookie for member in job.live.members] if job.live else []
    jobs.resize("a", workers=2, slots=None)
    run(jobs)
    second = [member.cookie for member in job.live.members] if job.live else []
    assert len({*first, *second}) == 4
    assert 0 not in {*first, *second}


def test_those_who_are_left_go_on_when_all_of_them_want_to() -> None:
    jobs = make_jobs()
    job = create(jobs, workers=4)
    nonces = run(jobs)
    jobs.leave(nonces[0])
    assert jobs.reform(nonces[3], 1.0) == (job, None, [1, 2])
    assert jobs.reform(nonces[1], 5.5) == (job, None, [2])
    jobs.heartbeat(nonces[3], 5.5)
    for now in (2.0, 4.0, 5.5):
        jobs.tick(now)
    # Rank 2 was silent, and is not waited for any more; whoever asks again learns it.
    assert jobs.reform(nonces[3], 5.5) == (job, 1, [])
    assert jobs.reform(nonces[1], 5.5) == (job, 0, [])
    assert (job.workers, job.live, job.gathering.epoch) == (2, None, 3)
    with pytest.raises(NotAdmitted):
        jobs.reform(nonces[2], 5.5)
    with pytest.raises(NotAdmitted):
        jobs.heartbeat(nonces[1], 5.5)
    run(jobs)
    assert job.live is not None
    assert job.live.epoch == 3


def test_an_ephemeral_job_waits_longer_for_its_first_member() -> None:
    jobs = make_jobs()
    jobs.create("a", workers=2, slots=4, timeout_s=1e6, ephemeral=True)
    ended_at = next(now for now in range(1000) if jobs.tick(float(now)) == [] and jobs.end_ephemeral())
    assert ended_at > UNVISITED_S
    jobs.create("a", workers=2, slots=4, timeout_s=1e6, ephemeral=True)
    _, member = jobs.join("a", rank=0, world_size=2, now=2000.0)
    jobs.leave(member.nonce)
    ended_at = next(now for now in range(2000, 3000) if jobs.tick(float(now)) == [] and jobs.end_ephemeral())
    assert ended_at < 2000 + UNVISITED_S


def test_an_ephemeral_job_ends_when_nobody_has_been_in_it_for_its_time_out() -> None:
    jobs = make_jobs()
    jobs.create("a", workers=2, slots=4, timeout_s=TIMEOUT_S, ephemeral=True)
    create(jobs, "b")

    def wait(*times: float) -> list[str]:
        ended = []
        for now in times:
            jobs.tick(now)
            ended += [job.name for job in jobs.end_ephemeral()]
        return ended

    assert not wait(0.0, 1.0, 2.0, 4.0, 6.0, 8.0)
    join(jobs, 0, now=8.0)
    assert not wait(9.0)
    # Its only member falls silent before it is admitted; then all members do; then one of them does, one leaves.
    assert not wait(11.0, 13.0, 15.0, 17.0, 19.0)
    run(jobs, now=19.0)
    assert not wait(21.0, 23.0, 25.0, 27.0, 29.0)
    assert jobs.find("a").is_vacant
    nonces = run(jobs, now=29.0)
    jobs.leave(nonces[0])
    assert not wait(31.0, 33.0, 35.0, 1000.0, 1002.0)  # suspended meanwhile: that does not count
    assert jobs.find("a").is_vacant
    assert wait(1004.0, 1006.0, 1008.0, 1010.0, 1012.0) == ["a"]
    assert [job.name for job in jobs] == ["b"]
    assert jobs.free_slots == 12
    with pytest.raises(NotAdmitted):
        jobs.heartbeat(nonces[0], 1006.0)


def test_an_ephemeral_job_ends_at_once_when_all_members_have_left_it_in_order() -> None:
    jobs = make_jobs()
    jobs.create("a", workers=2, slots=4, timeout_s=TIMEOUT_S, ephemeral=True)
    first, second = run(jobs, now=1.0)
    jobs.leave(first)
    jobs.tick(1.25)
    assert not jobs.end_ephemeral()
    jobs.leave(second)
    jobs.tick(1.5)
    assert [job.name for job in jobs.end_ephemeral()] == ["a"]


def test_who_only_gathers_cannot_reform() -> None:
    jobs = make_jobs()
    create(jobs)
    with pytest.raises(NotAdmitted, match="rank 0 of job 'a' is joined"):
        jobs.reform(join(jobs, 0), 0.0)
