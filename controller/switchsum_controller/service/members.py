"""The calls of members, from joining to leaving, as the controller answers them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from switchsum_protocol import member_rpc, reports, rpc_codec
from switchsum_protocol.errors import ControllerUnreachable, NotAdmitted, SwitchLost, VersionMismatch
from switchsum_protocol.frame import WIRE_VERSION
from switchsum_protocol.issued import compared, issuers
from switchsum_protocol.speaks import speaks
from switchsum_protocol.states import MemberState

from ..jobs import several_links
from ..jobs.job import Job
from ..jobs.late_calls import Calls
from ..jobs.machines import Fault, FaultKind, Incarnation, JobMember
from ..jobs.registry import RETURN_S, Jobs
from ..plan.windows import window_slots
from ..trees import rails
from . import views
from .reconciler import Reconciler

log = logging.getLogger("switchsum.controller.service.members")

MAX_WAIT_S: Final = 30.0
"""Longest time that a call may ask to wait."""
MAX_ATTENDING: Final = 1024
"""Most Attend calls that stay open; further ones are answered at once, and the members call again."""
MAX_WAITING: Final = 96
"""Most calls that may wait at a time; further ones are answered at once, and the members call again."""
QUORUM_HEARTBEAT_S: Final = 0.45
"""Longest time between heartbeats in a job that has quorums: a bit more than between two reports of a worker."""
LEAST_PAUSE_S: Final = 0.001
"""Of a call that waits for a moment which has come."""
MOST_UNTIL_LOST_S: Final = RETURN_S + 1.0
"""Seconds that others wait for a rank whose connection has ended: then it is lost. Shorter than a worker's call."""
MOST_ISSUED: Final = 1000
"""Characters of the sentence that says which ranks have issued what; each operation may name layers."""
UNLIMITED_GROWTH_BYTES: Final = 0xFFFF


