"""The controller's state as messages of `switchsum_protocol.rpc`, for the command line."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Final

from switchsum_protocol import reports, rpc
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import Reason
from switchsum_protocol.states import STALLED, MemberState, SwitchPresence

from ..jobs.job import Job
from ..jobs.machines import JobMember
from ..jobs.registry import Jobs
from ..jobs.several_links import rates_of
from ..jobs.slots import Cell, SlotRange
from ..plan.plan import Loss, Settings, live_members
from ..switches.connection import SwitchConnection
from ..switches.fleet import Counted, MemberCounts
from ..switches.lldp import End
from ..switches.neighbours import FoundLink
from ..tables.names import ADMISSION, RESULT_ADDRESS
from ..trees.fabric import Fabric
from ..trees.rails import links_of_job

GONE: Final = "#{} (gone)"
"""What stands for the name of a job that is not there any more, and still holds a slot."""
MOST_CALLS: Final = 256
"""Most calls in a report: as many as a worker keeps."""
_FIGURES: Final = tuple(one.name for one in fields(reports.WorkerFigures))


def job_info(
    job: Job,
    now: float,
    *,
    slots: SlotRange,
    fallback: str,
    is_up: bool,
    lanes_per_frame: int,
    window_slots: int,
    tree: list[list[str]],
    trees_of_link: int,
) -> rpc.JobInfo:
    """Describe a job by its live incarnation or, without one, by the next; it is stalled unless its switches are up."""
    shown = job.live or job.gathering
    agreement, broken = shown.agreement, job.live.broken_by if job.live is not None else job.fault
    return rpc.JobInfo(
        job=job.name,
        number=job.number,
        epoch=shown.epoch,
        state=shown.state if is_up else STALLED,
        workers=job.workers,
        first_slot=slots.first,
        slot_count=slots.count,
        shares_slots=job.shares_slots,
        fallback=fallback,
        fallback_slot=job.slots.first if job.shares_slots else 0,
        own_first_slot=job.own_part.first if job.own_part else 0,
        own_slot_count=job.own_part.count if job.own_part else 0,
        lanes_per_frame=lanes_per_frame,
        window_slots=window_slots,
        fits_slots=job.fits_slots,
        timeout_s=job.timeout_s,
        tree=tree,
        link_rates=rates_of(shown) if job.is_complete or job.live else [],
        links_down=sorted(shown.down),
        moved=[*shown.moved],
        trees_of_link=trees_of_link,
        least_quorum=job.least_quorum,
        agreed=agreement.latest.number,
        waits=agreement.waits,
        left_out=[[rank, count] for rank, count in sorted(agreement.left_out.items())],
        given_model=[[rank, count] for rank, count in sorted(agreement.given_model.items())],
        refused_terms=[[rank, count] for rank, count in sorted(agreement.refused.items())],
        held_up=agreement.held_up,
        has_ended=job.has_ended,
        broken="" if broken is None else broken.kind,
        broken_ranks=[] if broken is None else broken.ranks,
        broken_text="" if broken is None else broken.text,
        ephemeral=job.ephemeral,
        starting_s=_starting_s(shown.members, now),
        members=[
            rpc.MemberInfo(
                rank=member.rank,
                state=member.state,
                address=str(member.address or ""),
                ingress_port=member.ingress_port,
                switch=member.switch,
                links=_links(member),
                switches=_switches(member) if shown.has_rails else [],
                last_heartbeat_s=-1.0 if member.state is MemberState.EXPECTED else round(now - member.heard_s, 3),
            )
            for member in shown.members
        ],
    )


def _starting_s(members: Iterable[JobMember], now: float) -> float:
    """Return for how long some ranks have been there while others are still to come; -1: that is not so."""
    if not any(one.state in (MemberState.EXPECTED, MemberState.JOINED) for one in members):
        return -1.0
    joined = [one.joined_s for one in members if one.state in (MemberState.JOINED, MemberState.SEEN)]
    return round(max(0.0, now - min(joined)), 3) if joined else -1.0


def _links(member: JobMember) -> list[str]:
    """Describe the links of a member that has several; of rails some may not be known, if their switch is away."""
    if member.link_count == 1 or not member.attachments:
        return []
    attachments = [member.attachments.get(link) for link in range(member.link_count)]
    return [
        "not known, port -1" if attachment is None else f"{attachment.address} port {attachment.ingress_port}"
        for attachment in attachments
    ]


def _switches(member: JobMember) -> list[str]:
    """Name the switch to which each link of a member leads."""
    attachments = [member.attachments.get(link) for link in range(member.link_count)]
    return ["" if attachment is None else attachment.switch for attachment in attachments]


def bounded(report: reports.WorkerReport) -> reports.WorkerReport:
    """Return a report with its texts cut and unprintable characters replaced; raises UsageError for absurd numbers."""
    values = asdict(report)
    for name, value in values.items():
        if name in ("calls", "kinds"):
            values[name] = [reports.printable(one, reports.MOST_KIND) for one in value] if name == "kinds" else ""
        elif isinstance(value, str):
            values[name] = reports.printable(value)
        elif not 0 <= value < 1 << 64:  # not a number fails, too
            raise UsageError(f"a report's {name} is 0 to 2^64 - 1, not {str(value)[:20]}")
    return reports.WorkerReport(**values)


def calls_of(report: reports.WorkerReport) -> list[tuple[int, ...]]:
    """Read the calls of a report; raises UsageError for what are none."""
    try:
        data = base64.b64decode(report.calls, validate=True)
        calls = list(struct.iter_unpack("<5q", data))
    except (ValueError, struct.error) as error:
        raise UsageError(f"a report's calls are base64 of five numbers of 64 bits for each call: {error}") from error
    if max(len(calls), len(report.kinds)) > MOST_CALLS or any(
        min(call) < 0 or call[1] >= len(report.kinds) for call in calls
    ):
        raise UsageError(f"a report has up to {MOST_CALLS} calls, each of a kind that it names, and no number below 0")
    return calls


def worker_list(job: Job, now: float) -> rpc.WorkerList:
    """Describe a job's members by what they last said of themselves."""
    found = []
    shown = job.live or job.gathering
    for member in shown.members:
        latest = member.reported.latest
        if latest is None:
            found.append(rpc.WorkerInfo(rank=member.rank))
            continue
        values = {name: getattr(latest, name) for name in _FIGURES}
        age_s = round(max(0.0, now - member.reported.at_s), 3)
        found.append(rpc.WorkerInfo(rank=member.rank, age_s=age_s, recent=member.reported.recent, **values))
    calls = reports.JobCalls() if shown.calls is None else shown.calls.report(now)
    return rpc.WorkerList(workers=found, calls=calls)


