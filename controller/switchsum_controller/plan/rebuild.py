"""The way back from the entries of switches to jobs, for a controller that starts beside switches with running jobs.

`rebuild` is the inverse of `plan.plan_all` for admitted members: it reads entries, rebuilds jobs and finds nothing to
write.  So the controller can be killed at any time, and keeps no file.  Some facts do not follow from keys and
parameters of entries, such as a job's name, a nonce or a time-out.  They are in the entries' metadata, as JSON, which
the switch stores and does not look at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MOST_WORKERS
from switchsum_protocol.rpc import LEAST_QUORUM, Move
from switchsum_protocol.states import JobState, MemberState
from switchsum_switch.wires.headers import Address

from ..jobs.agreement import Agreement
from ..jobs.job import Job, new_incarnation
from ..jobs.machines import Attachment, Incarnation, JobMember
from ..jobs.registry import Jobs
from ..jobs.several_links import named
from ..jobs.slots import SlotRange
from ..tables.entries import Entry, SwitchState
from ..tables.names import ADMISSION, EGRESS_LOSS, IDENTITY, INGRESS_LOSS, RECORD_RANK, RESULT_ADDRESS
from .plan import Loss, Settings


def merged(states: Mapping[str, SwitchState]) -> SwitchState:
    """Return what `rebuild` needs of several switches: all that one of them has, and the members of the others.

    All switches have the records of all jobs.  Those of one that was lost may be old; so the one counts that knows of
    most losses, of equals the first, which is the root.
    """
    by_view = sorted(states.values(), key=view_of)  # what comes later takes the place of what came before
    newest = max(states.values(), key=view_of)
    state = SwitchState()
    for other in by_view:
        for entry in (*other.table(ADMISSION), *other.table(RESULT_ADDRESS)):
            if entry.match["rank"] != RECORD_RANK:
                state.put(entry)
    return SwitchState({**state.entries, **newest.entries}, dict(newest.groups))


def view_of(state: SwitchState) -> int:
    """Return how many losses of switches one knows of; -1: no controller has written to it."""
    return _number_of(state, "view", -1)


def loads_of(state: SwitchState) -> int:
    """Return how often switches were given their program, as far as one knows."""
    return _number_of(state, "loads", 0)


def _number_of(state: SwitchState, name: str, otherwise: int) -> int:
    """Return a number from what the controller keeps beside a switch's address; `otherwise` where it has written none.

    The entry is the last one that a switch gets.
    """
    for entry in state.table(IDENTITY):
        if entry.metadata:
            try:
                return int(json.loads(entry.metadata).get(name, 0))
            except (ValueError, TypeError, AttributeError, OverflowError):
                break
    return otherwise


def live_records(state: SwitchState) -> int:
    """Return how many jobs a state says to be live, whether their members are in it or not."""
    records = [entry for entry in state.table(RESULT_ADDRESS) if entry.match["rank"] == RECORD_RANK]
    try:
        return sum(bool(json.loads(entry.metadata)["live"]) for entry in records)
    except (ValueError, KeyError, TypeError):
        return len(records)


def rebuild(state: SwitchState, jobs: Jobs, settings: Settings, now: float) -> list[str]:
    """Restore jobs and drop simulator from the entries of the switch; return the entries that made no sense.

    If entries of some members of an incarnation are missing, the controller was stopped while it wrote or removed them.
    The members were never told that they are admitted, or have left.  So that incarnation is dropped, and the job waits
    for its next one.
    """
    problems = []
    for entry in state.entries.values():
        try:
            if entry.table == IDENTITY:
                _rebuild_switch(entry, jobs, settings)
            elif entry.table.startswith((INGRESS_LOSS, EGRESS_LOSS)):
                _rebuild_loss(entry, settings)
            elif entry.table == RESULT_ADDRESS and entry.match["rank"] == RECORD_RANK:
                jobs.adopt(_rebuild_job(entry, state, now))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            problems.append(f"an entry of {entry.table} that this controller did not write: {error!r}")
    return problems


def _rebuild_switch(entry: Entry, jobs: Jobs, settings: Settings) -> None:
    if entry.metadata:  # without any, the entry is the program's own default
        record = json.loads(entry.metadata)
        jobs.last_number = int(record["last_number"])
        settings.loads = int(record["loads"])
        settings.view = int(record.get("view", 0))
        settings.loss = Loss(ingress=float(record["loss"][0]), egress=float(record["loss"][1]))


def _rebuild_loss(entry: Entry, settings: Settings) -> None:
    record = json.loads(entry.metadata)
    if record["explicit"]:
        port = _exact(entry, "port")
        loss, probability = settings.port_loss.get(port, Loss()), float(record["probability"])
        settings.port_loss[port] = (
            Loss(ingress=probability, egress=loss.egress)
            if entry.table.startswith(INGRESS_LOSS)
            else Loss(ingress=loss.ingress, egress=probability)
        )


def _rebuild_job(entry: Entry, state: SwitchState, now: float) -> Job:
    record = json.loads(entry.metadata)
    workers = int(record["workers"])
    if not 1 <= workers <= MOST_WORKERS:
        raise UsageError(f"a job on the switch has {workers} workers, not 1 to {MOST_WORKERS}")
    job = Job(
        name=str(record["job"]),
        number=_exact(entry, "job"),
        workers=workers,
        slots=SlotRange(first=int(record["first_slot"]), count=int(record["slot_count"])),
        fits_slots=bool(record.get("fits_slots", False)),
        group=int(record["group"]),
        timeout_s=float(record["timeout_s"]),
        ephemeral=bool(record.get("ephemeral", False)),
        least_quorum=float(record.get("least_quorum", LEAST_QUORUM)),
        shares_slots=bool(record.get("shares_slots", False)),
        own_part=_rebuild_own_part(*record["own_part"]) if record.get("own_part") else None,
        gathering=new_incarnation(int(record["epoch"]) + 1, workers),
        link_numbers=[int(number) for number in record.get("link_numbers", [])],
    )
    if record["live"]:
        job.live = _rebuild_live(job, record, state, now)
    return job


def _rebuild_own_part(first: object, count: object) -> SlotRange:
    if not isinstance(first, int) or not isinstance(count, int):
        raise UsageError(f"a job on the switch has slots of its own from {first!r} on, {count!r} of them")
    return SlotRange(first=first, count=count)


def _rebuild_live(job: Job, record: dict[str, Any], state: SwitchState, now: float) -> Incarnation | None:
    """Return the incarnation that a job's record names, if the switch has the entries of all its members."""
    members: dict[int, JobMember] = {}
    for link, number in enumerate([job.number, *job.link_numbers]):
        _rebuild_link(job, record, link, number, state, members, now)
    if sorted(members) != list(range(job.workers)):
        return None
    live = Incarnation(
        epoch=int(record["epoch"]),
        members=[members[rank] for rank in range(job.workers)],
        state=JobState.DRAINING if record["left"] or record["lost"] else JobState.RUNNING,
        first_number=int(record["first_number"]),
        has_rails=bool(record.get("has_rails", False)),
        down={int(link) for link in record.get("down", [])},
        above=[{str(name): str(far) for name, far in one.items()} for one in record.get("above", [])],
        moves=int(record.get("moves", 0)),
        moved=[Move(why=why, what=what, away=away) for why, what, away in record.get("moved", [])],
        is_moving=bool(record.get("is_moving", False)),
        agreement=Agreement.of(record["agreement"], job.workers) if "agreement" in record else Agreement(),
    )
    missing = {link for member in live.members for link in member.unseen}
    # The switches of a rail may be away, or have come back empty: the others go on without it.
    if not {*live.links} - live.down or (missing - live.down and not live.has_rails):
        return None
    for member in live.members:
        member.attachments = {link: member.attachments[link] for link in live.links}
    if left := missing - live.down:
        live.down |= missing
        live.begin_move(f"switches of {named(left)} have no entries", "it goes on without")
    return live if live.ranks(MemberState.ADMITTED) else None


