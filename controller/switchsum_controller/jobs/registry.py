"""Jobs and their members: the registry that drives the state machines of `machines`.

Nothing here knows a switch or a clock: callers pass the time.  A job outlives its incarnations.  At most one
incarnation is *live*: its entries are on the switch, under an epoch of its own.  Meanwhile members join the next one,
which *gathers*.  The entries of a live incarnation stay until each rank has left or is lost; only then is the next one
admitted.

A member calls the controller with its nonce.  When its membership ends, the nonce and the reason are kept for a while
(`Former`), so that a late call gets the reason and not "unknown".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from switchsum_protocol.errors import (
    NoCapacity,
    NotAdmitted,
    RankTaken,
    SwitchLost,
    SwitchsumError,
    UnknownJob,
    UnknownMembership,
    UsageError,
    WorldSizeMismatch,
)
from switchsum_protocol.frame import MAX_WORKERS
from switchsum_protocol.member_rpc import MOST_IN_FLIGHT
from switchsum_protocol.rpc import LEAST_QUORUM, check_least_quorum, check_slots, check_timeout
from switchsum_protocol.states import MemberState
from switchsum_switch.wires.headers import Address

from .job import MAX_NUMBER, Job, new_incarnation
from .machines import Attachment, Fault, FaultKind, Incarnation, IncarnationEvent, JobMember, MemberEvent
from .reported import Reported
from .several_links import check_rates
from .slots import SlotRange, first_fit, longest_free

MAX_NAME = 64
FIRST_GROUP: Final = 2
LAST_GROUP: Final = 0x7FFF
"""Multicast groups of jobs; 1 floods, and BMv2 keeps those from 0x8000 on for clone sessions."""
MAX_FORMER: Final = 4096
Former = dict[int, tuple[type[SwitchsumError], str]]
"""Errors with which memberships have ended, by nonce."""
RETURN_S: Final = 2.0
"""A member whose connection has ended, and that has not connected again within this time, is lost."""
UNHEARD_S: Final = 60.0
"""Seconds that a member may be silent before it has attended to this controller: its Python may be busy."""
SILENCE_SHARE: Final = 5 / 8
"""Largest share of the job's time-out that a member may be silent; in the rest the other members hear of its loss."""
VACANT_S: Final = 10.0
"""An ephemeral job ends after this time, or after its time-out, without members."""
UNVISITED_S: Final = 60.0
"""The same for a job that has never had a member: on a busy machine the first one may be late."""
MAX_TICK_S: Final = 2.0
"""Longest pause between two ticks, without the time that the controller waited for switches. After a longer one the
controller itself was stopped, and no member counts as silent.
"""