def slot_list(cells: Mapping[str, Iterable[Cell]], jobs: Jobs, fallback: str, switches: Iterable[str]) -> rpc.SlotList:
    """Describe cells of each switch, each with the job that has reserved its slot there, or holds it.

    A job that is removed leaves slots that it holds until they expire; it has a number alone.

    Those of `switches` that have no cells here are away.
    """
    owners = {(True, slot): job.name for job in jobs if job.shares_slots for slot in job.slots.indices()}
    owners |= {(False, slot): job.name for job in jobs if job.reserved for slot in job.reserved.indices()}
    names = {job.number: job.name for job in jobs}
    return rpc.SlotList(
        slots=[
            rpc.SlotInfo(
                slot=cell.slot,
                version=cell.version,
                number=cell.number,
                seen=cell.seen,
                flags=cell.flags,
                block=cell.block,
                next_block=cell.next_block,
                job=names.get(cell.holder, GONE.format(cell.holder))
                if cell.holder
                else owners.get((name == fallback != "", cell.slot), ""),
                switch=name,
            )
            for name, of_switch in cells.items()
            for cell in of_switch
        ],
        away=[name for name in switches if name not in cells],
    )


def statistics(counted: Counted, jobs: Iterable[Job]) -> rpc.Statistics:
    """Describe the counters of all reasons and of each switch, and what each member of `jobs` has sent.

    A member that has a link to a switch that is away is left out: part of what it has sent is counted there.
    """

    def counters(*switches: Mapping[int, tuple[int, int]]) -> list[rpc.CounterInfo]:
        found = {reason: [one.get(reason, (0, 0)) for one in switches] for reason in Reason}
        return [
            rpc.CounterInfo(reason=reason.name.lower(), packets=sum(n for n, _ in each), bytes=sum(n for _, n in each))
            for reason, each in found.items()
        ]

    return rpc.Statistics(
        counters=counters(*counted.events.values()),
        members=[
            _member_counters(job, rank, counted.members)
            for job in jobs
            for rank in range(job.workers)
            if not counted.away or _switches_at(job, rank) <= counted.events.keys()
        ],
        switches=[
            rpc.SwitchCounters(
                switch=name,
                contributions=of_switch.get(Reason.CONTRIBUTED, (0, 0))[0],
                counters=counters(of_switch) if len(counted.events) + len(counted.away) > 1 else [],
            )
            for name, of_switch in counted.events.items()
        ],
        away=counted.away,
    )