def _rebuild_link(
    job: Job,
    record: dict[str, Any],
    link: int,
    number: int,
    state: SwitchState,
    members: dict[int, JobMember],
    now: float,
) -> None:
    """Find members and where their link with this job number comes in."""
    # A cookie is read where results get it: while a job moves, admission has others for a moment (`rerouting`).
    addresses = {
        entry.match["rank"]: (entry.params["mac"], entry.params["cookie"])
        for entry in state.table(RESULT_ADDRESS)
        if entry.match["job"] == number and entry.match["rank"] != RECORD_RANK
    }
    for entry in state.table(ADMISSION):
        # Only entries of the recorded epoch count: others were about to be deleted, or just written.
        rank = _exact(entry, "rank")
        # Ranks beyond the workers' are those of switches.
        if rank >= job.workers or rank not in addresses or entry.params.get("is_fallback"):
            continue
        if (entry.match["job"], entry.match["epoch"]) == (number, record["epoch"]):
            gone = MemberState.LEFT if rank in record["left"] else MemberState.LOST if rank in record["lost"] else None
            known = json.loads(entry.metadata)
            mac, cookie = addresses[rank]
            found = JobMember(
                rank=rank,
                state=gone or MemberState.ADMITTED,
                nonce=int(known["nonce"]),
                cookie=cookie,
                receive_bytes=int(known["receive_bytes"]),
                window_bytes=int(known["window_bytes"]),
                rates=[float(rate) for rate in known.get("rates", [])],
                heard_s=now,
            )
            members.setdefault(rank, found).attachments[link] = Attachment(
                address=Address(mac=mac, ip=_exact(entry, "source_ip"), port=_exact(entry, "source_port")),
                ingress_port=_exact(entry, "ingress_port"),
                switch=str(known.get("switch", "")),
            )


def _exact(entry: Entry, name: str) -> int:
    value = entry.match[name]
    if not isinstance(value, int):
        raise UsageError(f"an entry on the switch matches {name} by {value}, not by a number")
    return value
