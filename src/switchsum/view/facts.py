"""Reads what is known of a controller's jobs at one moment: the data of `explain`, `top`, the page and the metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from switchsum.view.arrivals import Arrivals, ArrivalsOfJobs
from switchsum.view.pace import Pace
from switchsum_protocol import rpc
from switchsum_protocol.errors import RemoteError, SwitchLost, UnknownJob
from switchsum_protocol.reports import JobCalls
from switchsum_protocol.states import LIVE, SwitchPresence

MOST_SLOTS: Final = 256
"""Slots of a job that are read: a member has no more in flight."""
LOOKS: Final = 8
"""Readings of slots, one after the other, of which `gather` adds up whose contributions come last."""
LOOK_S: Final = 0.03
"""Pause between two of them."""


class Source(Protocol):
    """A controller that can be asked: over gRPC, or in this process."""

    def info(self) -> rpc.ControllerInfo:
        """Describe the controller."""

    def list_jobs(self) -> rpc.JobList:
        """Describe all jobs."""

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Describe a job."""

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        """Tell what each member of a job last said of itself."""

    def statistics(self) -> rpc.Statistics:
        """Read the switch's counters."""

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        """Read the cells of slots from the switch."""

    def ports(self) -> rpc.PortList:
        """Describe all ports of which something is known."""

    def links(self) -> rpc.LinkList:
        """Describe the links between switches."""

    def switches(self) -> rpc.SwitchList:
        """Describe the switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is known of one job at a moment."""

    job: rpc.JobInfo
    workers: list[rpc.WorkerInfo]
    counters: dict[int, rpc.MemberCounters]
    """Counters by rank, of a job that runs."""
    slots: list[rpc.SlotInfo] | None
    """Slots. None: they were not read this time (`Pace`)."""
    ports: rpc.PortList
    calls: JobCalls = field(default_factory=JobCalls)
    """Figures of late ranks."""
    away: list[str] = field(default_factory=list)
    """Switches that the job needs, and that do not answer the controller."""
    addresses: dict[str, str] = field(default_factory=dict)
    """P4Runtime addresses of these, by name."""
    arrivals: Arrivals = field(default_factory=Arrivals)
    """Whose contributions come last, as far as slots were read."""
    trouble: str = ""
    """Why slots and counters were not read, although the job runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All that is known of a controller, its switch and its jobs at a moment."""

    at_s: float
    """Time of reading, in seconds of the clock that `look_at` was given."""
    info: rpc.ControllerInfo
    jobs: list[Facts]
    counted: rpc.Statistics = field(default_factory=rpc.Statistics)
    """Counters of the switches that are there. Empty: they were not asked, or none is there."""
    ports: rpc.PortList = field(default_factory=rpc.PortList)
    links: rpc.LinkList = field(default_factory=rpc.LinkList)
    """Links between switches. Empty, like `switches`, if the switch was not to be asked."""
    switches: rpc.SwitchList = field(default_factory=rpc.SwitchList)
    trouble: str = ""
    """Why a switch does not answer; empty: all do, or were not asked."""


def gather(source: Source, job: str) -> Facts:
    """Ask the controller for all that it knows of a job, and the switch for its slots and counters."""
    shown = source.show_job(rpc.JobRequest(job=job))
    counted, trouble = rpc.Statistics(), ""
    if shown.state in LIVE:
        try:
            counted = source.statistics()
        except (SwitchLost, RemoteError) as error:
            trouble = str(error)
    facts = _facts(source, shown, counted, source.ports(), slots=not trouble)
    return replace(facts, trouble=trouble) if trouble else _with_arrivals(source, facts)


def _with_arrivals(source: Source, facts: Facts) -> Facts:
    """Read slots a few times more, unless a rank waits for long: one reading of a job at work may say nothing."""
    job, found = facts.job, ArrivalsOfJobs()
    if job.state not in LIVE or facts.away or any(one.age_s >= 0 and one.waiting_s >= 1 for one in facts.workers):
        return facts
    found.note(job, facts.slots or [], time.monotonic())
    for _ in range(LOOKS - 1):
        time.sleep(LOOK_S)
        try:
            found.note(job, source.slots(rpc.SlotsRequest(job=job.job, limit=MOST_SLOTS)).slots, time.monotonic())
        except (SwitchLost, RemoteError, UnknownJob):
            break
    return replace(facts, arrivals=found.of(job.job, time.monotonic()))


