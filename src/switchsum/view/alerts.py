"""What is wrong with all jobs of a controller, one sentence for each cause, and what to do."""

from __future__ import annotations

from difflib import get_close_matches
from shlex import quote
from typing import Final

from switchsum.view.away import START, away
from switchsum.view.explain import explain
from switchsum.view.facts import Facts, Overview
from switchsum.view.findings import Alert, Finding
from switchsum.view.rules import SIMULATOR_ON
from switchsum.view.symptoms import NO_WAIT
from switchsum.view.words import capital, listed, percent, ranks_text
from switchsum_protocol import rpc
from switchsum_protocol.states import MemberState

MINUTE_S: Final = 60
HOUR_S: Final = 3600
MOST_OWNERS: Final = 8


def alerts(seen: Overview, only: str | None = None) -> list[Alert]:
    """Say what is wrong with all jobs, or with `only` one, and whom the controller has refused.

    Switches come first, then jobs that stand still, jobs that are slow, and at last what is no job.
    """
    found = away(seen)
    are_away = {name for one in found if one.kind == "away" for name in one.jobs}
    is_only_job = len(seen.jobs) == 1
    by_cause: dict[str, list[tuple[str, Finding]]] = {}
    for facts in seen.jobs:
        for one in explain(facts):
            if one.kind == "switch" and facts.job.job in are_away:
                continue  # the sentence on that switch has said so
            if one.kind != "fine":
                key = one.cause or f"{facts.job.job}\n{one.text}"
                by_cause.setdefault(key, []).append((facts.job.job, one))
    # First what holds jobs up, then what slows them down, what costs most of the time first.
    worst = sorted(by_cause.values(), key=lambda one: min((each.level, -each.cost) for _, each in one))
    found += [_of_cause(of_cause, is_only_job=is_only_job) for of_cause in worst]
    if seen.trouble and not any(one.kind in ("away", "switch") for one in found):
        at = f" at {seen.info.switch}" if seen.info.switch else ""
        text, details = f"The switch{at} does not answer the controller.", f"{capital(seen.trouble.rstrip('.'))}."
        found = [Alert(kind="switch", text=text, details=details, advice=START.format(where="")), *found]
    refused = [one for one in seen.info.refused if only in (None, one.job)]
    return found + [refusal(one, seen.jobs, seen.info.free_slots) for one in refused]


def _of_cause(found: list[tuple[str, Finding]], *, is_only_job: bool) -> Alert:
    """Say once what several jobs meet; with `is_only_job` the job needs no name."""
    names, first = list(dict.fromkeys(job for job, _ in found)), found[0][1]
    what = {"kind": first.kind, "advice": first.advice, "command": first.command}
    if len(names) == 1:
        text = first.text if is_only_job else f"Job {names[0]}: {first.text}"
        return Alert(text=text, details=first.details, jobs=names, **what)
    jobs = f"Jobs {listed(names)}"
    if first.kind != "link" or not first.share:
        return Alert(text=f"{jobs}: {first.text}", details=first.details, jobs=names, **what)
    low, high = (percent(end(one.share for _, one in found)) for end in (min, max))
    lose = f"{sum(len(one.ranks) for _, one in found)} links lose {low if low == high else f'{low} to {high}'}"
    is_simulated = first.symptom == SIMULATOR_ON
    text = f"The drop simulator is on: {lose}" if is_simulated else f"At {first.cause} {lose}"
    effect = f"; {NO_WAIT}" if all(NO_WAIT in one.text for _, one in found) else ""
    details = f"{jobs}.{f' {first.cause}' if is_simulated else ''}"
    return Alert(text=f"{text}{effect}.", details=details, jobs=names, **what)


def refusal(one: rpc.RefusalInfo, there: list[Facts], free_slots: int) -> Alert:
    """Say whom the controller has refused and why, and what would help."""
    jobs = [facts.job for facts in there]
    when = f" {capital(_ago(one.age_s))}{f', {one.times} times by now' * (one.times > 1)}."
    who = f"Rank {one.rank} of job {one.job!r} was not let in" if one.rank >= 0 else f"Job {one.job!r} was not made"
    if one.kind == "UnknownJob":
        meant, more = _right_name(one.job, jobs)
        more = more or f"It has no slots; {slots_taken(jobs, free_slots)}."
        text = f"There is no job {one.job!r}.{f' {meant}' if meant else ''}"
        return Alert(kind="refused", text=text, details=f"{who}.{when} {more}", jobs=[one.job])
    resize = f"switchsum job resize {quote(one.job)} --workers {one.world_size}"
    advice, command = {
        "NoCapacity": (f"{slots_owned(jobs, free_slots)}.", ""),
        "WorldSizeMismatch": ("Start as many ranks as the job has, or give it another size:", resize)
        if one.world_size
        else ("", ""),
        "RankTaken": (
            "Give each process its own rank. A rank that has died is replaced once it is known to be lost.",
            "",
        ),
        "VersionMismatch": ("Install the same version of switchsum on all machines.", ""),
    }.get(one.kind, ("", ""))
    text = f"{who}: {one.reason}."
    return Alert(kind="refused", text=text, details=when.strip(), advice=advice, command=command, jobs=[one.job])


def _ago(age_s: float) -> str:
    """Say how long ago something was."""
    if age_s < 2 * MINUTE_S:
        return f"{age_s:.0f} s ago"
    return f"{age_s / MINUTE_S:.0f} min ago" if age_s < 2 * HOUR_S else f"{age_s / HOUR_S:.0f} h ago"


def _right_name(wrong: str, jobs: list[rpc.JobInfo]) -> tuple[str, str]:
    """Ask whether another name was meant, and say what is known of that: the most similar one, else those there are."""
    near = get_close_matches(wrong, [job.job for job in jobs], 1)
    if not near:
        return (f"There are: {', '.join(repr(job.job) for job in jobs[:MOST_OWNERS])}." if jobs else ""), ""
    absent = [
        one.rank for job in jobs if job.job == near[0] for one in job.members if one.state == MemberState.EXPECTED
    ]
    return f"Is {near[0]!r} meant?", f"{near[0]!r} waits for {ranks_text(absent)}." if absent else f"{near[0]!r} runs."


def slots_owned(jobs: list[rpc.JobInfo], free_slots: int) -> str:
    """Say who has the switch's slots."""
    reserved = {one.job: one.own_slot_count if one.shares_slots else one.slot_count for one in jobs}
    owners = [f"job {name!r} has {count}" for name, count in reserved.items() if count]
    return f"{free_slots} are free, and {', and '.join(owners[:MOST_OWNERS]) or 'no job has any'}"


def slots_taken(jobs: list[rpc.JobInfo], free_slots: int) -> str:
    """Say who has the switch's slots, and what to do."""
    return f"{slots_owned(jobs, free_slots)}. switchsum job create reserves some, job remove frees them"
