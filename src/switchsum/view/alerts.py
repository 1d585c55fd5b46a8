"""What is wrong with all jobs of a controller, one sentence for each cause, and what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from switchsum.protocol import rpc
from switchsum.view.away import away
from switchsum.view.explain import explain
from switchsum.view.facts import Facts, Overview
from switchsum.view.findings import Alert, Finding
from switchsum.view.words import ranks_text

MOST_OWNERS: Final = 8
WORST_FIRST: Final = ("switch", "lost", "straggler", "missing", "nobody", "silent", "late", "link")
"""Kinds of findings: first what holds a job up, then what slows it down."""


def alerts(seen: Overview, only: str | None = None) -> list[Alert]:
    """Say what is wrong with all jobs, or with `only` one, and whom the controller has refused.

    Switches come first, then jobs that stand still, jobs that are slow, and at last what is no job.
    """
    found = away(seen)
    are_away = {name for one in found if one.switch for name in one.jobs}
    if seen.trouble and not any(one.switch for one in found):
        found = [Alert(kind="switch", text=f"The switch does not answer: {seen.trouble}."), *found]
    by_cause: dict[str, list[tuple[str, Finding]]] = {}
    for facts in seen.jobs:
        for one in explain(facts):
            if one.kind == "switch" and facts.job.job in are_away:
                continue  # the sentence on that switch has said so
            if one.kind != "fine":
                key = one.cause or f"{facts.job.job}\n{one.text}"
                by_cause.setdefault(key, []).append((facts.job.job, one))
    found += sorted((_of_cause(of_cause) for of_cause in by_cause.values()), key=lambda one: _rank(one.kind))
    refused = [one for one in seen.info.refused if only in (None, one.job)]
    return found + [refusal(one, seen.jobs, seen.info.free_slots) for one in refused]


def _rank(kind: str) -> int:
    return WORST_FIRST.index(kind) if kind in WORST_FIRST else len(WORST_FIRST)


def _of_cause(found: list[tuple[str, Finding]]) -> Alert:
    """Say once what several jobs meet."""
    names, first = list(dict.fromkeys(job for job, _ in found)), found[0][1]
    if len(names) == 1:
        return Alert(kind=first.kind, text=f"Job {names[0]}: {first.text}", advice=first.advice, jobs=names)
    ranks = sum(len(one.ranks) for _, one in found)
    text = f"Jobs {', '.join(names[:-1])} and {names[-1]}"
    if first.kind == "link":
        text += f": the links of {ranks} ranks lose frames. {first.cause[:1].upper()}{first.cause[1:]}"
    else:
        text += f": {first.text}"
    text = text if text.endswith(".") else f"{text}."
    return Alert(kind=first.kind, text=text, advice=first.advice, jobs=names)


def refusal(one: rpc.RefusalInfo, there: list[Facts], free_slots: int) -> Alert:
    """Say whom the controller has refused and why, and what would help."""
    jobs = [facts.job for facts in there]
    who = f"Rank {one.rank} of job {one.job!r} was not let in" if one.rank >= 0 else f"Job {one.job!r} was not made"
    text = f"{who}{f', {one.times} times' * (one.times > 1)}: {one.reason}."
    if one.kind == "UnknownJob":
        text += f" It has no slots; {slots_taken(jobs, free_slots)}."
        return Alert(kind="refused", text=text, advice=_right_name(one.job, jobs), jobs=[one.job])
    advice = {
        "NoCapacity": f"{slots_owned(jobs, free_slots)}.",
        "WorldSizeMismatch": "Start as many ranks as the job has, or: switchsum job resize --workers.",
        "RankTaken": "Give each process a rank of its own; one that has died is replaced when it is known to be lost.",
        "VersionMismatch": "Install the same version of switchsum on all machines.",
    }.get(one.kind, "")
    return Alert(kind="refused", text=text, advice=advice, jobs=[one.job])


def _right_name(wrong: str, jobs: list[rpc.JobInfo]) -> str:
    """Ask whether another name was meant: the most similar one, if any is, else those that there are."""
    near = get_close_matches(wrong, [job.job for job in jobs], 1)
    if not near:
        made = ", ".join(repr(job.job) for job in jobs[:MOST_OWNERS])
        return f"Is the name right? There are: {made}." if made else ""
    absent = [one.rank for job in jobs if job.job == near[0] for one in job.members if one.state == "expected"]
    waits = f", which waits for {ranks_text(absent)}" if absent else ""
    return f"Is the name right? There is {near[0]!r}{waits}."


def slots_owned(jobs: list[rpc.JobInfo], free_slots: int) -> str:
    """Say who has the switch's slots."""
    owners = [f"job {one.job!r} has {one.slot_count}" for one in jobs]
    return f"{free_slots} are free, and {', and '.join(owners[:MOST_OWNERS]) or 'no job has any'}"


def slots_taken(jobs: list[rpc.JobInfo], free_slots: int) -> str:
    """Say who has the switch's slots, and what to do."""
    return f"{slots_owned(jobs, free_slots)}. switchsum job create reserves some, job remove frees them"
