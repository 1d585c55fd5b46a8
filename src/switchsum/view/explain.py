"""Why a job waits, in sentences, from what controller, switch and workers know of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from switchsum.protocol import rpc
from switchsum.view.facts import Facts, Overview
from switchsum.view.rounds import newest_rounds

WAITING_S: Final = 2.0
"""A job that waits for less than this is at work."""
OLD_S: Final = 5.0
"""Reports come once a second; older ones are of a worker that is stopped, or cannot reach the controller."""
LOSSY: Final = 0.001
"""Frames that a link may lose before it is named."""
FEW_FRAMES: Final = 32
"""So few lost frames say nothing about a link; a report is not of one moment, either."""
NEVER_A_MEMBER: Final = ("expected", "joined", "seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is worth saying, as a program reads it."""

    kind: str
    """`straggler`, `silent`, `lost`, `missing`, `switch`, `link`, `nobody` or `fine`."""
    text: str
    """In sentences."""
    advice: str = ""
    """What to do about it."""
    ranks: list[int] = field(default_factory=list)
    """Whom it is about."""
    since_s: float = 0.0
    """For how long, as far as is known."""
    slots: list[int] = field(default_factory=list)
    """Slots of the switch in which it shows."""
    operation: str = ""
    """What the others are in the midst of."""


def explain(facts: Facts) -> list[Finding]:
    """Say all that is worth saying of a job."""
    return [*explain_job(facts), *explain_links(facts)]


def warnings(seen: Overview, only: str | None = None) -> list[str]:
    """Say what is wrong with all jobs, or with `only` one, and whom the controller has refused, a line for each."""
    jobs = [one.job for one in seen.jobs]
    found = [f"The switch does not answer: {seen.trouble}."] if seen.trouble else []
    for one in (one for one in seen.info.refused if only in (None, one.job)):
        who = f"Rank {one.rank} of job {one.job!r} was not let in" if one.rank >= 0 else f"Job {one.job!r} was not made"
        slots = f" It has no slots; {slots_taken(jobs, seen.info.free_slots)}."
        known = any(job.job == one.job for job in jobs)
        found.append(f"{who}{f', {one.times} times' * (one.times > 1)}: {one.reason}.{'' if known else slots}")
    return found + [
        f"Job {facts.job.job}: {one.text}" for facts in seen.jobs for one in explain(facts) if one.kind != "fine"
    ]


def slots_taken(jobs: list[rpc.JobInfo], free_slots: int) -> str:
    """Say who has the switch's slots, and what to do."""
    owners = [f"job {one.job!r} has {one.slot_count}" for one in jobs]
    taken = ", and ".join(owners[:8]) or "no job has any"
    return f"{free_slots} are free, and {taken}. switchsum job create reserves some, job remove frees them"


def headline(facts: Facts) -> str:
    """Say what job this is and which slots it has."""
    job = facts.job
    last = job.first_slot + job.slot_count - 1
    return f"job {job.job}: {job.state}, {job.workers} ranks, slots {job.first_slot} to {last} of the switch"


def explain_job(facts: Facts) -> list[Finding]:
    """Say whom the job waits for, if it does."""
    job = facts.job
    if job.state == "stalled":
        text = f"The controller has lost its switch: {len(job.members)} ranks wait for that."
        return [Finding(kind="switch", text=text, advice="Start the switch again; the ranks go on where they were.")]
    lost = [one.rank for one in job.members if one.state == "lost"]
    if lost:
        who = f"{names(facts, lost)} {verb(lost, 'is', 'are')}"
        text = f"{who} lost: the process has ended, or its machine cannot be reached."
        return [Finding(kind="lost", text=text, advice="Start the job, or that rank, again.", ranks=lost)]
    absent = [one.rank for one in job.members if one.state in NEVER_A_MEMBER]
    if absent:
        return _explain_absent(facts, absent)
    return _explain_waiting(facts)


