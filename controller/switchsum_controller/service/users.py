"""The calls of users, as the controller answers them: command line, launcher and page ask about jobs and switches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from switchsum_protocol import member_rpc, rpc
from switchsum_protocol.errors import RemoteError, SwitchsumError, UsageError
from switchsum_protocol.frame import WIRE_VERSION
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError
from switchsum_switch.messages.samples import SampledFrame

from ..jobs.job import Job
from ..jobs.slots import Cell, SlotRange
from ..plan.plan import Loss, live_members
from ..plan.windows import window_slots
from ..switches.connection import both_versions
from ..switches.switch_session import Session
from ..tables.names import CPU_PORT
from ..trees import rails
from . import views
from .reconciler import Reconciler

LAST_PORT: Final = 510


class Users:
    """Serves the calls of users; each method but two serves one of the protocol's (`methods` in server.py)."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler

    def create_job(self, request: rpc.CreateJobRequest) -> rpc.JobInfo:
        """Reserve slots; raises UsageError or NoCapacity."""
        reconciler = self._reconciler
        with reconciler.changed:
            reconciler.need_switch()
            if request.replaces and reconciler.jobs.has(request.job):
                reconciler.jobs.remove(request.job)
                reconciler.bring_up_to_date()
            job = reconciler.jobs.create(
                request.job,
                workers=request.workers,
                slots=request.slots,
                timeout_s=request.timeout_s,
                ephemeral=request.ephemeral,
                least_quorum=request.least_quorum,
                shares_slots=request.shares_slots,
                own_slots=request.own_slots,
                part_of_free=request.part_of_free,
            )
            try:
                reconciler.synchronise()
            except RemoteError:  # the switch is full: the job must not exist if its creator is told that it does not
                reconciler.jobs.remove(job.name)
                reconciler.bring_up_to_date()
                raise
            reconciler.refusals.forget(job.name, -1)
            return self._describe(job)

    def resize_job(self, request: rpc.ResizeJobRequest) -> rpc.JobInfo:
        """Change the size of a job; its members have to join again.  Raises UsageError if `force` is needed."""
        reconciler = self._reconciler
        if request.workers is None and request.slots is None:
            raise UsageError("a resize needs a new size: give --workers or --slots")
        with reconciler.changed:
            reconciler.need_switch()
            job = reconciler.jobs.find(request.job)
            if request.workers in (None, job.workers) and request.slots in (None, job.slots.count):
                return self._describe(job)
            _refuse_to_end(job, force=request.force)
            job = reconciler.jobs.resize(request.job, workers=request.workers, slots=request.slots)
            reconciler.bring_up_to_date()
            return self._describe(job)

    def remove_job(self, request: rpc.RemoveJobRequest) -> member_rpc.Empty:
        """Remove a job, and end its memberships.  Raises UsageError if `force` is needed."""
        reconciler = self._reconciler
        with reconciler.changed:
            reconciler.need_jobs()
            _refuse_to_end(reconciler.jobs.find(request.job), force=request.force)
            reconciler.jobs.remove(request.job)
            reconciler.bring_up_to_date()
        return member_rpc.Empty()

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Describe a job."""
        reconciler = self._reconciler
        with reconciler.changed:
            reconciler.need_jobs()
            return self._describe(reconciler.jobs.find(request.job))

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        """Tell what each member of a job last said of itself."""
        reconciler = self._reconciler
        with reconciler.changed:
            reconciler.need_jobs()
            return views.worker_list(reconciler.jobs.find(request.job), reconciler.clock())

    def list_jobs(self, _: member_rpc.Empty) -> rpc.JobList:
        """Describe all jobs."""
        reconciler = self._reconciler
        with reconciler.changed:
            reconciler.need_jobs()
            return rpc.JobList(jobs=[self._describe(job) for job in reconciler.jobs])

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        """Read the cells of slots from the switches that are there; raises SwitchLost if none is."""
        reconciler = self._reconciler
        with reconciler.changed:
            reconciler.need_some_switch()
            jobs = list(reconciler.jobs) if request.job is None else [reconciler.jobs.find(request.job)]
            most = max(0, request.limit)

            def cells_at(name: str, session: Session) -> list[Cell]:
                slots = sorted({slot for job in jobs for slot in self._slots_at(job, name)})
                return session.query(both_versions(slots[:most]))

            cells = reconciler.fleet.ask(cells_at, reconciler.changed)
            return views.slot_list(cells, reconciler.jobs, reconciler.fabric.fallback, reconciler.fleet.connections)

    def sample(self, job: str, slot: int, seconds: float) -> list[tuple[str, SampledFrame]]:
        """Return frames of a slot that pass some switch within so many seconds, in order, with the switch's name.

        Switches that are away are left out, and an aggregator has the slot under another number.  Raises UsageError for
        a switch that cannot be asked: BMv2 has no such method.
        """
        reconciler = self._reconciler
        with reconciler.changed:
            reconciler.need_some_switch()
            known = reconciler.jobs.find(job)
            parts = [part for part in (self._slots_of(known), known.own_part) if part is not None]
            here = [number for part in parts for number in part.indices()]
            if slot not in here:
                having = " and ".join(f"{part.first} to {part.end - 1}" for part in parts)
                raise UsageError(f"job {job!r} has slots {having}, not slot {slot}")
            place = here.index(slot)
            asked = [
                (name, session, there[place])
                for name, session in reconciler.fleet.ask(lambda _, session: session, reconciler.changed).items()
                if place < len(there := self._slots_at(known, name))
            ]
        try:
            with ThreadPoolExecutor(max(1, len(asked))) as pool:
                found = pool.map(lambda one: one[1].sample(one[2], seconds), asked)
                frames = [(name, one) for (name, *_), of_switch in zip(asked, found, strict=True) for one in of_switch]
        except P4RuntimeError as error:
            if error.code is not Code.UNIMPLEMENTED:
                raise
            text = "this switch shows no packets, as the embedded one does: switchsum capture at its interfaces does"
            raise UsageError(text) from error
        return sorted(frames, key=lambda frame: frame[1].at_s)

    def statistics(self, _: member_rpc.Empty, *, waits: bool = True) -> rpc.Statistics:
        """Read the counters of the switches that are there; raises SwitchLost if none is.

        If all are away, it `waits` a short while for them.
        """
        reconciler = self._reconciler
        with reconciler.changed:
            reconciler.need_some_switch(waits=waits)
            live = [job for job in reconciler.jobs if job.live is not None]
            homes = {(job.group, member.rank): member.switch for job, member in live_members(reconciler.jobs)}
            groups = {job.group: job.workers for job in live}
            return views.statistics(reconciler.fleet.count(groups, homes, reconciler.changed), live)

    def ports(self, _: member_rpc.Empty) -> rpc.PortList:
        """Describe all ports of which something is known."""
        reconciler = self._reconciler
        with reconciler.changed:
            reconciler.need_jobs()
            return views.port_list(reconciler.jobs, reconciler.settings)

    def links(self, _: member_rpc.Empty) -> rpc.LinkList:
        """Describe the links between switches: those that are found now, else those of the fleet's file."""
        reconciler = self._reconciler
        with reconciler.changed:
            return views.link_list(reconciler.fabric, reconciler.jobs, reconciler.neighbours.look(reconciler.clock()))

    def switches(self, _: member_rpc.Empty) -> rpc.SwitchList:
        """Describe the switches, also those that are away."""
        reconciler = self._reconciler
        with reconciler.changed:
            return views.switch_list(reconciler.fleet.connections)

    def set_loss(self, request: rpc.LossRequest) -> rpc.PortList:
        """Set the drop simulator at one port, or at all."""
        reconciler = self._reconciler
        for probability in (request.ingress, request.egress):
            if not 0 <= probability <= 1:
                raise UsageError(f"a probability is between 0 and 1, not {probability}")
        if request.port is not None and (request.port == CPU_PORT or not 0 <= request.port <= LAST_PORT):
            raise UsageError(f"a host's port is 0 to {LAST_PORT}, except {CPU_PORT}, not {request.port}")
        if request.port is not None and reconciler.fabric.parents:
            raise UsageError(
                "--port names no single switch here, because several have that port: leave --port out to set all ports"
            )
        loss = Loss(ingress=request.ingress, egress=request.egress)
        with reconciler.changed:
            reconciler.need_switch()
            before = reconciler.settings.loss, dict(reconciler.settings.port_loss)
            if request.port is None:
                reconciler.settings.loss = loss
                reconciler.settings.port_loss.clear()
            else:
                reconciler.settings.port_loss[request.port] = loss
            try:
                reconciler.synchronise()
            except RemoteError:  # nobody must meet a loss of which its user is told that it was not set
                reconciler.settings.loss, reconciler.settings.port_loss = before
                reconciler.bring_up_to_date()
                raise
            return views.port_list(reconciler.jobs, reconciler.settings)

    def _slots_of(self, job: Job) -> SlotRange:
        """Return the slots that a job's workers use; if it shares some, these alone."""
        return self._reconciler.fabric.slots_here(job.number, job.slots) if job.shares_slots else job.slots

    def _slots_at(self, job: Job, switch: str) -> list[int]:
        """Return the slots of a job at a switch: at an aggregator those alone that are shared elsewhere."""
        if (fallback := self._reconciler.fabric.fallback) and switch == fallback:
            return [*job.slots.indices()] if job.shares_slots else []
        return [*self._slots_of(job).indices(), *(job.own_part.indices() if job.own_part else ())]

    def _describe(self, job: Job) -> rpc.JobInfo:
        reconciler = self._reconciler
        lanes_per_frame = reconciler.config.program.lanes_per_frame
        window = 0 if job.live is None else window_slots(job, *reconciler.frame_limits)
        return views.job_info(
            job,
            reconciler.clock(),
            slots=self._slots_of(job),
            fallback=reconciler.fabric.fallback if job.shares_slots else "",
            is_up=job.live is None or not reconciler.away_of(job.live),
            lanes_per_frame=lanes_per_frame,
            window_slots=window,
            tree=[] if job.live is None else rails.pairs_of(reconciler.fabric, job, job.live),
            trees_of_link=len(reconciler.fabric.shares),
        )

    def info(self, _: member_rpc.Empty) -> rpc.ControllerInfo:
        """Describe this controller."""
        reconciler = self._reconciler
        config = reconciler.config
        with reconciler.changed:
            return rpc.ControllerInfo(
                package_version=config.package_version,
                wire_version=WIRE_VERSION,
                program_digest=config.program.digest,
                lanes_per_frame=config.program.lanes_per_frame,
                switch=config.switch_address,
                free_slots=reconciler.jobs.free_slots,
                refused=reconciler.refusals.latest(reconciler.clock()),
            )

    def note_refusal(self, request: member_rpc.JoinRequest | rpc.CreateJobRequest, error: SwitchsumError) -> None:
        """Keep why a job was not made, or a member not let in, for those who ask how things are."""
        reconciler = self._reconciler
        rank = request.rank if isinstance(request, member_rpc.JoinRequest) else -1
        reconciler.refusals.note(request.job, rank, error, reconciler.clock())


def _refuse_to_end(job: Job, *, force: bool) -> None:
    """Raise UsageError if a job has members and `force` does not say that their memberships may end."""
    if job.present and not force:
        raise UsageError(f"job {job.name!r} has {job.present} members, which would be cut off: add --force to do so")