class Jobs:
    """All jobs and their members.

    Times are the controller's monotonic seconds.  Methods that serve a call of a host or a user raise the error that
    the caller gets.
    """

    def __init__(
        self,
        total_slots: int,
        draw_nonce: Callable[[], int],
        draw_cookie: Callable[[], int],
        draw_epoch: Callable[[], int] = lambda: 1,
        most_workers: int = MAX_WORKERS,
        shared_slots: int = 0,
    ) -> None:
        self.total_slots = total_slots
        self.shared_slots = shared_slots
        """The first so many slots are shared; 0: no job can share any."""
        self._most_workers = most_workers
        self.last_number = 0
        """Number of the newest job; numbers of removed jobs are not used again soon."""
        self._draw_nonce = draw_nonce
        self._draw_cookie = draw_cookie
        self._draw_epoch = draw_epoch
        """Draws the epoch of a job's first incarnation.  It is random, so that late frames of a job that had the same
        number, and that this controller does not know of, are not admitted."""
        self._jobs: dict[str, Job] = {}
        self._members: dict[int, tuple[Job, Incarnation, JobMember]] = {}
        self._former: Former = {}
        self._ticked_s: float | None = None

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def has(self, name: str) -> bool:
        """Return whether there is a job of that name."""
        return name in self._jobs

    def find(self, name: str) -> Job:
        """Return a job; raises UnknownJob."""
        if name not in self._jobs:
            raise UnknownJob(f"there is no job {name!r} (switchsum job list)")
        return self._jobs[name]

    @property
    def free_slots(self) -> int:
        """Number of slots that no job has reserved."""
        reserved = sum(job.reserved.count for job in self if job.reserved is not None)
        return self.total_slots - self.shared_slots - reserved

    def create(
        self,
        name: str,
        *,
        workers: int,
        slots: int | None,
        timeout_s: float,
        ephemeral: bool = False,
        least_quorum: float = LEAST_QUORUM,
        shares_slots: bool = False,
        own_slots: int = 0,
        part_of_free: float = 1.0,
    ) -> Job:
        """Reserve slots for a new job; raises UsageError or NoCapacity.

        None: as many as members may want, as far as so many are free; `fit` gives back what they do not.  One that
        `shares_slots` reserves its slots at the fallback: as many as are shared, or fewer.  Beside them it may have
        `own_slots`.  A `part_of_free` below 1 leaves others slots: the job has fewer then than it asks for.
        """
        if not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise UsageError(f"a job's name has 1 to {MAX_NAME} printable characters, unlike {name!r}")
        if name in self._jobs:
            raise UsageError(f"there is a job {name!r} already (switchsum job list)")
        if shares_slots and not self.shared_slots:
            raise UsageError(
                "no slots are shared here: the controller's --fleet file needs a switch with the role aggregator"
            )
        most = self.shared_slots if shares_slots else self._longest_free()
        count = max(1, min(MOST_IN_FLIGHT - own_slots, most)) if slots is None else slots
        if not 0 < part_of_free <= 1:
            raise UsageError(f"a part of the free slots is above 0 and at most 1, not {part_of_free!r}")
        if part_of_free < 1:
            count = max(1, min(count, int(self.free_slots * part_of_free), most))
        self._check_size(workers, count, shares_slots=shares_slots)
        if own_slots:
            self._check_own_part(own_slots, count, shares_slots=shares_slots)
        check_timeout(timeout_s)
        check_least_quorum(least_quorum)
        number, group = self.take_number(), self._free_group()
        job = Job(
            name=name,
            number=number,
            workers=workers,
            slots=self._fit(count, shares_slots=shares_slots),
            fits_slots=slots is None and not shares_slots,
            shares_slots=shares_slots,
            own_part=self._fit(own_slots) if own_slots else None,
            group=group,
            timeout_s=timeout_s,
            ephemeral=ephemeral,
            least_quorum=least_quorum,
            gathering=new_incarnation(self._draw_epoch(), workers),
        )
        self._jobs[name] = job
        return job

    def adopt(self, job: Job) -> None:
        """Take over a job that is on the switch; raises UsageError if it clashes with another job."""
        self._check_size(job.workers, job.slots.count, shares_slots=job.shares_slots)
        if job.own_part is not None:
            self._check_own_part(job.own_part.count, job.slots.count, shares_slots=job.shares_slots)
        check_timeout(job.timeout_s)
        check_least_quorum(job.least_quorum)
        if not FIRST_GROUP <= job.group <= LAST_GROUP:
            raise UsageError(
                f"job {job.name!r} on the switch has multicast group {job.group}, which the controller does not use"
            )
        clash = [
            other.name
            for other in self
            if other.name == job.name
            or other.number == job.number
            or other.group == job.group
            or (job.shares_slots and other.shares_slots and _meet(job.slots, other.slots))
            or _meet(job.reserved, other.reserved)
        ]
        reserved = job.reserved
        if (
            clash
            or job.slots.end > self.total_slots
            or (reserved is not None and not self.shared_slots <= reserved.first < reserved.end <= self.total_slots)
        ):
            raise UsageError(f"job {job.name!r} on the switch overlaps with {clash or 'the end of the slots'}")
        self._jobs[job.name] = job
        if job.live is not None:
            # A lost member keeps its membership: if it calls, it gets the reason.
            for member in job.live.members:
                if member.state is not MemberState.LEFT:
                    self._members[member.nonce] = job, job.live, member

    def remove(self, name: str) -> None:
        """Remove a job, and end its memberships."""
        job = self.find(name)
        self._abandon_all(job, NotAdmitted(f"job {name!r} was removed"))
        del self._jobs[name]

    def resize(self, name: str, *, workers: int | None, slots: int | None) -> Job:
        """Give a job another size; its memberships end, and the members join again under a new epoch.

        Raises UsageError or NoCapacity, and then nothing has changed.
        """
        job = self.find(name)
        workers = job.workers if workers is None else workers
        count = job.slots.count if slots is None else slots
        self._check_size(workers, count, shares_slots=job.shares_slots)
        if job.own_part is not None:
            self._check_own_part(job.own_part.count, count, shares_slots=True)
        # The job's own slots count as free.  Nothing has changed yet if this raises.
        job.slots = self._fit(count, but=job, shares_slots=job.shares_slots)
        job.fits_slots &= slots is None
        epoch = job.gathering.epoch + 1
        self._abandon_all(job, NotAdmitted(f"job {name!r} was resized: join again under epoch {epoch & MAX_NUMBER}"))
        job.workers = workers
        job.gathering = new_incarnation(epoch, workers)
        return job

    def fit(self, job: Job, window_slots: int) -> None:
        """Give a job that has no live incarnation as many slots as its members want, or as many as there are."""
        job.slots = self._fit(max(1, min(window_slots, self._longest_free(but=job))), but=job)

    def reform(self, nonce: int, now: float) -> tuple[Job, int | None, list[int]]:
        """Note that a member wants its job to continue without the members that are lost.

        When all remaining members have said so, the job shrinks to them.  Returns the job, the member's new rank or
        None, and the ranks that have not said so yet.  Raises the error with which the membership ended.
        """
        for job in self:
            if nonce in job.reformed:
                return job, job.reformed[nonce], []
        job, incarnation, member = self.heartbeat(nonce, now)
        if incarnation is not job.live or member.state is not MemberState.ADMITTED:
            raise NotAdmitted(f"rank {member.rank} of job {job.name!r} is {member.state}: connect again")
        job.reforming.add(nonce)
        staying = [other for other in incarnation.members if other.state is MemberState.ADMITTED]
        waited_for = [other.rank for other in staying if other.nonce not in job.reforming]
        if waited_for:
            return job, None, waited_for
        job = self.resize(job.name, workers=len(staying), slots=None)
        job.reformed = {other.nonce: rank for rank, other in enumerate(staying)}
        return job, job.reformed[nonce], []

    def holder(self, name: str, rank: int) -> JobMember | None:
        """Return who has a rank, in the live incarnation or, though that has not ended, in the next one."""
        job = self.find(name)
        members = [*(job.live.members if job.live else ()), *job.gathering.members]
        return next((one for one in members if one.rank == rank and one.holds_rank), None)

    def join(
        self,
        name: str,
        *,
        rank: int,
        world_size: int,
        now: float,
        receive_bytes: int = 0,
        window_bytes: int = 0,
        rates: Sequence[float] = (),
    ) -> tuple[Job, JobMember]:
        """Add a member to the next incarnation of a job; raises JoinRefused."""
        job = self.find(name)
        if world_size != job.workers:
            raise WorldSizeMismatch(
                f"job {name!r} has {job.workers} workers, not {world_size}: change it with `switchsum job resize`",
                world_size,
            )
        if not 0 <= rank < job.workers:
            raise RankTaken(f"job {name!r} has ranks 0 to {job.workers - 1}, not {rank}")
        if (holder := self.holder(name, rank)) is not None:
            place = f" at {holder.address}" if holder.address else ""
            raise RankTaken(
                f"rank {rank} of job {name!r} is held by another process{place}: end that process, or use another rank"
            )
        check_rates(job, rank, rates)
        member = job.gathering.members[rank]
        member.step(MemberEvent.JOIN)
        job.gathering.gave_up.discard(rank)
        member.heard_s = member.joined_s = now
        job.vacant_s, job.visited = 0.0, True
        # 0 stands for "none", and a nonce of the past would give the new member the error of an old one.
        while (nonce := self._draw_nonce()) == 0 or nonce in self._members or nonce in self._former:
            pass
        member.nonce = nonce
        while (cookie := self._draw_cookie()) == 0:
            pass
        member.cookie = cookie
        member.receive_bytes, member.window_bytes, member.rates = receive_bytes, window_bytes, list(rates)
        self._members[nonce] = job, job.gathering, member
        return job, member

    def member(self, nonce: int) -> tuple[Job, Incarnation, JobMember]:
        """Return a membership; raises the error with which it ended, or NotAdmitted."""
        if nonce in self._members:
            return self._members[nonce]
        unknown = UnknownMembership, "the controller knows no such membership: join again"
        kind, text = self._former.get(nonce, unknown)
        raise kind(text)

    def hello(
        self,
        nonce: int,
        rank: int,
        address: Address,
        ingress_port: int,
        now: float,
        *,
        whole: bool = True,
        switch: str = "",
        link: int = 0,
    ) -> bool:
        """Note a member's address as the switch saw it; return whether the hello belongs to a member.

        A hello that is not `whole` is shorter than contributions with lanes.  It only shows that short frames arrive.
        """
        member = self._members[nonce][2] if nonce in self._members else None
        if member is None or member.rank != rank or not 0 <= link < member.link_count:
            return False
        if not whole:
            member.short.add(link)
            return True
        # After admission the address is fixed: a late copy of a hello changes nothing.
        member.heard_s = now
        if member.state in (MemberState.JOINED, MemberState.SEEN):
            member.attachments[link] = Attachment(address=address, ingress_port=ingress_port, switch=switch)
        if not member.unseen:
            member.step(MemberEvent.HELLO)
        return True

    def heartbeat(self, nonce: int, now: float) -> tuple[Job, Incarnation, JobMember]:
        """Note that a member is alive, and return it; raises the error with which its membership ended."""
        job, incarnation, member = self.member(nonce)
        member.step(MemberEvent.HEARTBEAT)
        member.heard_s = now
        return job, incarnation, member

    def attend(self, nonce: int, now: float) -> None:
        """Note that a member has opened a connection; it lives as long as it has one.

        Raises the error with which its membership ended.
        """
        member = self.heartbeat(nonce, now)[2]
        member.connections += 1
        member.has_attended = True

    def depart(self, nonce: int, now: float) -> None:
        """Note that a member's connection has ended."""
        if nonce in self._members:
            member = self._members[nonce][2]
            member.connections -= 1
            member.heard_s = now

    def forget_attachments(self, switch: str) -> None:
        """Have members that are not admitted show themselves again to a switch that was started anew."""
        for job in self:
            for member in job.gathering.members:
                lost = [link for link, attachment in member.attachments.items() if attachment.switch == switch]
                for link in lost:
                    del member.attachments[link]
                if lost and member.state is MemberState.SEEN:
                    member.step(MemberEvent.RESTART)

    def leave(self, nonce: int, why: SwitchsumError | None = None) -> tuple[Job, JobMember] | None:
        """End a membership, and return its job and member; None if it has ended already.

        `why`: it gives up a job that is not complete.  If that is for a switch, the others give up with it.
        """
        if nonce not in self._members:
            return None
        job, incarnation, member = self._members[nonce]
        gives_up = why is not None and member.state in (MemberState.JOINED, MemberState.SEEN)
        member.step(MemberEvent.LEAVE)
        if gives_up:
            incarnation.gave_up.add(member.rank)
        if gives_up and isinstance(why, SwitchLost):
            self._abandon(incarnation, why)
            job.gathering = new_incarnation(incarnation.epoch + 1, job.workers)
            return job, member
        if member.state is not MemberState.LOST:
            self._end(member, NotAdmitted("this member has left"))
            self._after_departure(job, incarnation)
        return job, member

    def tick(self, now: float, waited_s: float = 0.0) -> list[tuple[Job, JobMember]]:
        """Declare members lost that have been silent for too long, and return them; `waited_s` was for switches."""
        # Silence is measured in the time that this controller was awake: after a long pause nobody could be heard.
        pause_s = now - (now if self._ticked_s is None else self._ticked_s)
        self._ticked_s = now
        silent = []
        for job, incarnation, member in self._members.values():
            if pause_s - waited_s > MAX_TICK_S:
                member.heard_s += pause_s - waited_s
            if member.connections:
                member.heard_s = now
            limit_s = min(RETURN_S if member.has_attended else UNHEARD_S, job.timeout_s * SILENCE_SHARE)
            if member.state is not MemberState.LOST and now - member.heard_s > limit_s:
                silent.append((job, incarnation, member))
        for job, incarnation, member in silent:
            member.step(MemberEvent.SILENCE)
            if member.state is not MemberState.LOST:
                self._end(member, NotAdmitted("the controller heard nothing from this rank in time: connect again"))
            elif incarnation.fault is None:
                together = [one.rank for _, other, one in silent if other is incarnation]
                incarnation.fault = Fault(kind=FaultKind.LOST, ranks=together)
            self._after_departure(job, incarnation)
        for job in self:
            if job.is_vacant:
                job.vacant_s += min(pause_s, MAX_TICK_S)
        return [(job, member) for job, _, member in silent]

    def end_ephemeral(self) -> list[Job]:
        """Remove ephemeral jobs that have had no members for a while, and return them."""
        ended = [
            job
            for job in self
            if job.ephemeral and job.vacant_s > min(job.timeout_s, VACANT_S if job.visited else UNVISITED_S)
        ]
        for job in ended:
            self.remove(job.name)
        return ended

    def make_live(self, job: Job, first_number: int) -> None:
        """Make the next incarnation, which is complete, the live one; `first_number` is that of its slots."""
        incarnation = job.gathering
        for member in incarnation.members:
            member.step(MemberEvent.ADMIT)
        incarnation.step(IncarnationEvent.ADMIT)
        incarnation.first_number = first_number
        job.has_ended, job.fault = False, None
        job.live, job.gathering = incarnation, new_incarnation(incarnation.epoch + 1, job.workers)
        job.reforming.clear()

    def end_all(self, error: SwitchsumError) -> Former:
        """End all memberships before the jobs are forgotten; return the errors of all memberships that have ended."""
        for job in self:
            self._abandon_all(job, error)
        return self._former

    def keep_former(self, former: Former) -> None:
        """Keep the errors of earlier memberships, and end those of them that were found on the switch again."""
        self._former = former
        for job in self:
            ends = [former[member.nonce] for member in (job.live.members if job.live else ()) if member.nonce in former]
            if ends:
                kind, text = ends[0]
                self.refuse(job, kind(text))

    def refuse(self, job: Job, error: SwitchsumError) -> None:
        """End all memberships of a job, of the live incarnation and of the next one."""
        epoch = job.gathering.epoch + 1
        self._abandon_all(job, error)
        job.gathering = new_incarnation(epoch, job.workers)

    def _after_departure(self, job: Job, incarnation: Incarnation) -> None:
        """Step the live incarnation after one of its members has gone."""
        if incarnation is not job.live:
            return
        if incarnation.ranks(MemberState.ADMITTED):
            incarnation.step(IncarnationEvent.GONE)
            return
        incarnation.step(IncarnationEvent.LAST_GONE)
        job.live, job.has_ended, job.fault = None, True, incarnation.broken_by
        if not incarnation.ranks(MemberState.LOST):
            job.vacant_s = math.inf  # all have left in order: an ephemeral job ends, and its slots are free
        for rank in incarnation.ranks(MemberState.LOST):
            self._end(
                incarnation.members[rank],
                NotAdmitted(
                    f"the controller declared rank {rank} lost, because it heard nothing from it: connect again"
                ),
            )

    def _abandon_all(self, job: Job, error: SwitchsumError) -> None:
        for incarnation in (job.live, job.gathering):
            if incarnation is not None:
                self._abandon(incarnation, error)
        job.live = None

    def _abandon(self, incarnation: Incarnation, error: SwitchsumError) -> None:
        incarnation.step(IncarnationEvent.ABANDON)
        for member in incarnation.members:
            self._end(member, error)

    def _end(self, member: JobMember, error: SwitchsumError) -> None:
        """End a membership; late calls get `error`.  A rank that is expected again is reset."""
        if self._members.pop(member.nonce, None) is not None:
            self._former[member.nonce] = type(error), str(error)
        if len(self._former) > MAX_FORMER:
            del self._former[next(iter(self._former))]
        if member.state is MemberState.EXPECTED:
            member.nonce, member.cookie, member.rates, member.attachments = 0, 0, [], {}
            member.connections, member.has_attended = 0, False
            member.short, member.issued, member.reported = set(), "", Reported()

    def _check_size(self, workers: int, slots: int, *, shares_slots: bool = False) -> None:
        if not 1 <= workers <= self._most_workers:
            raise UsageError(
                f"a job over this controller's switches has 1 to {self._most_workers} workers, not {workers}"
            )
        check_slots(slots, self.shared_slots if shares_slots else self.total_slots - self.shared_slots)

    def _check_own_part(self, own: int, shared: int, *, shares_slots: bool) -> None:
        """Check the reserved part of a job that shares slots; raises UsageError."""
        if not shares_slots:
            raise UsageError("only a job that shares slots has a part of its own beside them")
        if own < 1 or own + shared > MOST_IN_FLIGHT:
            raise UsageError(f"a job uses {MOST_IN_FLIGHT} slots at most, not {own} of its own and {shared} shared")

    def _fit(self, count: int, but: Job | None = None, *, shares_slots: bool = False) -> SlotRange:
        slots = first_fit(self._taken(but, shares_slots=shares_slots), count, self.total_slots)
        if slots is None and shares_slots:
            raise NoCapacity(
                f"no {count} slots in a row are free at the aggregator, where each job that shares slots has some for "
                "itself: ask for fewer (--slots shared:N), or end a job (switchsum job list)"
            )
        if slots is None:
            raise NoCapacity(
                f"no {count} slots in a row are free ({self.free_slots} are free in all): ask for fewer (--slots), "
                "or end a job (switchsum job list)"
            )
        return slots

    def _longest_free(self, but: Job | None = None) -> int:
        return longest_free(self._taken(but, shares_slots=False), self.total_slots)

    def _taken(self, but: Job | None, *, shares_slots: bool) -> list[SlotRange]:
        """Return what is not free: at fallbacks the slots of jobs that share others, else those of all other jobs."""
        if shares_slots:
            return [job.slots for job in self if job is not but and job.shares_slots]
        shared = [SlotRange(first=0, count=self.shared_slots)] if self.shared_slots else []
        return shared + [job.reserved for job in self if job is not but and job.reserved is not None]

    def take_number(self) -> int:
        """Return a number that no job has; raises NoCapacity."""
        used = {number for job in self for number in (job.number, *job.link_numbers)}
        # Round and round, so that a number is used again as late as possible.
        for step in range(MAX_NUMBER):
            number = (self.last_number + step) % MAX_NUMBER + 1
            if number not in used:
                self.last_number = number
                return number
        raise NoCapacity(f"all {len(used)} job numbers are in use: end a job (switchsum job list)")

    def _free_group(self) -> int:
        used = {job.group for job in self}
        group = next((group for group in range(FIRST_GROUP, LAST_GROUP + 1) if group not in used), None)
        if group is None:
            raise NoCapacity(f"all {len(used)} multicast groups are in use: end a job (switchsum job list)")
        return group


def _meet(one: SlotRange | None, other: SlotRange | None) -> bool:
    """Tell whether two ranges have a slot in common."""
    return one is not None and other is not None and one.first < other.end and other.first < one.end
