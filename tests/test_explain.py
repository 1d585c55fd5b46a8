"""What `switchsum explain` concludes from facts; real jobs are in tests/system/test_explain.py."""

from __future__ import annotations

from dataclasses import replace

from switchsum.protocol import rpc
from switchsum.protocol.reports import WorkerInfo
from switchsum.view.explain import explain_job, explain_links, lost_frames, unfinished
from switchsum.view.facts import Facts


def facts(*workers: WorkerInfo, state: str = "running", members: tuple[str, ...] = ("admitted",) * 3) -> Facts:
    job = rpc.JobInfo(
        job="a", number=1, epoch=1, state=state, workers=len(members), first_slot=0, slot_count=4,
        members=[rpc.MemberInfo(rank=rank, state=state) for rank, state in enumerate(members)],
    )  # fmt: skip
    return Facts(job=job, workers=list(workers), counters={}, slots=[], ports=rpc.PortList())


def cell(slot: int, number: int, seen: int) -> rpc.SlotInfo:
    return rpc.SlotInfo(slot=slot, version=number % 2, number=number, seen=seen, flags=0, block=0, next_block=0)


BUSY = [WorkerInfo(rank=rank, age_s=0.5, begun=7, finished=6, waiting_s=0.2) for rank in range(3)]


def test_a_job_at_work_is_fine() -> None:
    [found] = explain_job(facts(*BUSY))
    assert found.kind == "fine"


def test_a_lost_rank_a_lost_switch_and_a_silent_rank_are_told_apart() -> None:
    [lost] = explain_job(facts(*BUSY, members=("admitted", "lost", "admitted"), state="draining"))
    assert (lost.kind, lost.ranks) == ("lost", [1])
    [switch] = explain_job(facts(*BUSY, state="stalled"))
    assert switch.kind == "switch"
    [silent] = explain_job(facts(*BUSY[:2], replace(BUSY[2], age_s=9.0)))
    assert (silent.kind, silent.ranks) == ("silent", [2])


def test_only_the_newest_round_of_a_slot_says_who_is_missing_across_the_end_of_numbers() -> None:
    end = (1 << 32) - 1
    cells = [cell(0, end, 0b011), cell(0, 0, 0b111), cell(1, end, 0b111), cell(1, 0, 0b101), cell(2, 0, 0)]
    assert unfinished(replace(facts(*BUSY), slots=cells)) == ([1], [1])


def test_repeats_that_are_answered_are_no_loss() -> None:
    worker = WorkerInfo(
        rank=0, age_s=0.1, frames_sent=1600, frames_received=1580, waiting_slots=20, rounds=400, repeats=1180
    )
    counters = rpc.MemberCounters(job="a", rank=0, contributions=1664, contribution_bytes=1, results=400)
    assert lost_frames(worker, counters) == (0, 0)
    lossy = replace(worker, frames_received=1380)
    assert lost_frames(lossy, replace(counters, contributions=1500)) == (100, 100)
    assert lost_frames(lossy, counters) == (0, 200)
    [found] = explain_links(replace(facts(lossy), counters={0: counters}))
    assert (found.kind, found.ranks) == ("link", [0])
    assert "200 of 1600" in found.text