def _explain_absent(facts: Facts, absent: list[int]) -> list[Finding]:
    states = {one.rank: one.state for one in facts.job.members}
    here = [rank for rank in states if states[rank] != "expected"]
    expected = [rank for rank in absent if states[rank] == "expected"]
    unseen = [rank for rank in absent if states[rank] == "joined"]
    found = []
    if not here:
        text = f"No rank has joined: the job waits for {ranks_text(absent)}."
        return [Finding(kind="nobody", text=text, advice="Start the workers: switchsum agent --help.", ranks=expected)]
    if expected:
        waits = f"{ranks_text(here)} {verb(here, 'waits', 'wait')}"
        text = f"{waits} for {ranks_text(expected)}, which {verb(expected, 'has', 'have')} not joined."
        advice = "Start what is missing, with the same job and world size; or: switchsum job resize --workers."
        found.append(Finding(kind="missing", text=text, advice=advice, ranks=expected))
    if unseen:
        text = f"{names(facts, unseen)} {verb(unseen, 'has', 'have')} joined, but the switch has seen no frame of them."
        found.append(Finding(kind="missing", text=text, advice="Does their link lead to this switch?", ranks=unseen))
    return found


def _explain_waiting(facts: Facts) -> list[Finding]:
    waiting = [one for one in facts.workers if one.age_s >= 0 and one.waiting_s > 0]
    silent = [one.rank for one in facts.workers if one.age_s > OLD_S]
    since_s = max((one.waiting_s for one in waiting), default=0.0)
    if since_s < WAITING_S:
        if silent:
            return [_silent(facts, silent)]
        return [Finding(kind="fine", text="No rank waits for another for long.")]
    open_slots, missing = unfinished(facts)
    if not missing:  # nothing of the round is in the switch
        behind = min(one.begun for one in facts.workers)
        missing = [one.rank for one in facts.workers if one.begun == behind and one not in waiting]
    if not missing:
        text = f"All ranks wait, for {since_s:.0f} s, and no slot lacks a contribution."
        advice = "Look at the links below, and at `switchsum stats`."
        return [Finding(kind="switch", text=text, advice=advice, since_s=since_s)]
    others = [one.rank for one in waiting if one.rank not in missing]
    operation = next((one.operation for one in waiting if one.operation and one.rank not in missing), "")
    what = f" in {operation}" if operation else ""
    where = f" (slot {runs(open_slots)})" if open_slots else ""
    begun = max(one.begun for one in waiting)
    text = (
        f"{ranks_text(others)} {verb(others, 'waits', 'wait')} for {names(facts, missing)}, for "
        f"{since_s:.0f} s, in collective {begun}{what}{where}."
    )
    by_rank = {one.rank: one for one in facts.workers}
    for rank in missing:
        one = by_rank[rank]
        if one.age_s > OLD_S:
            text += f" Rank {rank} has reported nothing for {one.age_s:.0f} s: it is stopped, or Python is busy."
        elif one.idle_s > 0:
            text += f" Rank {rank} has begun {one.begun} collectives and done something else for {one.idle_s:.0f} s."
    first = by_rank[missing[0]]
    advice = f"See what it does: py-spy dump --pid {first.pid or 'PID'}, on {first.host or 'its machine'}."
    return [
        Finding(
            kind="straggler",
            text=text,
            advice=advice,
            ranks=missing,
            since_s=since_s,
            slots=open_slots,
            operation=operation,
        )
    ]


def _silent(facts: Facts, silent: list[int]) -> Finding:
    text = f"{names(facts, silent)} {verb(silent, 'has', 'have')} reported nothing for {OLD_S:.0f} s and more."
    return Finding(kind="silent", text=text, advice="Is the process stopped, or its machine overloaded?", ranks=silent)


def unfinished(facts: Facts) -> tuple[list[int], list[int]]:
    """Return the slots whose newest round is not complete, and the ranks that are missing in some of them."""
    lacking = [one for one in newest_rounds(facts.job, facts.slots or []) if one.contributed and not one.is_complete]
    missing = {rank for one in lacking for rank in one.missing}
    return [one.slot for one in lacking], sorted(missing)


def explain_links(facts: Facts) -> list[Finding]:
    """Say which links lose frames, each way, and how many."""
    found = []
    for one in facts.workers:
        counters = facts.counters.get(one.rank)
        if one.age_s < 0 or counters is None or not one.frames_sent:
            continue
        there, back = lost_frames(one, counters, in_tree=bool(facts.job.tree))
        lost = there + back
        if lost <= max(FEW_FRAMES, LOSSY * one.frames_sent):
            continue
        text = (
            f"The link of {names(facts, [one.rank])} has lost {lost} of {one.frames_sent} contributions or "
            f"their answers ({100 * lost / one.frames_sent:.2g} %)"
        )
        # What was repeated between the report and the look at the counters hides what was lost on the way there.
        known = arrived(one, counters) - one.frames_sent <= lost
        text += f": about {there} on the way to the switch, {back} on the way back." if known else "."
        text += simulated(facts, one.rank)
        found.append(Finding(kind="link", text=text, advice=_mend(facts, one), ranks=[one.rank]))
    return found


