"""What is wrong with all jobs of a controller, one sentence for each cause, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from switchsum.protocol import rpc
from switchsum.view.explain import explain
from switchsum.view.facts import Overview
from switchsum.view.findings import Finding

MOST_OWNERS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One thing that is wrong."""

    text: str
    advice: str = ""
    jobs: list[str] = field(default_factory=list)
    """Those that it is about."""


def alerts(seen: Overview, only: str | None = None) -> list[Alert]:
    """Say what is wrong with all jobs, or with `only` one, and whom the controller has refused."""
    found = [Alert(text=f"The switch does not answer: {seen.trouble}.")] if seen.trouble else []
    for switch in seen.switches.switches:
        if switch.state == "away" and switch.switch:
            why = f": {switch.trouble}" if switch.trouble else ""
            found.append(Alert(text=f"Switch {switch.switch} ({switch.p4runtime}) is away{why}."))
    found += [Alert(text=f"Links: {text}.") for text in seen.links.faults]
    jobs = [one.job for one in seen.jobs]
    found += [refusal(one, jobs, seen.info.free_slots) for one in seen.info.refused if only in (None, one.job)]
    by_cause: dict[str, list[tuple[str, Finding]]] = {}
    for facts in seen.jobs:
        for one in explain(facts):
            if one.kind != "fine":
                key = one.cause or f"{facts.job.job}\n{one.text}"
                by_cause.setdefault(key, []).append((facts.job.job, one))
    return found + [_of_cause(of_cause) for of_cause in by_cause.values()]


def _of_cause(found: list[tuple[str, Finding]]) -> Alert:
    """Say once what several jobs meet."""
    names, first = list(dict.fromkeys(job for job, _ in found)), found[0][1]
    if len(names) == 1:
        return Alert(text=f"Job {names[0]}: {first.text}", advice=first.advice, jobs=names)
    ranks = sum(len(one.ranks) for _, one in found)
    text = f"Jobs {', '.join(names[:-1])} and {names[-1]}"
    if first.kind == "link":
        text += f": the links of {ranks} ranks lose frames. {first.cause[:1].upper()}{first.cause[1:]}"
    else:
        text += f": {first.text}"
    return Alert(text=text if text.endswith(".") else f"{text}.", advice=first.advice, jobs=names)


def refusal(one: rpc.RefusalInfo, jobs: list[rpc.JobInfo], free_slots: int) -> Alert:
    """Say whom the controller has refused and why, and what would help."""
    who = f"Rank {one.rank} of job {one.job!r} was not let in" if one.rank >= 0 else f"Job {one.job!r} was not made"
    text = f"{who}{f', {one.times} times' * (one.times > 1)}: {one.reason}."
    if one.kind == "UnknownJob":
        made = ", ".join(repr(job.job) for job in jobs[:MOST_OWNERS])
        text += f" It has no slots; {slots_taken(jobs, free_slots)}."
        return Alert(text=text, advice=f"Is the name right? There are: {made}." if made else "", jobs=[one.job])
    advice = {
        "NoCapacity": f"{slots_owned(jobs, free_slots)}.",
        "WorldSizeMismatch": "Start as many ranks as the job has, or: switchsum job resize --workers.",
        "RankTaken": "Give each process a rank of its own; one that has died is replaced when it is known to be lost.",
        "VersionMismatch": "Install the same version of switchsum on all machines.",
    }.get(one.kind, "")
    return Alert(text=text, advice=advice, jobs=[one.job])


def slots_owned(jobs: list[rpc.JobInfo], free_slots: int) -> str:
    """Say who has the switch's slots."""
    owners = [f"job {one.job!r} has {one.slot_count}" for one in jobs]
    return f"{free_slots} are free, and {', and '.join(owners[:MOST_OWNERS]) or 'no job has any'}"


def slots_taken(jobs: list[rpc.JobInfo], free_slots: int) -> str:
    """Say who has the switch's slots, and what to do."""
    return f"{slots_owned(jobs, free_slots)}. switchsum job create reserves some, job remove frees them"