def look_at(
    source: Source, *, switch: bool, slots: bool | Pace, now: float | None = None, only: str | None = None
) -> Overview:
    """Ask the controller for all that it knows of all jobs, or of `only` one; with `switch` and `slots` the switch too.

    Slots are read always, never, or at a pace.  What needs a switch is left out while that is away, and `trouble` says
    why.
    """
    info, jobs, ports, trouble = source.info(), source.list_jobs().jobs, source.ports(), ""
    counted, unread = rpc.Statistics(), ""
    if switch:
        try:
            counted = source.statistics()
            trouble = away_text(counted.away)
        except (SwitchLost, RemoteError) as error:
            trouble = unread = str(error)
    found = []
    if isinstance(slots, Pace):
        slots.begin(job.job for job in jobs)
    for job in jobs:
        if only not in (None, job.job):
            continue
        try:
            facts = _facts(source, job, counted, ports, slots=slots if counted.away or not trouble else False)
            found.append(replace(facts, trouble=unread) if unread else facts)
        except UnknownJob:  # removed since
            continue
        except (SwitchLost, RemoteError) as error:
            trouble = str(error)
            found.append(replace(_facts(source, job, counted, ports, slots=False), trouble=trouble))
    return Overview(
        at_s=time.time() if now is None else now,
        info=info,
        jobs=found,
        counted=counted,
        ports=ports,
        links=source.links() if switch else rpc.LinkList(),
        switches=source.switches() if switch else rpc.SwitchList(),
        trouble=trouble,
    )


def away_text(switches: Sequence[str]) -> str:
    """Say which switches of several are away; empty: none is."""
    names = ", ".join(switches)
    return f"{f'switch {names} does' if len(switches) == 1 else f'switches {names} do'} not answer" if switches else ""


def is_over(job: rpc.JobInfo, switch: str) -> bool:
    """Tell whether a job's trees or members are at a switch, or the fallback of its shared slots is."""
    return (
        any(switch in row[:2] for row in job.tree)
        or any(switch in (member.switches or [member.switch]) for member in job.members)
        or switch == job.fallback != ""
    )


def _facts(
    source: Source, job: rpc.JobInfo, counted: rpc.Statistics, ports: rpc.PortList, *, slots: bool | Pace
) -> Facts:
    answered = source.workers(rpc.JobRequest(job=job.job))
    workers = answered.workers
    counters = {one.rank: one for one in counted.members if one.job == job.job}
    cells = _slots(source, job, workers, slots)
    # What was asked above may have shown that a switch does not answer.
    gone = [one for one in source.switches().switches if one.state == SwitchPresence.AWAY and is_over(job, one.switch)]
    arrivals = Arrivals()
    if isinstance(slots, Pace):
        if cells:
            slots.arrivals.note(job, cells, slots.now_s)
        arrivals = slots.arrivals.of(job.job, slots.now_s)
    return Facts(
        job=job,
        workers=workers,
        counters=counters,
        slots=cells,
        ports=ports,
        calls=answered.calls,
        away=[one.switch for one in gone],
        addresses={one.switch: one.p4runtime for one in gone if one.p4runtime},
        arrivals=arrivals,
    )


def _slots(
    source: Source, job: rpc.JobInfo, workers: list[rpc.WorkerInfo], wanted: bool | Pace
) -> list[rpc.SlotInfo] | None:
    """Return cells of a job's slots; None if they are not read this time.

    There are none of a job that does not run.  While a switch of the job is away, those of the others say nothing about
    who is missing.
    """
    if wanted is False or job.state not in LIVE:
        return []
    if isinstance(wanted, Pace) and not wanted.wants(job.job, workers):
        return None
    began_s = time.perf_counter()
    found = source.slots(rpc.SlotsRequest(job=job.job, limit=MOST_SLOTS))
    if isinstance(wanted, Pace):
        wanted.read(time.perf_counter() - began_s)
    return [] if any(is_over(job, name) for name in found.away) else found.slots