def lost_of(facts: Facts, worker: rpc.WorkerInfo) -> int:
    """Return about how many frames a rank's link has lost; 0: nothing is known of it."""
    counters = facts.counters.get(worker.rank)
    if counters is None or worker.age_s < 0:
        return 0
    return sum(lost_frames(worker, counters, in_tree=bool(facts.job.tree)))


def lost_frames(worker: rpc.WorkerInfo, counters: rpc.MemberCounters, *, in_tree: bool = False) -> tuple[int, int]:
    """Return about how many contributions and answers a link has lost.

    Each contribution that the switch takes is answered once, repeats too, but for those that are too old, and those of
    a round whose result the worker holds, which a switch below another one sends up (row 14 of p4src/slot.p4); so the
    worker's own counters say how many got lost.  The switch's are of a later moment: how many contributions come to it
    for each result says which part of that was lost on the way there.
    """
    stale = sum(count.packets for count in counters.reasons if count.reason == "stale")
    unanswered = worker.waiting_slots + stale + (worker.recalled if in_tree else 0)
    lost = max(0, worker.frames_sent - worker.frames_received - unanswered)
    there = min(lost, round(max(0.0, worker.frames_sent - arrived(worker, counters))))
    return there, lost - there


def arrived(worker: rpc.WorkerInfo, counters: rpc.MemberCounters) -> float:
    """Return about how many contributions of the results that a rank reports came to the switch; inf: not known."""
    if not worker.rounds or not counters.results:
        return math.inf
    return counters.contributions / counters.results * worker.rounds


def simulated(facts: Facts, rank: int) -> str:
    """Say whether the drop simulator loses frames on a rank's port."""
    behind = f"{facts.job.job}/{rank}"
    port = next((one for one in facts.ports.ports if behind in one.members), None)
    if port is None or not (port.ingress_loss or port.egress_loss):
        return ""
    there, back = 100 * port.ingress_loss, 100 * port.egress_loss
    return f" The drop simulator of port {port.port} is on: {there:.3g} % there, {back:.3g} % back."


def _mend(facts: Facts, worker: rpc.WorkerInfo) -> str:
    if simulated(facts, worker.rank):
        return "Switch it off: switchsum drop-probability 0."
    if worker.link.startswith("packet"):
        return f"On {worker.host}: ip -s link show, ethtool -S; on the switch, the queue of that port."
    return f"On {worker.host}: ss -uam shows what its socket has dropped (d in skmem)."


def names(facts: Facts, ranks: list[int]) -> str:
    """Return ranks as text, each with its host, address, port and link as far as they are known."""
    members = {one.rank: one for one in facts.job.members}
    workers = {one.rank: one for one in facts.workers}
    texts = []
    for rank in ranks:
        worker, member = workers.get(rank), members.get(rank)
        known = []
        if worker is not None and worker.host:
            known.append(f"host {worker.host}")
        if member is not None and member.address:
            known += [f"address {member.address}", f"port {member.ingress_port}"]
        if worker is not None and worker.link:
            known.append(f"link {link_text(worker.link)}")
        texts.append(f"rank {rank}" + (f" ({', '.join(known)})" if known else ""))
    return " and ".join(texts)


def link_text(link: str) -> str:
    """Return a link without the folder of a job's own switch in shared memory, whose name says nothing to a reader."""
    return ",".join("shm" if one.startswith("shm:/") else one for one in link.split(","))


def ranks_text(ranks: list[int]) -> str:
    """Return ranks as text, with runs as `0-3`."""
    return f"rank {runs(ranks)}" if len(ranks) == 1 else f"ranks {runs(ranks)}"


def runs(numbers: list[int]) -> str:
    """Return ascending numbers as text, with runs as `0-3`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)


def verb(ranks: list[int], of_one: str, of_several: str) -> str:
    """Return the verb for so many ranks."""
    return of_one if len(ranks) == 1 else of_several
