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
from ..switches.connection import SwitchConnection
from ..tables.names import CPU_PORT
from ..trees import rails
from . import views
from .keeper import Keeper

LAST_PORT: Final = 510


class Users:
    """Serves the calls of users; each method but two serves one of the protocol's (`methods` in server.py)."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def create_job(self, request: rpc.CreateJobRequest) -> rpc.JobInfo:
        """Reserve slots; raises UsageError or NoCapacity."""
        keeper = self._keeper
        with keeper.changed:
            keeper.need_switch()
            job = keeper.jobs.create(
                request.job,
                workers=request.workers,
                slots=request.slots,
                timeout_s=request.timeout_s,
                ephemeral=request.ephemeral,
                least_quorum=request.least_quorum,
                shares_slots=request.shares_slots,
                own_slots=request.own_slots,
            )
            try:
                keeper.synchronise()
            except RemoteError:  # the switch is full: the job must not exist if its creator is told that it does not
                keeper.jobs.remove(job.name)
                keeper.bring_up_to_date()
                raise
            keeper.refusals.forget(job.name, -1)
            return self._describe(job)

    def resize_job(self, request: rpc.ResizeJobRequest) -> rpc.JobInfo:
        """Change the size of a job; its members have to join again.  Raises UsageError if `force` is needed."""
        keeper = self._keeper
        if request.workers is None and request.slots is None:
            raise UsageError("a resize needs a new size: give --workers or --slots")
        with keeper.changed:
            keeper.need_switch()
            job = keeper.jobs.find(request.job)
            if request.workers in (None, job.workers) and request.slots in (None, job.slots.count):
                return self._describe(job)
            _refuse_to_end(job, force=request.force)
            job = keeper.jobs.resize(request.job, workers=request.workers, slots=request.slots)
            keeper.bring_up_to_date()
            return self._describe(job)

    def remove_job(self, request: rpc.RemoveJobRequest) -> member_rpc.Empty:
        """Remove a job, and end its memberships.  Raises UsageError if `force` is needed."""
        keeper = self._keeper
        with keeper.changed:
            keeper.need_jobs()
            _refuse_to_end(keeper.jobs.find(request.job), force=request.force)
            keeper.jobs.remove(request.job)
            keeper.bring_up_to_date()
        return member_rpc.Empty()

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Describe a job."""
        keeper = self._keeper
        with keeper.changed:
            keeper.need_jobs()
            return self._describe(keeper.jobs.find(request.job))

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        """Tell what each member of a job last said of itself."""
        keeper = self._keeper
        with keeper.changed:
            keeper.need_jobs()
            return views.worker_list(keeper.jobs.find(request.job), keeper.clock())

    def list_jobs(self, _: member_rpc.Empty) -> rpc.JobList:
        """Describe all jobs."""
        keeper = self._keeper
        with keeper.changed:
            keeper.need_jobs()
            return rpc.JobList(jobs=[self._describe(job) for job in keeper.jobs])

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        """Read the cells of slots from the switches that are there; raises SwitchLost if none is."""
        keeper = self._keeper
        with keeper.changed:
            keeper.need_some_switch()
            jobs = list(keeper.jobs) if request.job is None else [keeper.jobs.find(request.job)]
            most = max(0, request.limit)

            def cells_at(name: str, switch: SwitchConnection) -> list[Cell]:
                return switch.query(sorted({slot for job in jobs for slot in self._slots_at(job, name)})[:most])

            cells = keeper.fleet.ask(cells_at)
            return views.slot_list(cells, keeper.jobs, keeper.fabric.fallback, keeper.fleet.connections)

    def sample(self, job: str, slot: int, seconds: float) -> list[tuple[str, SampledFrame]]:
        """Return frames of a slot that pass some switch within so many seconds, in order, with the switch's name.

        Switches that are away are left out, and an aggregator has the slot under another number.  Raises UsageError for
        a switch that cannot be asked: BMv2 has no such method.
        """
        keeper = self._keeper
        with keeper.changed:
            keeper.need_some_switch()
            known = keeper.jobs.find(job)
            parts = [part for part in (self._slots_of(known), known.own_part) if part is not None]
            here = [number for part in parts for number in part.indices()]
            if slot not in here:
                having = " and ".join(f"{part.first} to {part.end - 1}" for part in parts)
                raise UsageError(f"job {job!r} has slots {having}, not slot {slot}")
            place = here.index(slot)
            asked = [
                (name, switch, there[place])
                for name, switch in keeper.fleet.ask(lambda _, switch: switch.need()).items()
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
        keeper = self._keeper
        with keeper.changed:
            keeper.need_some_switch(waits=waits)
            live = [job for job in keeper.jobs if job.live is not None]
            homes = {(job.group, member.rank): member.switch for job, member in live_members(keeper.jobs)}
            return views.statistics(keeper.fleet.count({job.group: job.workers for job in live}, homes), live)

    def ports(self, _: member_rpc.Empty) -> rpc.PortList:
        """Describe all ports of which something is known."""
        keeper = self._keeper
        with keeper.changed:
            keeper.need_jobs()
            return views.port_list(keeper.jobs, keeper.settings)

    def links(self, _: member_rpc.Empty) -> rpc.LinkList:
        """Describe the links between switches: those that are found now, else those of the fleet's file."""
        keeper = self._keeper
        with keeper.changed:
            return views.link_list(keeper.fabric, keeper.jobs, keeper.neighbours.look(keeper.clock()))

    def switches(self, _: member_rpc.Empty) -> rpc.SwitchList:
        """Describe the switches, also those that are away."""
        keeper = self._keeper
        with keeper.changed:
            return views.switch_list(keeper.fleet.connections)

    def set_loss(self, request: rpc.LossRequest) -> rpc.PortList:
        """Set the drop simulator at one port, or at all."""
        keeper = self._keeper
        for probability in (request.ingress, request.egress):
            if not 0 <= probability <= 1:
                raise UsageError(f"a probability is between 0 and 1, not {probability}")
        if request.port is not None and (request.port == CPU_PORT or not 0 <= request.port <= LAST_PORT):
            raise UsageError(f"a host's port is 0 to {LAST_PORT}, except {CPU_PORT}, not {request.port}")
        if request.port is not None and keeper.fabric.parents:
            raise UsageError(
                "--port names no single switch here, because several have that port: leave --port out to set all ports"
            )
        loss = Loss(ingress=request.ingress, egress=request.egress)
        with keeper.changed:
            keeper.need_switch()
            before = keeper.settings.loss, dict(keeper.settings.port_loss)
            if request.port is None:
                keeper.settings.loss = loss
                keeper.settings.port_loss.clear()
            else:
                keeper.settings.port_loss[request.port] = loss
            try:
                keeper.synchronise()
            except RemoteError:  # nobody must meet a loss of which its user is told that it was not set
                keeper.settings.loss, keeper.settings.port_loss = before
                keeper.bring_up_to_date()
                raise
            return views.port_list(keeper.jobs, keeper.settings)

    def _slots_of(self, job: Job) -> SlotRange:
        """Return the slots that a job's workers use; if it shares some, these alone."""
        return self._keeper.fabric.slots_here(job.number, job.slots) if job.shares_slots else job.slots

    def _slots_at(self, job: Job, switch: str) -> list[int]:
        """Return the slots of a job at a switch: at an aggregator those alone that are shared elsewhere."""
        if (fallback := self._keeper.fabric.fallback) and switch == fallback:
            return [*job.slots.indices()] if job.shares_slots else []
        return [*self._slots_of(job).indices(), *(job.own_part.indices() if job.own_part else ())]

    def _describe(self, job: Job) -> rpc.JobInfo:
        keeper = self._keeper
        lanes_per_frame = keeper.config.program.lanes_per_frame
        window = 0 if job.live is None else window_slots(job, *keeper.frame_limits)
        return views.job_info(
            job,
            keeper.clock(),
            slots=self._slots_of(job),
            fallback=keeper.fabric.fallback if job.shares_slots else "",
            is_up=job.live is None or not keeper.away_of(job.live),
            lanes_per_frame=lanes_per_frame,
            window_slots=window,
            tree=[] if job.live is None else rails.pairs_of(keeper.fabric, job, job.live),
            trees_of_link=len(keeper.fabric.shares),
        )

    def info(self, _: member_rpc.Empty) -> rpc.ControllerInfo:
        """Describe this controller."""
        keeper = self._keeper
        config = keeper.config
        with keeper.changed:
            return rpc.ControllerInfo(
                package_version=config.package_version,
                wire_version=WIRE_VERSION,
                program_digest=config.program.digest,
                lanes_per_frame=config.program.lanes_per_frame,
                switch=config.switch_address,
                free_slots=keeper.jobs.free_slots,
                refused=keeper.refusals.latest(keeper.clock()),
            )

    def note_refusal(self, request: member_rpc.JoinRequest | rpc.CreateJobRequest, error: SwitchsumError) -> None:
        """Keep why a job was not made, or a member not let in, for those who ask how things are."""
        keeper = self._keeper
        rank = request.rank if isinstance(request, member_rpc.JoinRequest) else -1
        keeper.refusals.note(request.job, rank, error, keeper.clock())


def _refuse_to_end(job: Job, *, force: bool) -> None:
    """Raise UsageError if a job has members and `force` does not say that their memberships may end."""
    if job.present and not force:
        raise UsageError(f"job {job.name!r} has {job.present} members, which would be cut off: add --force to do so")
