"""Reads what is known of a controller's jobs at one moment: the data of `explain`, `top`, the page and the metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, Protocol

from switchsum.protocol import rpc
from switchsum.protocol.errors import RemoteError, SwitchLost, UnknownJob
from switchsum.protocol.reports import JobCalls
from switchsum.view.pace import Pace

MOST_SLOTS: Final = 256
"""Slots of a job that are read: a member has no more in flight."""
LIVE: Final = ("running", "draining")
"""States of a job whose entries are on the switch."""


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
    """By rank; of a job that runs."""
    slots: list[rpc.SlotInfo] | None
    """None: they were not read this time (`Pace`)."""
    ports: rpc.PortList
    calls: JobCalls = field(default_factory=JobCalls)
    """Who is late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All that is known of a controller, its switch and its jobs at a moment."""

    at_s: float
    """When it was read, in seconds of the clock that `look_at` was given."""
    info: rpc.ControllerInfo
    jobs: list[Facts]
    counted: rpc.Statistics = field(default_factory=rpc.Statistics)
    """By the switches; empty: they were not asked, or one is away."""
    ports: rpc.PortList = field(default_factory=rpc.PortList)
    links: rpc.LinkList = field(default_factory=rpc.LinkList)
    """Between switches; nothing, as of `switches`, where the switch was not to be asked."""
    switches: rpc.SwitchList = field(default_factory=rpc.SwitchList)
    trouble: str = ""
    """Why the switch does not answer; empty: it does, or was not asked."""


def gather(source: Source, job: str) -> Facts:
    """Ask the controller for all that it knows of a job, and the switch for its slots and counters."""
    shown = source.show_job(rpc.JobRequest(job=job))
    counted = source.statistics() if shown.state in LIVE else rpc.Statistics()
    return _facts(source, shown, counted, source.ports(), slots=True)


def look_at(
    source: Source, *, switch: bool, slots: bool | Pace, now: float | None = None, only: str | None = None
) -> Overview:
    """Ask the controller for all that it knows of all jobs, or of `only` one; with `switch` and `slots` the switch too.

    Slots are read always, never, or at a pace.  What needs the switch is left out while that is away, and `trouble`
    says why.
    """
    info, jobs, ports, trouble = source.info(), source.list_jobs().jobs, source.ports(), ""
    counted = rpc.Statistics()
    if switch:
        try:
            counted = source.statistics()
        except (SwitchLost, RemoteError) as error:
            trouble = str(error)
    found = []
    if isinstance(slots, Pace):
        slots.begin(job.job for job in jobs)
    for job in jobs:
        if only not in (None, job.job):
            continue
        try:
            found.append(_facts(source, job, counted, ports, slots=slots if not trouble else False))
        except UnknownJob:  # removed since
            continue
        except (SwitchLost, RemoteError) as error:
            trouble = str(error)
            found.append(_facts(source, job, counted, ports, slots=False))
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


def _facts(
    source: Source, job: rpc.JobInfo, counted: rpc.Statistics, ports: rpc.PortList, *, slots: bool | Pace
) -> Facts:
    told = source.workers(rpc.JobRequest(job=job.job))
    workers = told.workers
    counters = {one.rank: one for one in counted.members if one.job == job.job}
    cells = _slots(source, job, workers, slots)
    return Facts(job=job, workers=workers, counters=counters, slots=cells, ports=ports, calls=told.calls)


def _slots(
    source: Source, job: rpc.JobInfo, workers: list[rpc.WorkerInfo], wanted: bool | Pace
) -> list[rpc.SlotInfo] | None:
    """Return cells of a job's slots; none of a job that does not run; None if they are not read this time."""
    if wanted is False or job.state not in LIVE:
        return []
    if isinstance(wanted, Pace) and not wanted.wants(job.job, workers):
        return None
    began_s = time.perf_counter()
    found = source.slots(rpc.SlotsRequest(job=job.job, limit=MOST_SLOTS)).slots
    if isinstance(wanted, Pace):
        wanted.read(time.perf_counter() - began_s)
    return found
