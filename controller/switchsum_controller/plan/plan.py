"""The plan: from the jobs to the table entries and groups of the switch; `rebuild.py` has the way back.

`plan_all` is a pure function: the same jobs give the same entries.  The controller never thinks of single writes.  It
makes the plan of all jobs, compares it with what the switch has (`entries.diff`), and writes the difference.

The entries `identity`, `stations` and those of loss, and each job's record, are made here.  `trees/branch.py` makes the
entries of members (`admission`, `result_address`) and their group, because a member's switch depends on the tree.  The
way there: `branches_of` calls `Fabric.branches`, which calls `Forest.branches`, and `Branch.items` yields the entries.

A job has a range of slots from its creation on, and admitted members have entries::

    a member      admission (job, tree, rank, epoch, address, port -> its bit, everybody's bits, slots, group, cookie)
                  result_address (job, rank -> address and cookie, which its replica of a result gets)
                  stations (its Ethernet address -> port), and the drop simulator's probabilities at its port
    a job         the multicast group of its members, and its record

Each job also has one entry on each switch, its *record*.  It is in the egress table of members, under a rank that no
member can have.  Its action is the table's default, so it does nothing to packets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, replace
from typing import Final

from switchsum_protocol.rpc import LEAST_QUORUM
from switchsum_protocol.states import MemberState
from switchsum_switch.wires.headers import Address

from ..jobs.job import Job
from ..jobs.machines import Incarnation, JobMember
from ..jobs.registry import Jobs
from ..tables.entries import Entry, Group, Replica, SwitchState
from ..tables.names import (
    BROADCAST,
    EGRESS_LOSS,
    FLOOD_GROUP,
    FORWARDING,
    IDENTITY,
    INGRESS_LOSS,
    RECORD_RANK,
    RESULT_ADDRESS,
    STATIONS,
    lldp_entry,
)
from ..trees.branch import Branch
from ..trees.fabric import Fabric
from ..trees.forest import AttachedWorker

LOSS_UNITS: Final = 1 << 32
"""The drop simulator's probabilities are multiples of 1 / 2**32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The switch's own address, and what it says of itself."""

    address: Address
    growth_bytes: int
    """Most bytes by which its frames may grow, 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Probabilities of the drop simulator at one port."""

    ingress: float = 0.0
    egress: float = 0.0


@dataclass(slots=True, kw_only=True)
class Settings:
    """Everything that the plan depends on, beside the jobs."""

    identity: Identity
    stations: dict[int, int] = field(default_factory=dict)
    """Port of each Ethernet address that is known from the start; the plan adds the members'."""
    flood_ports: frozenset[int] = frozenset()
    """Ports to which broadcasts go, beside those of stations and members."""
    loss: Loss = Loss()
    """Loss at every port that has members and is not in `port_loss`."""
    port_loss: dict[int, Loss] = field(default_factory=dict)
    loads: int = 0
    """Number of times that the switch was given its program. Each time it has forgotten all rounds."""
    view: int = 0
    """Number of times that a switch of several was lost. State of the remaining switches is newer than that of the
    returning one.
    """


def plan_all(jobs: Jobs, settings: Settings, fabric: Fabric) -> dict[str, SwitchState]:
    """Return all entries and groups that each switch should have, leaves before the root."""
    items = {name: list(_plan_switch(jobs, settings, fabric, name)) for name in reversed(list(fabric.switches))}
    for job in jobs:
        if job.live is not None:
            for name, branches in branches_of(job, job.live, settings, fabric).items():
                items[name] += [item for branch in branches for item in branch.items()]
    return {name: SwitchState.of(of_switch) for name, of_switch in items.items()}


def live_members(jobs: Jobs) -> Iterator[tuple[Job, JobMember]]:
    """Yield the members whose entries are on the switch, in an order that no restart of the controller changes."""
    for job in sorted(jobs, key=lambda job: job.number):
        if job.live is not None:
            yield from ((job, member) for member in job.live.members)


def _plan_switch(jobs: Jobs, settings: Settings, fabric: Fabric, name: str) -> Iterator[Entry | Group]:
    identity, here = settings.identity, settings.identity.address
    is_home = name == fabric.home  # a user's stations and losses of single ports are there
    port_loss = settings.port_loss if is_home else {}
    attachments = [
        attachment
        for _, member in live_members(jobs)
        for attachment in member.all_attachments
        if attachment.switch == name
    ]
    yield Entry(
        table=IDENTITY,
        action="SwitchIngress.identify",
        params={"mac": here.mac, "ip": here.ip, "port": here.port, "growth_bytes": identity.growth_bytes},
        metadata=_pack(
            last_number=jobs.last_number,
            loads=settings.loads,
            loss=[settings.loss.ingress, settings.loss.egress],
            view=settings.view,
        ),
        is_default=True,
    )
    for job in jobs:
        yield _record_of(job)
    stations = {attachment.address.mac: attachment.ingress_port for attachment in attachments}
    stations.update(settings.stations if is_home else {})  # what the user has configured wins
    stations.update(fabric.switches[name].stations)
    for mac, port in stations.items():
        yield Entry(
            table=STATIONS,
            match={"mac": mac},
            action=f"{FORWARDING}.forward",
            params={"port": port},
        )
    if ports := (settings.flood_ports if is_home else frozenset()) | set(stations.values()):
        replicas = frozenset(Replica(port=port, instance=0) for port in ports)
        yield Group(group=FLOOD_GROUP, replicas=replicas)
        yield Entry(
            table=STATIONS,
            match={"mac": BROADCAST},
            action=f"{FORWARDING}.flood",
            params={"group": FLOOD_GROUP},
        )
    if fabric.is_discovered:
        yield lldp_entry()
    between = set(fabric.switches[name].ports.values())
    for port in {attachment.ingress_port for attachment in attachments} | between | port_loss.keys():
        loss = port_loss.get(port, settings.loss)
        for control, probability in ((INGRESS_LOSS, loss.ingress), (EGRESS_LOSS, loss.egress)):
            yield from _plan_loss(control, port, probability, explicit=port in port_loss)


