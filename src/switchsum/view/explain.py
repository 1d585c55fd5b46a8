"""Why a job waits, in sentences, from what controller, switch and workers know of it."""

from __future__ import annotations

from shlex import quote
from typing import Final

from switchsum.protocol.frame import Reason
from switchsum.view.facts import LIVE, Facts
from switchsum.view.findings import Finding
from switchsum.view.late import COMPUTES, WAITING_S, Late, find_late, more_said, said, stands, steps_of
from switchsum.view.losses import explain_links
from switchsum.view.rounds import newest_rounds
from switchsum.view.words import called, capital, listed, names, percent, places, ranks_text, runs, slots_text, verb

OLD_S: Final = 5.0
"""Reports come once a second; older ones are of a worker that is stopped, or cannot reach the controller."""
PROFILE_S: Final = 30
"""A profile of so many seconds has many steps in it."""
MOST_TOLD: Final = 3
"""Number of ranks of which it is told what each has begun."""
BUSY: Final = 0.5
"""A process that takes this part of a core's time between its calls computes there; one that takes less waits."""
TAKEN: Final = Reason.TAKEN.name.lower()
"""The counter of contributions that a shared slot's owner did not let in."""
NEVER_A_MEMBER: Final = ("expected", "joined", "seen")


def explain(facts: Facts) -> list[Finding]:
    """Say all that is worth saying of a job."""
    found = explain_job(facts)
    if all(one.kind == "fine" for one in found) and (late := find_late(facts.calls)) is not None:
        found = [_explain_late(facts, late)]
    # Without an answer of the fallback, frames that wait there look like lost ones.
    links = [] if _has_lost_fallback(facts) else explain_links(facts)
    return [*found, *explain_left_out(facts), *_explain_sharing(facts), *links]


def explain_left_out(facts: Facts) -> list[Finding]:
    """Say which ranks operations with a quorum went on without, and which have asked for another quorum."""
    job, found = facts.job, []
    if job.left_out:
        each = listed([f"{count} left out {names(facts, [rank])}" for rank, count in job.left_out])
        text = (
            f"{job.agreed} operations could go on without ranks that are late. {each}. "
            f"{job.waits} of the operations waited until patience ended."
        )
        if job.given_model:
            each = ", ".join(f"{names(facts, [rank])} {_times(count)}" for rank, count in job.given_model)
            text += f" So late that it was given the model was {each}."
        ranks = [rank for rank, _ in job.left_out]
        found.append(Finding(kind="left out", text=text, advice="See docs/late-ranks.md.", ranks=ranks))
    for rank, count in job.refused_terms:
        who, often = capital(names(facts, [rank])), _times(count)
        text = f"{who} asked {often} on other terms than the other ranks, or than the job allows."
        found.append(Finding(kind="left out", text=text, advice="Give all ranks the same quorum.", ranks=[rank]))
    if job.held_up:
        text = f"An operation with a quorum cannot begin yet: {job.held_up}."
        found.append(Finding(kind="left out", text=text))
    return found


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _explain_sharing(facts: Facts) -> list[Finding]:
    """Say how often a job that shares slots has found one taken."""
    if not facts.job.shares_slots:
        return []
    sent = sum(one.contributions for one in facts.counters.values())
    taken = sum(reason.packets for one in facts.counters.values() for reason in one.reasons if reason.reason == TAKEN)
    if not taken:
        return []
    sent = max(sent, taken)  # which are counted a moment later
    text = f"{percent(taken / sent)} of its {sent:,} contributions came to a slot that another job held."
    text += f" They went on to {facts.job.fallback}, which took longer."
    held = {one.slot: one.job for one in facts.slots or [] if one.job not in ("", facts.job.job)}
    each = listed([f"job {job} holds {[*held.values()].count(job)}" for job in sorted({*held.values()})])
    details = f"Of its {facts.job.slot_count} slots {each} now." if held else ""
    return [
        Finding(
            kind="taken", text=text, details=details, advice="Give the job slots of its own, or share more of them."
        )
    ]


