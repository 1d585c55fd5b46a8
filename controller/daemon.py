"""The controller's daemon: one object that keeps jobs and switch, and answers calls.

It has three layers: `upkeep` has the loop and the lock, `member_calls` answers members, and this module answers users.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from switchsum.protocol import member_rpc, rpc
from switchsum.protocol.errors import RemoteError, SwitchsumError, UsageError
from switchsum.protocol.frame import WIRE_VERSION
from switchsum.protocol.p4runtime import Code, P4RuntimeError
from switchsum.protocol.samples import SampledFrame

from . import rails, views
from .job import Job
from .member_calls import MemberCalls
from .plan import CPU_PORT, Loss, live_members
from .windows import window_slots

LAST_PORT: Final = 510


class Controller(MemberCalls):
    """One controller of one or several switches; the methods here are those that the command line calls."""

    def create_job(self, request: rpc.CreateJobRequest) -> rpc.JobInfo:
        """Reserve slots; raises UsageError or NoCapacity."""
        with self._changed:
            self._need_switch()
            job = self._jobs.create(
                request.job,
                workers=request.workers,
                slots=request.slots,
                timeout_s=request.timeout_s,
                ephemeral=request.ephemeral,
            )
            try:
                self._synchronise()
            except RemoteError:  # the switch is full: the job must not exist if its creator is told that it does not
                self._jobs.remove(job.name)
                self._bring_up_to_date()
                raise
            self._refusals.forget(job.name, -1)
            return self._describe(job)

    def resize_job(self, request: rpc.ResizeJobRequest) -> rpc.JobInfo:
        """Change the size of a job; its members have to join again.  Raises UsageError if `force` is needed."""
        if request.workers is None and request.slots is None:
            raise UsageError("resize a job to what? --workers or --slots says")
        with self._changed:
            self._need_switch()
            job = self._jobs.find(request.job)
            if request.workers in (None, job.workers) and request.slots in (None, job.slots.count):
                return self._describe(job)
            _refuse_to_end(job, force=request.force)
            job = self._jobs.resize(request.job, workers=request.workers, slots=request.slots)
            self._bring_up_to_date()
            return self._describe(job)

    def remove_job(self, request: rpc.RemoveJobRequest) -> member_rpc.Empty:
        """Remove a job, and end its memberships.  Raises UsageError if `force` is needed."""
        with self._changed:
            self._need_jobs()
            _refuse_to_end(self._jobs.find(request.job), force=request.force)
            self._jobs.remove(request.job)
            self._bring_up_to_date()
        return member_rpc.Empty()

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Describe a job."""
        with self._changed:
            self._need_jobs()
            return self._describe(self._jobs.find(request.job))

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        """Tell what each member of a job last said of itself."""
        with self._changed:
            self._need_jobs()
            return views.worker_list(self._jobs.find(request.job), self._clock())

    def list_jobs(self, _: member_rpc.Empty) -> rpc.JobList:
        """Describe all jobs."""
        with self._changed:
            self._need_jobs()
            return rpc.JobList(jobs=[self._describe(job) for job in self._jobs])

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        """Read the cells of slots from the switch."""
        with self._changed:
            self._need_switch()
            jobs = list(self._jobs) if request.job is None else [self._jobs.find(request.job)]
            slots = sorted(slot for job in jobs for slot in job.slots.indices())[: max(0, request.limit)]
            return views.slot_list(self._fleet.query(slots), self._jobs)

    def sample(self, job: str, slot: int, seconds: float) -> list[tuple[str, SampledFrame]]:
        """Return frames of a slot that pass some switch within so many seconds, in order, with the switch's name.

        Raises UsageError for a switch that cannot be asked: BMv2 has no such method.
        """
        with self._changed:
            self._need_switch()
            slots = self._jobs.find(job).slots
            if slot not in slots.indices():
                raise UsageError(f"job {job!r} has slots {slots.first} to {slots.end - 1}, and not slot {slot}")
            switches = {name: one.need() for name, one in self._fleet.needed.items()}
        try:
            with ThreadPoolExecutor(len(switches)) as pool:
                found = pool.map(lambda switch: switch.sample(slot, seconds), switches.values())
                frames = [(name, one) for name, of_switch in zip(switches, found, strict=True) for one in of_switch]
        except P4RuntimeError as error:
            if error.code is not Code.UNIMPLEMENTED:
                raise
            text = "this switch shows no packets, as the embedded one does: switchsum capture at its interfaces does"
            raise UsageError(text) from error
        return sorted(frames, key=lambda frame: frame[1].at_s)

    def statistics(self, _: member_rpc.Empty) -> rpc.Statistics:
        """Read the switch's counters."""
        with self._changed:
            self._need_switch()
            live = [job for job in self._jobs if job.live is not None]
            homes = {(job.group, member.rank): member.switch for job, member in live_members(self._jobs)}
            counts = self._fleet.count_members({job.group: job.workers for job in live}, homes)
            return views.statistics(self._fleet.count_events(), live, counts)

    def ports(self, _: member_rpc.Empty) -> rpc.PortList:
        """Describe all ports of which something is known."""
        with self._changed:
            self._need_jobs()
            return views.port_list(self._jobs, self._settings)

    def links(self, _: member_rpc.Empty) -> rpc.LinkList:
        """Describe the links between switches: those that are found now, else those of the fleet's file."""
        with self._changed:
            return views.link_list(self._fabric, self._jobs, self._neighbours.look(self._clock()))

    def switches(self, _: member_rpc.Empty) -> rpc.SwitchList:
        """Describe the switches, also those that are away."""
        with self._changed:
            return views.switch_list(self._fleet.connections)

    def set_loss(self, request: rpc.LossRequest) -> rpc.PortList:
        """Set the drop simulator at one port, or at all."""
        for probability in (request.ingress, request.egress):
            if not 0 <= probability <= 1:
                raise UsageError(f"a probability is between 0 and 1, not {probability}")
        if request.port is not None and (request.port == CPU_PORT or not 0 <= request.port <= LAST_PORT):
            raise UsageError(f"ports of hosts are 0 to {LAST_PORT} without {CPU_PORT}, not {request.port}")
        if request.port is not None and self._fabric.parents:
            raise UsageError("ports of several switches have the same numbers: set the loss of all, without --port")
        loss = Loss(ingress=request.ingress, egress=request.egress)
        with self._changed:
            self._need_switch()
            before = self._settings.loss, dict(self._settings.port_loss)
            if request.port is None:
                self._settings.loss = loss
                self._settings.port_loss.clear()
            else:
                self._settings.port_loss[request.port] = loss
            try:
                self._synchronise()
            except RemoteError:  # nobody must meet a loss of which its user is told that it was not set
                self._settings.loss, self._settings.port_loss = before
                self._bring_up_to_date()
                raise
            return views.port_list(self._jobs, self._settings)

    def _describe(self, job: Job) -> rpc.JobInfo:
        lanes_per_frame = self._config.program.lanes_per_frame
        window = 0 if job.live is None else window_slots(job, *self._frame_limits)
        return views.job_info(
            job,
            self._clock(),
            is_up=self._fleet.is_up,
            lanes_per_frame=lanes_per_frame,
            window_slots=window,
            tree=[] if job.live is None else rails.pairs_of(self._fabric, job, job.live),
            trees_of_link=len(self._fabric.shares),
        )

    def info(self, _: member_rpc.Empty) -> rpc.ControllerInfo:
        """Describe this controller."""
        config = self._config
        with self._changed:
            return rpc.ControllerInfo(
                package_version=config.package_version,
                wire_version=WIRE_VERSION,
                program_digest=config.program.digest,
                lanes_per_frame=config.program.lanes_per_frame,
                switch=config.switch_address,
                free_slots=self._jobs.free_slots,
                refused=self._refusals.latest(self._clock()),
            )

    def note_refusal(self, request: member_rpc.JoinRequest | rpc.CreateJobRequest, error: SwitchsumError) -> None:
        """Keep why a job was not made, or a member not let in, for those who ask how things are."""
        rank = request.rank if isinstance(request, member_rpc.JoinRequest) else -1
        self._refusals.note(request.job, rank, str(error), self._clock())


def _refuse_to_end(job: Job, *, force: bool) -> None:
    """Raise UsageError if a job has members and `force` does not say that their memberships may end."""
    if job.present and not force:
        raise UsageError(f"job {job.name!r} has {job.present} members, whom this would cut off; --force does so")
