"""Agreements on who takes part in an operation, as the controller answers those who ask.

One lock makes it one step to note the last rank that asks, or that patience has ended, and to decide.  The decision is
written to all switches before anybody hears of it.  A controller that comes after this one reads it there, and says the
same: also not before all switches have it, for the former one may have been killed while it wrote.
`checks/verify/quorum.pml` is searched for what goes wrong otherwise.

Those who take part without the others have a job of their own, which is made here and kept for the next time.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from switchsum_protocol import reports
from switchsum_protocol.agreement_rpc import GO_ON, AgreeReply, AgreeRequest, Terms
from switchsum_protocol.errors import NoCapacity, NotAdmitted, OperationMismatch, RemoteError, UsageError, WorkerLost
from switchsum_protocol.states import MemberState

from ..jobs.agreement import MOST_GROUPS, Agreement, Decision, Subset
from ..jobs.job import Job
from ..jobs.machines import Incarnation
from ..jobs.registry import MAX_NAME
from .members import Members
from .reconciler import Reconciler

log = logging.getLogger("switchsum.controller.service.agreements")

ELSEWHERE_S: Final = 0.2
"""A rank that waits in a collective for so long waits for others."""
MOST_MODEL: Final = 200
"""Longest description of a model that is kept, in characters."""
RETRY_S: Final = 0.2
"""Pause before a decision that could not be written is tried again."""


class Agreements:
    """Serves the method Agree."""

    def __init__(self, reconciler: Reconciler, members: Members) -> None:
        self._reconciler = reconciler
        self._members = members

    def agree(self, request: AgreeRequest) -> AgreeReply:
        """Wait until it is decided who takes part in a member's next operation, at most as long as the request says.

        Raises UsageError, OperationMismatch or NotAdmitted.
        """
        terms = Terms(
            quorum=request.quorum,
            patience_s=request.patience_s,
            keep=request.keep,
            gives_model=request.gives_model,
            model=reports.printable(request.model, MOST_MODEL),
        )
        terms.check()
        with self._reconciler.changed:
            try:
                return self._await_decision(request, terms)
            except WorkerLost as error:
                return AgreeReply(lost=error.rank, why=str(error))

    def _await_decision(self, request: AgreeRequest, terms: Terms) -> AgreeReply:
        """Do so; raises also WorkerLost."""
        reconciler = self._reconciler
        job, live, member = self._members.membership(request.job, request.nonce)
        if live is not job.live or member.state is not MemberState.ADMITTED:
            raise NotAdmitted(f"rank {member.rank} of job {job.name!r} is {member.state}: connect again")
        _check_allowed(job, live.agreement, member.rank, terms)
        if live.agreement.terms is None:
            reconciler.changed.notify_all()  # heartbeats come closer together from now on
        try:
            live.agreement.ask(
                member.rank,
                request.after,
                terms,
                is_whole=request.is_whole,
                now=reconciler.clock(),
                begun=request.begun,
            )
        except OperationMismatch:
            reconciler.changed.notify_all()  # all members hear of it
            raise
        due_s = lambda: live.agreement.due_s()  # noqa: E731, PLW0108 - of what is the agreement then
        for last in self._members.patience(request.wait_s, due_s):
            self._members.membership(request.job, request.nonce)
            if not reconciler.fleet.is_settled:
                reconciler.do_without_unused()
            if live.agreement.answer(member.rank, request.after) is None:
                _check_not_formed_anew(job, live)
                self._check_alike(job, live)
                self._decide(job, live)
            decision = live.agreement.answer(member.rank, request.after) if reconciler.fleet.is_settled else None
            if last or decision is not None:
                break
        return _reply(job, live.agreement, decision)

    def _check_alike(self, job: Job, live: Incarnation) -> None:
        """Raise OperationMismatch if all are there, and some wait in another collective than this one."""
        if not live.agreement.mismatch:
            inside = {
                member.rank: (report.begun, report.operation)
                for member in live.members
                if member.state is MemberState.ADMITTED
                and (report := member.reported.latest) is not None
                and report.is_inside
                and report.waiting_s >= ELSEWHERE_S
            }
            if text := live.agreement.note_elsewhere(inside, job.workers, live.gone()):
                log.warning("job %s: %s", job.name, text)
                self._reconciler.changed.notify_all()
        live.agreement.check_alike()

    def _decide(self, job: Job, live: Incarnation) -> None:
        """Decide, if that can be done now, and have it on the switches; raises WorkerLost."""
        reconciler, agreement = self._reconciler, live.agreement
        gone = live.gone()
        decision = agreement.outcome(job.workers, gone, reconciler.clock())
        if decision is None or live is not job.live:
            return
        try:
            if decision.absent:
                decision = replace(decision, group=self._group(job, agreement, gone))
            live.agreement = agreement.taken(decision, gone)
            reconciler.synchronise(for_running=True)
        except RemoteError as error:
            live.agreement = agreement
            agreement.held_up, agreement.retry_s = str(error), reconciler.clock() + RETRY_S
            log.warning("job %s: an operation cannot begin yet: %s", job.name, error)
            return
        if decision.absent:
            log.debug("job %s: operation %d goes on without %s", job.name, decision.number, decision.absent)
        reconciler.changed.notify_all()

    def _group(self, job: Job, agreement: Agreement, gone: list[int]) -> str:
        """Return the job of those who ask; raises RemoteError.

        It is on all switches before a decision names it, for the controller may be killed between any two writes.
        """
        name = agreement.group_of(frozenset(agreement.asking))
        if name and self._exists(name):
            return name
        name = self._make_group(job, agreement, gone)
        try:
            self._reconciler.synchronise(for_running=True)
        except RemoteError:
            self._reconciler.jobs.remove(name)
            del agreement.groups[name]
            raise
        return name

    def _exists(self, name: str) -> bool:
        return any(job.name == name for job in self._reconciler.jobs)

    def _make_group(self, job: Job, agreement: Agreement, gone: list[int]) -> str:
        """Reserve slots for those who ask; raises NoCapacity."""
        jobs, ranks = self._reconciler.jobs, frozenset(agreement.asking)
        for name in [name for name in agreement.groups if not self._exists(name)]:
            del agreement.groups[name]
        if len(agreement.groups) >= MOST_GROUPS and not self._drop_unused(agreement, gone):
            raise NoCapacity(f"{MOST_GROUPS} sets of ranks are in the midst of operations without the others")
        name = ""
        while not name or self._exists(name):
            agreement.made += 1
            end = f"/quorum-{agreement.made}"
            name = job.name[: MAX_NAME - len(end)] + end
        while True:
            try:
                jobs.create(
                    name,
                    workers=len(ranks),
                    slots=job.slots.count if job.shares_slots else None,
                    timeout_s=job.timeout_s,
                    ephemeral=True,
                    shares_slots=job.shares_slots,
                )
                break
            except NoCapacity:
                if not self._drop_unused(agreement, gone):
                    raise
        agreement.groups[name] = Subset(ranks=ranks, latest=agreement.latest.number)
        return name

    def _drop_unused(self, agreement: Agreement, gone: list[int]) -> bool:
        """Remove the set's job that was used longest ago and is used no more; return whether there was one."""
        unused = agreement.unused(gone)
        if unused is not None:
            self._reconciler.jobs.remove(unused)
            del agreement.groups[unused]
        return unused is not None