def _switches_at(job: Job, rank: int) -> set[str]:
    """Return the switches to which a member of a running job has links."""
    members = [] if job.live is None else job.live.members[rank : rank + 1]
    return {attachment.switch for member in members for attachment in member.all_attachments}


def _member_counters(job: Job, rank: int, counts: MemberCounts) -> rpc.MemberCounters:
    numbers = [job.number, *job.link_numbers]
    sent = [counts.frames.get((ADMISSION, number, rank), (0, 0)) for number in numbers]
    contributions, octets = (sum(one[at] for one in sent) for at in (0, 1))
    results = sum(counts.frames.get((RESULT_ADDRESS, number, rank), (0, 0))[0] for number in numbers)
    reasons = dict(counts.reasons.get((job.group, rank), {}))
    if reasons:  # the switch counts what is not CONTRIBUTED, a moment after all contributions
        reasons = {Reason.CONTRIBUTED: max(0, contributions - sum(reasons.values())), **reasons}
    return rpc.MemberCounters(
        job=job.name,
        rank=rank,
        contributions=contributions,
        contribution_bytes=octets,
        results=results,
        reasons=[rpc.ReasonCount(reason=reason.name.lower(), packets=packets) for reason, packets in reasons.items()],
    )


def port_list(jobs: Jobs, settings: Settings) -> rpc.PortList:
    """Describe all ports of which something is known."""
    behind: dict[int, list[str]] = {}
    for job, member in live_members(jobs):
        for port in dict.fromkeys(attachment.ingress_port for attachment in member.all_attachments):
            behind.setdefault(port, []).append(f"{job.name}/{member.rank}")
    ports = behind.keys() | settings.port_loss.keys() | settings.flood_ports | set(settings.stations.values())
    infos = []
    for port in sorted(ports):
        loss = settings.port_loss.get(port, settings.loss if port in behind else Loss())
        infos.append(
            rpc.PortInfo(port=port, members=behind.get(port, []), ingress_loss=loss.ingress, egress_loss=loss.egress)
        )
    return rpc.PortList(ports=infos, ingress_loss=settings.loss.ingress, egress_loss=settings.loss.egress)


def link_list(fabric: Fabric, jobs: Jobs, found: tuple[list[FoundLink], list[rpc.LinkFault]]) -> rpc.LinkList:
    """Describe the links that were found, and which of them the trees of fleet and jobs use; else those of trees."""
    of_jobs = [links_of_job(fabric, job.live) for job in jobs if job.live is not None]
    known = fabric.links()
    ports = {name: switch.ports for name, switch in fabric.switches.items()}
    used = {
        frozenset((End(switch=name, port=ports[name][far]), End(switch=far, port=ports[far][name])))
        for name, far in map(sorted, fabric.used_links().union(*of_jobs))
        if far in known.get(name, ())
    }
    links, faults = found if fabric.is_discovered else ([FoundLink(ends=_pair(ends)) for ends in used], [])
    missing = used - {frozenset(link.ends) for link in links}
    lost = [
        rpc.LinkFault(
            text=f"the link from {link} is gone, which the tree needs", switches=[end.switch for end in link.ends]
        )
        for link in sorted(FoundLink(ends=_pair(ends)) for ends in missing)
    ]
    return rpc.LinkList(
        links=[
            rpc.LinkInfo(
                switch=link.ends[0].switch,
                port=link.ends[0].port,
                far_switch=link.ends[1].switch,
                far_port=link.ends[1].port,
                in_tree=frozenset(link.ends) in used,
            )
            for link in sorted(links)
        ],
        faults=[*lost, *faults],
    )


def switch_list(connections: Mapping[str, SwitchConnection]) -> rpc.SwitchList:
    """Describe switches, and what is on them."""
    return rpc.SwitchList(
        switches=[
            rpc.SwitchInfo(
                switch=name,
                p4runtime=one.address,
                state=_presence(one),
                entries=len(one.current.entries) if one.is_up else 0,
                groups=len(one.current.groups) if one.is_up else 0,
                trouble=one.trouble,
            )
            for name, one in connections.items()
        ]
    )


def _presence(one: SwitchConnection) -> SwitchPresence:
    if not one.is_up:
        return SwitchPresence.AWAY
    return SwitchPresence.SETTLED if one.is_settled else SwitchPresence.UNSETTLED


def _pair(ends: frozenset[End]) -> tuple[End, End]:
    first, second = sorted(ends)
    return first, second