def headline(facts: Facts) -> str:
    """Say what job this is and which slots it has."""
    job = facts.job
    which = "shared slots" if job.shares_slots and not job.own_slot_count else "slots"
    state = job.state
    if stands(facts.workers):
        state = f"has stood still for {max(one.waiting_s for one in facts.workers if one.age_s >= 0):.0f} s"
    return f"job {job.job}: {state}, {job.workers} ranks, {which} {slots_text(job)} of the switch"


def explain_job(facts: Facts) -> list[Finding]:
    """Say whom the job waits for, if it does."""
    job = facts.job
    if _has_lost_fallback(facts):
        text = f"The aggregator {job.fallback} does not answer; {len(job.members)} ranks wait for it."
        details = "Without it no collective on shared slots ends."
        advice = "See whether its process is stopped (state T). Else start it again; the ranks go on where they were."
        cause = f"aggregator {job.fallback}"
        return [Finding(kind="switch", text=text, details=details, advice=advice, cause=cause)]
    if job.state == "stalled":
        text = f"The controller has lost its switch; {len(job.members)} ranks wait for that."
        advice = "Start the switch again; the ranks go on where they were."
        return [Finding(kind="switch", text=text, advice=advice, cause="The controller has lost its switch.")]
    lost = [one.rank for one in job.members if one.state == "lost"]
    if lost:
        text = f"{capital(called(facts, lost))} {verb(lost, 'is', 'are')} lost: "
        text += "the process has ended, or its machine cannot be reached."
        details, advice = places(facts, lost).strip(), "Start the job, or that rank, again."
        return [Finding(kind="lost", text=text, details=details, advice=advice, ranks=lost)]
    absent = [one.rank for one in job.members if one.state in NEVER_A_MEMBER]
    if absent:
        return _explain_absent(facts, absent)
    return _explain_waiting(facts)


def _has_lost_fallback(facts: Facts) -> bool:
    return facts.job.fallback in facts.away and facts.job.state in ("stalled", *LIVE)


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
        waits = f"{ranks_text(here)} {verb(here, 'waits', 'wait')} for {verb(expected, 'it', 'them')}"
        text = f"{capital(ranks_text(expected))} {verb(expected, 'has', 'have')} not joined; {waits}."
        advice = f"Start {verb(expected, 'it', 'them')}, with the same job and world size. To make the job smaller, "
        advice += "and have all ranks join again:"
        command = f"switchsum job resize {quote(facts.job.job)} --workers {len(here)} --force"
        found.append(Finding(kind="missing", text=text, advice=advice, command=command, ranks=expected))
    if unseen:
        text = f"{capital(called(facts, unseen))} {verb(unseen, 'has', 'have')} joined, but no frame of "
        text += f"{verb(unseen, 'it', 'them')} has come to the switch."
        details, advice = places(facts, unseen).strip(), "Check that their link leads to one of this switch's ports:"
        found.append(
            Finding(kind="missing", text=text, details=details, advice=advice, command="switchsum ports", ranks=unseen)
        )
    if not found:
        which = f"switch {listed(facts.away)}" if facts.away else "a switch to be set up for them"
        text, advice = f"All ranks have come, and wait for {which}.", "This says what is wrong with it:"
        found.append(Finding(kind="switch", text=text, advice=advice, command="switchsum switch list"))
    return found