def _check_not_formed_anew(job: Job, live: Incarnation) -> None:
    """Raise WorkerLost if a rank is gone and others form the job anew: they wait for those who ask here."""
    forming = [member.rank for member in live.members if member.nonce in job.reforming]
    if forming and (gone := live.gone()):
        names = ", ".join(map(str, forming))
        others = f"rank {names} forms" if len(forming) == 1 else f"ranks {names} form"
        raise WorkerLost(f"rank {gone[0]} of job {job.name!r} is gone, and {others} the job anew", gone[0], GO_ON)


def _check_allowed(job: Job, agreement: Agreement, rank: int, terms: Terms) -> None:
    """Refuse a quorum that is smaller than the job's setting; raises UsageError."""
    if terms.quorum < job.least_quorum:
        agreement.refused[rank] = agreement.refused.get(rank, 0) + 1
        raise UsageError(
            f"job {job.name!r} allows quorums from {job.least_quorum:g} on, not {terms.quorum:g} "
            "(switchsum job create --least-quorum)"
        )


def _reply(job: Job, agreement: Agreement, decision: Decision | None) -> AgreeReply:
    if decision is None:
        missing = sorted(set(range(job.workers)) - agreement.asking.keys())
        return AgreeReply(missing=missing, held_up=agreement.held_up)
    return AgreeReply(
        number=decision.number,
        absent=list(decision.absent),
        behind=[list(one) for one in decision.behind],
        group=decision.group,
        groups=list(agreement.groups),
        is_whole=decision.is_whole,
    )
