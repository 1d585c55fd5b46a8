"""Computes what each rank does, and at which rates, from two of its reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from switchsum.view.facts import Facts
from switchsum.view.late import find_late, shares_now, stands
from switchsum.view.losses import loss_of, lost_of
from switchsum.view.words import duration
from switchsum_protocol import rpc
from switchsum_protocol.reports import CallSpan
from switchsum_protocol.states import MemberState

STATES: Final = {
    MemberState.EXPECTED: "has not joined",
    MemberState.JOINED: "has joined, and no frame of it has come",
    MemberState.SEEN: "has joined, and waits for the others",
    MemberState.LOST: "is lost",
}
"""Words for states of members that do not take part."""
Seen = dict[tuple[str, int], tuple[float, rpc.WorkerInfo]]
"""Time of each latest report, in this process' monotonic seconds, and the report, by job and rank."""


def rank_rows(job: rpc.JobInfo, workers: list[rpc.WorkerInfo], now: float, before: Seen) -> list[dict[str, Any]]:
    """Return a record for each rank, with rates since the report that is kept in `before`; keep the new ones there."""
    states = {member.rank: member.state for member in job.members}
    rows = []
    for worker in workers:
        key = job.job, worker.rank
        rates = rates_between(before.get(key), (now - worker.age_s, worker))
        if worker.age_s >= 0:
            kept = before.get(key)
            if kept is None or kept[1].frames_sent != worker.frames_sent or kept[1].begun != worker.begun:
                before[key] = now - worker.age_s, worker
        rows.append(record(job.job, worker, states.get(worker.rank, MemberState.EXPECTED), rates))
    return rows


def rates_between(
    before: tuple[float, rpc.WorkerInfo] | None, after: tuple[float, rpc.WorkerInfo]
) -> Mapping[str, float]:
    """Return collectives, bytes and repeats a second between two reports; zeros where there are not two."""
    none = {"collectives_per_s": 0.0, "bytes_per_s": 0.0, "repeats_per_s": 0.0}
    if before is None or after[1].age_s < 0 or after[0] <= before[0] or after[1].begun < before[1].begun:
        return none
    seconds, was, now = after[0] - before[0], before[1], after[1]
    return {
        "collectives_per_s": round((now.finished - was.finished) / seconds, 1),
        "bytes_per_s": round((now.bytes_sent - was.bytes_sent) / seconds, 1),
        "repeats_per_s": round((now.repeats - was.repeats) / seconds, 1),
    }


def record(job: str, worker: rpc.WorkerInfo, state: str, rates: Mapping[str, float]) -> dict[str, Any]:
    """Write what a rank does, for programs."""
    return {
        "job": job,
        "rank": worker.rank,
        "state": state,
        "host": worker.host,
        "link": worker.link,
        "collective": worker.begun,
        "operation": worker.operation,
        "waiting_s": worker.waiting_s,
        "idle_s": worker.idle_s,
        "report_age_s": worker.age_s,
        **rates,
        "frames_sent": worker.frames_sent,
        "repeats": worker.repeats,
    }


def rows_of_ranks(facts: Facts, now: float, before: Seen) -> list[dict[str, Any]]:
    """Return `rank_rows` with what calls and counters tell: shares of time, who is late, frames that were lost."""
    rows = rank_rows(facts.job, facts.workers, now, before)
    late = None if stands(facts.workers) else find_late(facts.calls)
    span = facts.calls.spans[0] if facts.calls.spans else CallSpan(seconds=0.0)
    for worker, row in zip(facts.workers, rows, strict=True):
        loss, recent = loss_of(facts, worker), worker.recent
        row |= {f"{name}_share": round(share, 4) for name, share in shares_now(span, worker).items()}
        row["late_s"] = round(late.late_s, 6) if late is not None and late.rank == worker.rank else 0.0
        row["lost"] = 0 if loss is None else lost_of(facts, worker)
        row["lost_share"] = 0.0 if loss is None or not loss.is_worth_saying else round(loss.share, 5)
        row["marked_share"] = round(recent.marked / recent.rounds, 5) if recent.rounds else 0.0
        row["density"] = round(recent.sparse_rows / recent.sparse_all_rows, 5) if recent.sparse_all_rows else None
    return rows


def what_it_does(row: Mapping[str, Any]) -> str:
    """Say in a few words what a rank does."""
    if row["state"] != MemberState.ADMITTED or row["report_age_s"] < 0:
        return STATES.get(row["state"], str(row["state"]))
    if row["waiting_s"] >= 1:
        return f"waits {row['waiting_s']:.0f} s, {row['operation'] or 'in a collective'}"
    if row.get("late_s"):
        return f"late by {duration(row['late_s'])}"
    return f"outside collectives for {row['idle_s']:.0f} s" if row["idle_s"] >= 1 else "collectives"