def _explain_waiting(facts: Facts) -> list[Finding]:
    waiting = [one for one in facts.workers if one.age_s >= 0 and one.waiting_s > 0]
    silent = [one.rank for one in facts.workers if one.age_s > OLD_S]
    since_s = max((one.waiting_s for one in waiting), default=0.0)
    if since_s < WAITING_S:
        if silent:
            return [_silent(facts, silent)]
        steps = len(steps_of(facts.calls)[0])
        known = f" In the last {steps} steps no rank was late again and again." if steps else ""
        return [Finding(kind="fine", text=f"No rank waits for another for long.{known}")]
    open_slots, missing = unfinished(facts)
    if not missing:  # nothing of the round is in the switch
        behind = min(one.begun for one in facts.workers)
        missing = [one.rank for one in facts.workers if one.begun == behind and one not in waiting]
    if not missing:
        text = f"The switch has all contributions, and all ranks have waited {since_s:.0f} s for its sums."
        advice = "Look at the links below, and twice at the counters:"
        return [Finding(kind="switch", text=text, advice=advice, command="switchsum stats", since_s=since_s)]
    others = [one.rank for one in waiting if one.rank not in missing]
    operation = next((one.operation for one in waiting if one.operation and one.rank not in missing), "")
    what = f", {operation}" if operation else ""
    where = f" (slot {runs(open_slots)})" if open_slots else ""
    begun = max(one.begun for one in waiting)
    waits = f"{verb(others, 'waits', 'wait')} for {verb(missing, 'it', 'them')}"
    text = f"{_what_holds_up(facts, missing, since_s)}{f'; {ranks_text(others)} {waits}' if others else ''}."
    details = f"{capital(ranks_text(others or missing))} {verb(others or missing, 'has', 'have')} waited "
    details += f"{since_s:.0f} s in collective {begun}{what}{where}."
    by_rank = {one.rank: one for one in facts.workers}
    for rank in missing[:MOST_TOLD]:
        if by_rank[rank].begun < begun:
            details += f" Rank {rank} has begun {by_rank[rank].begun} collectives."
    first = by_rank[missing[0]]
    return [
        Finding(
            kind="straggler",
            text=text,
            details=f"{details}{places(facts, missing)}",
            advice=f"See what it does, on {first.host or 'its machine'}:",
            command=f"py-spy dump --pid {first.pid or 'PID'}",
            ranks=missing,
            since_s=since_s,
            slots=open_slots,
            operation=operation,
        )
    ]


def _what_holds_up(facts: Facts, missing: list[int], since_s: float) -> str:
    """Say what the ranks do for which the others wait."""
    who, has = capital(called(facts, missing)), verb(missing, "has", "have")
    rows = [one for one in facts.workers if one.rank in missing]
    if all(one.age_s > OLD_S for one in rows):
        return f"{who} {has} reported nothing for {min(one.age_s for one in rows):.0f} s"
    if all(one.idle_s > 0 for one in rows):
        return f"{who} {has} been outside collectives for {min(one.idle_s for one in rows):.0f} s"
    return f"{who} {has} been missing in a collective for {since_s:.0f} s"


def _silent(facts: Facts, silent: list[int]) -> Finding:
    text = f"{capital(called(facts, silent))} {verb(silent, 'has', 'have')} reported nothing for {OLD_S:.0f} s or more."
    pid = next((str(one.pid) for one in facts.workers if one.rank == silent[0] and one.pid), "PID")
    return Finding(
        kind="silent",
        text=text,
        details=places(facts, silent).strip(),
        advice="See whether the process is stopped (state T), or its machine is overloaded:",
        command=f"ps -o pid,stat,pcpu,args -p {pid}",
        ranks=silent,
    )


def unfinished(facts: Facts) -> tuple[list[int], list[int]]:
    """Return the slots whose newest round is not complete, and the ranks that are missing in some of them."""
    lacking = [one for one in newest_rounds(facts.job, facts.slots or []) if one.contributed and not one.is_complete]
    missing = {rank for one in lacking for rank in one.missing}
    return [one.slot for one in lacking], sorted(missing)


def _explain_late(facts: Facts, late: Late) -> Finding:
    """Say which rank is late in most steps, where in the step, what it does before, and what it costs."""
    worker = next((one for one in facts.workers if one.rank == late.rank), None)
    does, busy, pid, host = "is outside calls", None, 0, ""
    if worker is not None:
        pid, host = worker.pid, worker.host
    if worker is not None and worker.recent.seconds > 0:
        busy = worker.recent.cpu_s / worker.recent.seconds
        does = COMPUTES if busy >= BUSY * late.own_share else "sleeps, or waits for data or a lock,"
    command = f"py-spy record --pid {pid or 'PID'} --duration {PROFILE_S} --output rank{late.rank}.svg"
    return Finding(
        kind="late",
        text=said(late, called(facts, [late.rank])),
        details=f"{more_said(late, does, busy)}{places(facts, [late.rank])}",
        advice=f"See what it does for {PROFILE_S} s, on {host or 'its machine'}:",
        command=command,
        ranks=[late.rank],
        since_s=late.since_s,
    )