class Members:
    """Serves the calls of members; each method serves one of the protocol's (`methods` in server.py)."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._waiting = 0
        self._attending = 0

    def join(self, request: member_rpc.JoinRequest) -> member_rpc.JoinReply:
        """Add a member to a job; raises JoinRefused.

        Where the rank's process has just ended, waits until that is sure.
        """
        reconciler = self._reconciler
        config = reconciler.config
        if (request.wire_version, request.wire_digest) != (WIRE_VERSION, speaks()):
            raise VersionMismatch(
                f"the member speaks wire version {request.wire_version} ({request.wire_digest}, switchsum "
                f"{request.package_version or '?'}), the controller {WIRE_VERSION} ({speaks()}, switchsum "
                f"{config.package_version or '?'}): install one version on both"
            )
        with reconciler.changed:
            reconciler.need_switch()
            for last in self.patience(MOST_UNTIL_LOST_S):
                holder = reconciler.jobs.holder(request.job, request.rank)
                if last or holder is None or not holder.is_cut_off:
                    break
            job, member = reconciler.jobs.join(
                request.job,
                rank=request.rank,
                world_size=request.world_size,
                now=reconciler.clock(),
                receive_bytes=request.receive_bytes,
                window_bytes=request.window_bytes,
                rates=request.rates,
            )
            reconciler.refusals.forget(job.name, member.rank)
            log.info("job %s: rank %d has joined for epoch %d", job.name, member.rank, job.gathering.epoch)
            growth_bytes = reconciler.config.limits(reconciler.fleet.limits).growth_bytes
            return member_rpc.JoinReply(
                nonce=member.nonce,
                job_number=job.number,
                epoch=job.gathering.epoch,
                cookie=member.cookie,
                lanes_per_frame=config.program.lanes_per_frame,
                growth_bytes=growth_bytes if growth_bytes < UNLIMITED_GROWTH_BYTES else None,
                switch_mac=config.address.mac,
                switch_ip=config.address.ip,
                switch_port=config.address.port,
                timeout_s=job.timeout_s,
                heartbeat_s=_heartbeat_s(job),
            )

    def ready(self, request: member_rpc.ReadyRequest) -> member_rpc.ReadyReply:
        """Wait until the member's incarnation is admitted, at most as long as the request says."""
        reconciler = self._reconciler
        with reconciler.changed:
            for last in self.patience(request.wait_s):
                reconciler.end_jobs_if_ousted()
                if reconciler.is_fresh and request.nonce not in reconciler.former:
                    away = _away_text(reconciler, reconciler.fleet.away())
                    reply = member_rpc.ReadyReply(admitted=False, hello_seen=False, lost_switch=away)
                else:
                    reply = self._readiness(*self.membership(request.job, request.nonce))
                if reply.admitted or last:
                    break
            return reply

    def reform(self, request: member_rpc.ReformRequest) -> member_rpc.ReformReply:
        """Shrink a job to the members that are not lost; wait until all of them have asked for that."""
        reconciler = self._reconciler
        with reconciler.changed:
            self._know_members(request.nonce)
            for last in self.patience(request.wait_s):
                job, rank, missing = reconciler.jobs.reform(request.nonce, reconciler.clock())
                if rank is None:
                    reconciler.changed.notify_all()  # those who ask for an operation with a quorum hear of it
                if rank is not None or last:
                    break
            if rank is None:
                return member_rpc.ReformReply(missing=missing)
            log.info("job %s: goes on with %d members", job.name, job.workers)
            reconciler.bring_up_to_date()
            return member_rpc.ReformReply(rank=rank, world_size=job.workers)

    def patience(self, wait_s: float, due_s: Callable[[], float | None] = lambda: None) -> Iterator[bool]:
        """Yield False now and after each change, and at last True: `wait_s` is over, or too many calls wait already.

        Also yields False when the clock has come to what `due_s` returns.
        """
        reconciler = self._reconciler
        deadline_s = reconciler.clock() + min(wait_s, MAX_WAIT_S)
        while (
            (left_s := deadline_s - reconciler.clock()) > 0
            and self._waiting < MAX_WAITING
            and not reconciler.is_stopping
        ):
            yield False
            self._waiting += 1
            due = due_s()
            reconciler.changed.wait(
                left_s if due is None else min(left_s, max(LEAST_PAUSE_S, due - reconciler.clock()))
            )
            self._waiting -= 1
        yield True

    def membership(self, name: str, nonce: int) -> tuple[Job, Incarnation, JobMember]:
        """Return a membership and note that the member is alive; raises NotAdmitted, or the error that ended it."""
        reconciler = self._reconciler
        self._know_members(nonce)
        job, incarnation, member = reconciler.jobs.heartbeat(nonce, reconciler.clock())
        if job.name != name:
            raise NotAdmitted(f"this process is a member of job {job.name!r}, not of {name!r}")
        return job, incarnation, member

    def _know_members(self, nonce: int) -> None:
        """Raise ControllerUnreachable while this controller knows no members yet, so that members go on without it.

        If the membership has ended, raises the error that ended it.
        """
        reconciler = self._reconciler
        reconciler.end_jobs_if_ousted()
        if nonce in reconciler.former:
            kind, text = reconciler.former[nonce]
            raise kind(text)
        try:
            reconciler.need_jobs()
        except SwitchLost as error:
            raise ControllerUnreachable(f"the controller has just started: {error}") from error

    def _readiness(self, job: Job, incarnation: Incarnation, member: JobMember) -> member_rpc.ReadyReply:
        reconciler = self._reconciler
        if member.state is MemberState.LOST:
            raise NotAdmitted(
                f"the controller declared rank {member.rank} lost, because it heard nothing from it: connect again"
            )
        away = self._away(job, incarnation)
        # Not before the switch has all entries: the member's first frame must find them.
        if incarnation is job.live and reconciler.fleet.is_settled and not incarnation.is_moving and not away:
            shared = reconciler.fabric.slots_here(job.number, job.slots) if job.shares_slots else None
            slots = job.reserved or shared or job.slots
            return member_rpc.ReadyReply(
                admitted=True,
                hello_seen=True,
                first_slot=slots.first,
                slot_count=job.slot_count,
                shares_slots=job.shares_slots,
                first_shared_slot=shared.first if shared else 0,
                first_number=incarnation.first_number,
                window_slots=window_slots(job, *reconciler.frame_limits),
                trees=reconciler.fabric.slots_of_trees(job, incarnation),
                places=rails.places_of(reconciler.fabric, job, incarnation, member.rank),
                link_rates=several_links.rates_of(incarnation),
                link_jobs=[job.number, *job.link_numbers],
                has_rails=incarnation.has_rails,
                loads=reconciler.settings.loads + incarnation.forgotten,
            )
        missing = incarnation.ranks(MemberState.EXPECTED, MemberState.JOINED)
        return member_rpc.ReadyReply(
            admitted=False,
            hello_seen=member.state is not MemberState.JOINED,
            hello_cut=member.state is MemberState.JOINED and member.is_cut,
            missing=[rank for rank in missing if rank not in incarnation.gave_up],
            gave_up=sorted(incarnation.gave_up),
            lost_switch=(incarnation.held_up if job.is_complete else "") or away,
            unseen=member.unseen,
        )

    def _away(self, job: Job, incarnation: Incarnation) -> str:
        """Say which switch is away that an incarnation waits for; nothing if none is.

        A running job waits for those of its own trees.  A member that joins may be connected to any of them until its
        hello has come.
        """
        reconciler = self._reconciler
        if incarnation is job.live:
            return _away_text(reconciler, reconciler.away_of(incarnation))
        unseen = incarnation.ranks(MemberState.JOINED)
        text = _away_text(
            reconciler, [name for name in reconciler.fleet.away() if unseen or name not in reconciler.fleet.without]
        )
        if text and unseen:
            text += (
                f", and no hello of {'rank' if len(unseen) == 1 else 'ranks'} {', '.join(map(str, unseen))} has come"
            )
        return text

    def compare(self, request: member_rpc.CompareRequest) -> member_rpc.CompareReply:
        """Note the operation that a member has issued; return those of all members when all have said theirs."""
        reconciler = self._reconciler
        with reconciler.changed:
            job, incarnation, member = self.membership(request.job, request.nonce)
            member.issued = request.operation
            reconciler.changed.notify_all()
            for last in self.patience(request.wait_s):
                present = [one for one in incarnation.members if one.state is MemberState.ADMITTED]
                if last or all(one.issued for one in present):
                    break
            issued = [one.issued for one in incarnation.members]
            if text := compared(issued):
                first = issuers(issued)[0][0]
                incarnation.fault = Fault(
                    kind=FaultKind.MISMATCH, ranks=first, text=reports.printable(text, MOST_ISSUED)
                )
            self._tell_whole_job(job, incarnation)
            return member_rpc.CompareReply(operations=issued)

    def _tell_whole_job(self, job: Job, incarnation: Incarnation) -> None:
        """Have those hear it, too, who are absent from an operation whose ranks differ: it ends the job for all."""
        issued = {one.rank: one.issued for one in incarnation.members if one.issued}
        if len({*issued.values()}) < 2:
            return
        for whole in self._reconciler.jobs:
            subset = whole.live.agreement.groups.get(job.name) if whole.live is not None else None
            if whole.live is not None and subset is not None and not whole.live.agreement.mismatch:
                ranks = sorted(subset.ranks)
                said = "; ".join(f"rank {ranks[rank]} issued {what}" for rank, what in sorted(issued.items()))
                whole.live.agreement.mismatch = reports.printable(said, MOST_ISSUED)
                self._reconciler.changed.notify_all()

    def leave(self, request: member_rpc.LeaveRequest) -> member_rpc.Empty:
        """End a membership."""
        reconciler = self._reconciler
        why = rpc_codec.error_from_details(reports.printable(request.error)) if request.error else None
        with reconciler.changed:
            if request.nonce in reconciler.former:
                return member_rpc.Empty()
            self._know_members(request.nonce)
            if (left := reconciler.jobs.leave(request.nonce, why)) is not None:
                log.info("job %s: rank %d has left", left[0].name, left[1].rank)
            reconciler.bring_up_to_date()
        return member_rpc.Empty()

    def heartbeat(self, request: member_rpc.MemberRequest) -> member_rpc.HeartbeatReply:
        """Note that a member is alive, and tell it about the others.

        It is one reply of `attend`, for who cannot read a stream. Workers attend: their connection's end says at once
        that they are gone.
        """
        with self._reconciler.changed:
            return self._news(request)

    def _news(self, request: member_rpc.MemberRequest) -> member_rpc.HeartbeatReply:
        job, incarnation, _ = self.membership(request.job, request.nonce)
        return member_rpc.HeartbeatReply(
            epoch=job.epoch_for(incarnation),
            lost=incarnation.gone(MemberState.LOST),
            mismatch=incarnation.agreement.mismatch,
            loads=self._reconciler.settings.loads + incarnation.forgotten,
            down=several_links.links_to_leave(incarnation),
            left=incarnation.ranks(MemberState.LEFT),
        )

    def link_down(self, request: member_rpc.LinkReport) -> member_rpc.Empty:
        """Have all members of a job do without a link that is dead at one of them."""
        reconciler = self._reconciler
        with reconciler.changed:
            job, incarnation, member = self.membership(request.job, request.nonce)
            if incarnation is job.live and several_links.take_down(incarnation, request.link):
                reason = reports.printable(request.reason)
                log.warning("job %s: goes on without link %d, rank %d: %s", job.name, request.link, member.rank, reason)
                reconciler.bring_up_to_date()
        return member_rpc.Empty()

    def report(self, request: reports.WorkerReport) -> member_rpc.Empty:
        """Keep what a member says of itself, in the place of what it said before; raises UsageError or NotAdmitted."""
        reconciler = self._reconciler
        kept, calls = views.bounded(request), views.calls_of(request)
        with reconciler.changed:
            _, incarnation, member = reconciler.jobs.member(request.nonce)
            member.reported.note(kept, reconciler.clock())
            incarnation.calls = incarnation.calls or Calls(len(incarnation.members))
            incarnation.calls.take(member.rank, calls, kept.kinds, reconciler.clock())
            if kept.is_inside and incarnation.agreement.terms is not None:
                reconciler.changed.notify_all()  # others may ask in vain who takes part
        return member_rpc.Empty()

    def attend(
        self, request: member_rpc.MemberRequest, call_at_end: Callable[[Callable[[], None]], bool]
    ) -> Iterator[member_rpc.HeartbeatReply]:
        """Yield news of the other members: at once, when something changes, and as heartbeats in between.

        The member counts as alive while this call is open.  `call_at_end` registers a function that is called when the
        call has ended; it returns False if it has ended already.
        """
        reconciler = self._reconciler
        ended = threading.Event()
        with reconciler.changed:
            reply = self._news(request)
            job, incarnation, _ = reconciler.jobs.member(request.nonce)
            is_kept = self._attending < MAX_ATTENDING
            jobs = reconciler.jobs
            if is_kept:
                self._attending += 1
                jobs.attend(request.nonce, reconciler.clock())

        def end() -> None:
            ended.set()
            reconciler.events.put(partial(self._depart, jobs, request.nonce))

        if is_kept and not call_at_end(end):
            end()
        yield reply
        answered_s = reconciler.clock()
        while is_kept and not ended.is_set() and not reconciler.is_stopping:
            with reconciler.changed:
                reconciler.changed.wait(max(0.0, answered_s + _pause_s(job, incarnation) - reconciler.clock()))
                news = self._news(request)
            # `changed` of the reconciler is notified for all jobs: most wake-ups bring nothing new for this member.
            if news != reply or reconciler.clock() >= answered_s + _pause_s(job, incarnation):
                reply, answered_s = news, reconciler.clock()
                yield reply

    def _depart(self, jobs: Jobs, nonce: int) -> None:
        self._attending -= 1
        jobs.depart(nonce, self._reconciler.clock())


def _away_text(reconciler: Reconciler, away: list[str]) -> str:
    """Say that these switches are away; nothing if there are none."""
    all_of_them = {name: reconciler.fleet.connections[name] for name in away}
    called = {name: f"{name or 'the switch'} ({one.address})" for name, one in all_of_them.items()}
    silent = [called[name] for name, one in all_of_them.items() if not one.refusal]
    texts = [f"{called[name]} cannot be used: {one.refusal}" for name, one in all_of_them.items() if one.refusal]
    if silent:
        texts.insert(0, f"{' and '.join(silent)} {'do' if silent[1:] else 'does'} not answer the controller")
    return "; ".join(texts)


def _heartbeat_s(job: Job) -> float:
    """Return the time between two heartbeats of a job's members."""
    return min(1.0, job.timeout_s / 10)


def _pause_s(job: Job, incarnation: Incarnation) -> float:
    """Return the same for those who attend: a member reports with each, and a quorum looks in reports for other calls.

    So all hear within a second that a member waits in another call, which two reports tell: it began, and still waits.
    """
    has_quorums = incarnation.agreement.terms is not None
    return min(QUORUM_HEARTBEAT_S, _heartbeat_s(job)) if has_quorums else _heartbeat_s(job)