def _plan_loss(control: str, port: int, probability: float, *, explicit: bool) -> Iterator[Entry]:
    # An entry without loss is written only if a user has asked for 0 at this port; the tables' default is no loss.
    share = min(round(probability * LOSS_UNITS), LOSS_UNITS - 1)
    if share or explicit:
        yield Entry(
            table=f"{control}.probability",
            match={"port": port},
            action=f"{control}.lose" if share else f"{control}.keep",
            params={"share": share} if share else {},
            metadata=_pack(explicit=explicit, probability=probability),
        )


def _record_of(job: Job) -> Entry:
    live = job.live
    return Entry(
        table=RESULT_ADDRESS,
        match={"job": job.number, "rank": RECORD_RANK},
        action="SwitchEgress.drop",
        metadata=_pack(
            job=job.name,
            workers=job.workers,
            first_slot=job.slots.first,
            slot_count=job.slots.count,
            fits_slots=job.fits_slots,
            group=job.group,
            timeout_s=job.timeout_s,
            ephemeral=job.ephemeral,
            **({"shares_slots": True, "own_part": job.own_part and astuple(job.own_part)} if job.shares_slots else {}),
            live=live is not None,
            # Without a live incarnation the epoch before the next one, so that `rebuild` continues behind it.
            epoch=live.epoch if live else (job.gathering.epoch - 1) & 0xFFFF,
            first_number=live.first_number if live else 0,
            left=live.ranks(MemberState.LEFT) if live else [],
            lost=live.ranks(MemberState.LOST) if live else [],
            **(
                {"link_numbers": job.link_numbers, "down": sorted(live.down) if live else []}
                if job.link_numbers
                else {}
            ),
            **({"least_quorum": job.least_quorum} if job.least_quorum != LEAST_QUORUM else {}),
            **({"agreement": live.agreement.record(job.workers)} if live and live.agreement.terms else {}),
            **({"has_rails": True} if live and live.has_rails else {}),
            **({"above": live.above} if live and live.above else {}),
            **(
                {"moves": live.moves, "moved": [*map(astuple, live.moved)], "is_moving": live.is_moving}
                if live and live.moves
                else {}
            ),
        ),
    )


def branches_of(job: Job, incarnation: Incarnation, settings: Settings, fabric: Fabric) -> dict[str, list[Branch]]:
    """Return each switch's part in a job whose members have been seen; raises UsageError where it has no room.

    A switch has all of it once for each link of the members that leads there.
    """
    found: dict[str, list[Branch]] = {}
    for link in incarnation.links:
        over = incarnation.over(link)
        branches = fabric.branches(
            job,
            over,
            [
                _attached_worker(job, over, member, incarnation.moves if incarnation.has_rails else 0)
                for member in over.members
            ],
            link=link,
            own=settings.identity.address,
            growth_bytes=settings.identity.growth_bytes,
            record=_pack(job=job.name, epoch=incarnation.epoch),
        )
        is_left = incarnation.has_rails and link in incarnation.down
        for name, of_switch in branches.items():
            found.setdefault(name, []).extend(replace(branch, is_left=is_left) for branch in of_switch)
    return found


def _attached_worker(job: Job, live: Incarnation, member: JobMember, moves: int) -> AttachedWorker:
    """Return how a member is attached; `moves` of rails, so that a switch with the entries has cells for this one."""
    assert member.address is not None, "a live member was seen"
    where: dict[str, object] = {"switch": member.switch} if member.switch else {}
    where |= {"rates": member.rates} if member.rates else {}
    where |= {"moves": moves} if moves else {}
    return AttachedWorker(
        switch=member.switch,
        port=member.ingress_port,
        address=member.address,
        cookie=member.cookie,
        record=_pack(
            job=job.name,
            epoch=live.epoch,
            rank=member.rank,
            nonce=member.nonce,
            receive_bytes=member.receive_bytes,
            window_bytes=member.window_bytes,
            **where,
        ),
    )


def _pack(**record: object) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
