"""The controller's daemon: it keeps the jobs, keeps the switch as the plan wants it, and answers calls.

Three kinds of threads: `run` on the main thread, gRPC's threads with calls of hosts and users (`service.py`), and the
thread that reads P4Runtime's stream.  One lock, `_changed`, guards everything; each method that serves a call takes it.
The stream's thread must never wait for the lock, since a call that holds it may wait for the stream.  So hellos, and
the end of the connection, are queued as events, and `run` handles them, together with time-outs.

After each change `_bring_up_to_date` writes to the switch what has changed, and admits incarnations that are complete.
If the switch is away, or refuses something, that is logged, and `run` tries again.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from switchsum.protocol import rpc
from switchsum.protocol.errors import (
    ControllerUnreachable,
    NotAdmitted,
    RemoteError,
    SwitchLost,
    UsageError,
    VersionMismatch,
)
from switchsum.protocol.frame import FRAME_BYTES, WIRE_DIGEST, WIRE_VERSION, Flag, payload_bytes
from switchsum.protocol.p4runtime import Code, P4RuntimeError
from switchsum.protocol.wire import Packet

from . import views
from .config import Config
from .connection import SwitchConnection
from .jobs import Former, Job, Jobs
from .machines import Incarnation, Member, MemberState
from .plan import Identity, Loss, Settings, plan, rebuild, window_slots
from .switch import Switch

log = logging.getLogger(__name__)

TICK_S: Final = 0.25
RETRY_S: Final = 0.5
"""Pause between two attempts to reach the switch."""
SWITCH_WAIT_S: Final = 3.0
"""How long a call waits for a switch that is not connected yet: the parts of a system start in any order."""
MAX_WAIT_S: Final = 30.0
"""Longest time that a call may ask to wait."""
MAX_ATTENDING: Final = 1024
"""Most Attend calls that stay open; further ones are answered at once, and the members call again."""
MAX_WAITING: Final = 96
"""Most calls that may wait at a time; further ones are answered at once, and the members call again."""
LAST_PORT: Final = 510
CPU_PORT: Final = 255
UNLIMITED_GROWTH_BYTES: Final = 0xFFFF


class Controller:
    """One controller for one switch."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._changed = threading.Condition()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._failure: Exception | None = None
        self._waiting = 0
        self._attending = 0
        self._connection = SwitchConnection(config.switch_address, self._make_switch)
        self._forget()

    def _make_switch(self) -> Switch:
        config = self._config
        switch = Switch(
            config.program,
            config.switch_address,
            device_id=config.device_id,
            election_id=config.election_id,
            on_hello=lambda port, packet: self._events.put(partial(self._take_hello, port, packet)),
            on_end=lambda error: self._events.put(partial(self._lose_switch, switch, error)),
        )
        return switch

    def _forget(self) -> None:
        """Start without jobs; those on the switch are found when it is connected."""
        self._former: Former = {}
        config = self._config
        self._is_fresh = True
        draw_nonce, draw_cookie, draw_epoch = (partial(secrets.randbits, bits) for bits in (64, 64, 16))
        self._jobs = Jobs(config.program.total_slots, draw_nonce, draw_cookie, draw_epoch)
        self._settings = Settings(
            identity=Identity(
                address=config.address, growth_bytes=self._config.limits(self._connection.limits).growth_bytes
            ),
            stations=dict(config.stations),
            flood_ports=config.flood_ports,
        )

    # --- the loop -----------------------------------------------------------------------------------------------

    def run(
        self,
        on_connected: Callable[[], None] = lambda: None,
        on_refused: Callable[[P4RuntimeError], None] = lambda error: None,
    ) -> None:
        """Serve until `stop` is called, or raise what `fail` was called with.

        `on_connected` is called each time that a switch was connected and updated, `on_refused` each time that one
        does not take the program.
        """
        while not self._stopping:
            if not self._connection.is_up and self._connect(on_refused):
                on_connected()
            try:
                handle: Callable[[], None] | None = self._events.get(
                    timeout=TICK_S if self._connection.is_up else RETRY_S
                )
            except queue.Empty:
                handle = None
            with self._changed:
                if handle is not None:
                    handle()
                # At least every TICK_S: silence is an event, too.
                silent = self._jobs.tick(self._clock())
                for job, member in silent:
                    log.warning("job %s: rank %d is lost, nothing was heard of it", job.name, member.rank)
                ended = self._jobs.end_ephemeral()
                for job in ended:
                    log.info("job %s: nobody is in it any more, and it ends", job.name)
                if silent or ended or handle is not None or not self._connection.is_settled:
                    self._bring_up_to_date()
        with self._changed:
            self._connection.close()
        if self._failure is not None:
            raise self._failure

    def fail(self, error: Exception) -> None:
        """Make `run` raise an error; any thread may call it."""
        self._failure = error
        self.stop()

    def stop(self) -> None:
        """Make `run` return; the entries stay on the switch."""
        self._stopping = True
        self._events.put(lambda: None)

    def _connect(self, on_refused: Callable[[P4RuntimeError], None]) -> bool:
        """Try to connect with the switch and bring it up to date; return whether that worked."""
        try:
            switch, was_loaded = self._connection.open()
        except P4RuntimeError as error:
            self._connection.note(error)
            if error.code is Code.INVALID_ARGUMENT:
                on_refused(error)
            if error.code is Code.ALREADY_EXISTS:
                with self._changed:
                    self._connection.is_ousted = True
                    self._end_jobs_if_ousted()
            return False
        with self._changed:
            self._end_jobs_if_ousted()
            try:
                # Only a controller that has just been started believes the switch.  Later its own jobs are the truth.
                self._connection.attach(switch)
                if self._is_fresh:
                    for problem in rebuild(self._connection.current, self._jobs, self._settings, self._clock()):
                        log.warning("removed from the switch: %s", problem)
                    self._jobs.keep_former(self._former)
                self._is_fresh = False
                self._settings.loads += was_loaded
                limits = self._config.limits(self._connection.limits)
                self._settings.identity = Identity(address=self._config.address, growth_bytes=limits.growth_bytes)
                self._synchronise()
            except RemoteError as error:
                self._connection.note(error)
                self._connection.detach(error)
                return False
            names = ", ".join(job.name for job in self._jobs) or "none"
            verb = "loaded" if was_loaded else "found"
            log.info(
                "switch %s: program of %d lanes %s, jobs: %s",
                self._connection.address,
                self._config.program.lanes,
                verb,
                names,
            )
            self._bring_up_to_date()
        return True

    def _lose_switch(self, switch: Switch, error: P4RuntimeError) -> None:
        """Handle the end of the connection to the switch."""
        self._connection.detach(error, switch)
        self._end_jobs_if_ousted()

    def _end_jobs_if_ousted(self) -> None:
        """End all memberships if another P4Runtime client has been primary.

        That client may have written what members take for sums.  The jobs are forgotten, and found again on the switch
        when the controller is primary again.
        """
        if not self._connection.is_ousted:
            return
        self._connection.is_ousted = False
        if self._is_fresh:
            return
        error = SwitchLost(
            f"another P4Runtime client has become primary of the switch {self._connection.address}, and can write "
            "there what passes for sums: connect again when the controller has the switch back"
        )
        log.error("%d jobs end: %s", len(list(self._jobs)), error)
        former = self._jobs.end_all(error)
        self._forget()
        self._former = former
        self._changed.notify_all()

    def _take_hello(self, port: int, packet: Packet) -> None:
        header = packet.header
        nonce = rpc.nonce_from_fields(header.number, header.digest)
        whole = bool(header.flags & Flag.PAYLOAD)
        if self._jobs.hello(nonce, header.rank, packet.source, port, self._clock(), whole=whole):
            size = "whole" if whole else "short"
            log.debug("%s hello of rank %d from %s on port %d", size, header.rank, packet.source, port)
        else:
            log.debug("a hello that nobody waits for, from %s on port %d", packet.source, port)  # a late copy

    # --- the switch, with the lock held -------------------------------------------------------------------------

    def _synchronise(self) -> None:
        """Write the difference between the plan and the switch; raises RemoteError."""
        self._connection.put(plan(self._jobs, self._settings))

    def _bring_up_to_date(self) -> None:
        """Bring the switch up to date and admit complete incarnations; errors are logged, and `run` tries again."""
        try:
            if self._connection.is_up:
                self._synchronise()
                for job in list(self._jobs):
                    if job.is_complete:
                        self._admit(job)
        except RemoteError as error:
            self._connection.note(error)
        self._changed.notify_all()

    def _admit(self, job: Job) -> None:
        """Make a complete incarnation live; if the switch refuses its entries, its members get the reason."""
        try:
            # Slots are read and cleared while no entry lets any frame into them: the old members are shut out, the new
            # ones not admitted yet.
            first_number = self._connection.hand_over(job.slots)
            self._connection.clear_counts(job.group, job.workers)
            self._jobs.admit(job, first_number)
            self._synchronise()
        except RemoteError as error:
            if self._connection.is_up:  # otherwise it is done when the switch is back
                self._jobs.refuse(job, error)
            raise
        if job.live is not None:
            log.info("job %s: epoch %d runs, numbers from %d on", job.name, job.live.epoch, job.live.first_number)

    def _need_switch(self) -> None:
        """Wait for the switch for a short while if it is away; raises SwitchLost."""
        self._changed.wait_for(lambda: self._connection.is_up, SWITCH_WAIT_S)
        self._connection.need()

    def _need_jobs(self) -> None:
        """Wait for the switch for a short while if its jobs have not been read yet; raises SwitchLost."""
        if self._is_fresh:
            self._need_switch()

    # --- members ------------------------------------------------------------------------------------------------

    def join(self, request: rpc.JoinRequest) -> rpc.JoinReply:
        """Add a member to a job; raises JoinRefused."""
        config = self._config
        if (request.wire_version, request.wire_digest) != (WIRE_VERSION, WIRE_DIGEST):
            raise VersionMismatch(
                f"the member speaks wire version {request.wire_version} ({request.wire_digest}, switchsum "
                f"{request.package_version or '?'}), the controller {WIRE_VERSION} ({WIRE_DIGEST}, switchsum "
                f"{config.package_version or '?'})"
            )
        with self._changed:
            self._need_switch()
            job, member = self._jobs.join(
                request.job,
                rank=request.rank,
                world_size=request.world_size,
                now=self._clock(),
                receive_bytes=request.receive_bytes,
                window_bytes=request.window_bytes,
            )
            log.info("job %s: rank %d has joined for epoch %d", job.name, member.rank, job.gathering.epoch)
            growth_bytes = self._config.limits(self._connection.limits).growth_bytes
            return rpc.JoinReply(
                nonce=member.nonce,
                job_number=job.number,
                epoch=job.gathering.epoch,
                cookie=member.cookie,
                lanes=config.program.lanes,
                growth_bytes=growth_bytes if growth_bytes < UNLIMITED_GROWTH_BYTES else None,
                switch_mac=config.address.mac,
                switch_ip=config.address.ip,
                switch_port=config.address.port,
                timeout_s=job.timeout_s,
                heartbeat_s=_heartbeat_s(job),
            )

    def ready(self, request: rpc.ReadyRequest) -> rpc.ReadyReply:
        """Wait until the member's incarnation is admitted, at most as long as the request says."""
        with self._changed:
            for last in self._patience(request.wait_s):
                reply = self._readiness(*self._membership(request.job, request.nonce))
                if reply.admitted or last:
                    break
            return reply

    def reform(self, request: rpc.ReformRequest) -> rpc.ReformReply:
        """Shrink a job to the members that are not lost; wait until all of them have asked for that."""
        with self._changed:
            self._know_members(request.nonce)
            for last in self._patience(request.wait_s):
                job, rank, missing = self._jobs.reform(request.nonce, self._clock())
                if rank is not None or last:
                    break
            if rank is None:
                return rpc.ReformReply(missing=missing)
            log.info("job %s: goes on with %d members", job.name, job.workers)
            self._bring_up_to_date()
            return rpc.ReformReply(rank=rank, world_size=job.workers)

    def _patience(self, wait_s: float) -> Iterator[bool]:
        """Yield False now and after each change, and at last True: `wait_s` is over, or too many calls wait already."""
        deadline_s = self._clock() + min(wait_s, MAX_WAIT_S)
        while (left_s := deadline_s - self._clock()) > 0 and self._waiting < MAX_WAITING and not self._stopping:
            yield False
            self._waiting += 1
            self._changed.wait(left_s)
            self._waiting -= 1
        yield True

    def _membership(self, name: str, nonce: int) -> tuple[Job, Incarnation, Member]:
        """Return a membership and note that the member is alive; raises NotAdmitted, or the error that ended it."""
        self._know_members(nonce)
        job, incarnation, member = self._jobs.heartbeat(nonce, self._clock())
        if job.name != name:
            raise NotAdmitted(f"this membership is of job {job.name!r}, not {name!r}")
        return job, incarnation, member

    def _know_members(self, nonce: int) -> None:
        """Raise ControllerUnreachable while this controller knows no members yet, so that members go on without it.

        If the membership has ended, raises the error that ended it.
        """
        self._end_jobs_if_ousted()
        if nonce in self._former:
            kind, text = self._former[nonce]
            raise kind(text)
        try:
            self._need_jobs()
        except SwitchLost as error:
            raise ControllerUnreachable(f"the controller has just been started: {error}") from error

    def _readiness(self, job: Job, incarnation: Incarnation, member: Member) -> rpc.ReadyReply:
        if member.state is MemberState.LOST:
            raise NotAdmitted("this member was declared lost: join again")
        # Not before the switch has all entries: the member's first frame must find them.
        if incarnation is job.live and self._connection.is_settled:
            return rpc.ReadyReply(
                admitted=True,
                hello_seen=True,
                first_slot=job.slots.first,
                slot_count=job.slots.count,
                first_number=incarnation.first_number,
                window_slots=window_slots(
                    job,
                    self._config.limits(self._connection.limits).port_frames,
                    FRAME_BYTES + payload_bytes(self._config.program.lanes),
                ),
                loads=self._settings.loads,
            )
        return rpc.ReadyReply(
            admitted=False,
            hello_seen=member.state is not MemberState.JOINED,
            hello_cut=member.state is MemberState.JOINED and member.hello_cut,
            missing=incarnation.ranks(MemberState.EXPECTED, MemberState.JOINED),
        )

    def compare(self, request: rpc.CompareRequest) -> rpc.CompareReply:
        """Note the operation that a member has issued; return those of all members when all have said theirs."""
        with self._changed:
            _, incarnation, member = self._membership(request.job, request.nonce)
            member.issued = request.operation
            self._changed.notify_all()
            for last in self._patience(request.wait_s):
                present = [one for one in incarnation.members if one.state is MemberState.ADMITTED]
                if last or all(one.issued for one in present):
                    break
            return rpc.CompareReply(operations=[one.issued for one in incarnation.members])

    def leave(self, request: rpc.MemberRequest) -> rpc.Empty:
        """End a membership."""
        with self._changed:
            if request.nonce in self._former:
                return rpc.Empty()
            self._know_members(request.nonce)
            if (left := self._jobs.leave(request.nonce)) is not None:
                log.info("job %s: rank %d has left", left[0].name, left[1].rank)
            self._bring_up_to_date()
        return rpc.Empty()

    def heartbeat(self, request: rpc.MemberRequest) -> rpc.HeartbeatReply:
        """Note that a member is alive, and tell it about the others."""
        with self._changed:
            return self._news(request)

    def _news(self, request: rpc.MemberRequest) -> rpc.HeartbeatReply:
        job, incarnation, _ = self._membership(request.job, request.nonce)
        return rpc.HeartbeatReply(
            epoch=job.epoch_for(incarnation),
            lost=incarnation.ranks(MemberState.LOST),
            loads=self._settings.loads,
        )

    def attend(
        self, request: rpc.MemberRequest, call_at_end: Callable[[Callable[[], None]], bool]
    ) -> Iterator[rpc.HeartbeatReply]:
        """Yield news of the other members: at once, when something changes, and as heartbeats in between.

        The member counts as alive while this call is open.  `call_at_end` registers a function that is called when the
        call has ended; it returns False if it has ended already.
        """
        ended = threading.Event()
        with self._changed:
            reply = self._news(request)
            heartbeat_s = _heartbeat_s(self._jobs.member(request.nonce)[0])
            is_kept = self._attending < MAX_ATTENDING
            jobs = self._jobs
            if is_kept:
                self._attending += 1
                jobs.attend(request.nonce, self._clock())

        def end() -> None:
            ended.set()
            self._events.put(partial(self._depart, jobs, request.nonce))

        if is_kept and not call_at_end(end):
            end()
        yield reply
        due_s = self._clock() + heartbeat_s
        while is_kept and not ended.is_set() and not self._stopping:
            with self._changed:
                self._changed.wait(max(0.0, due_s - self._clock()))
                news = self._news(request)
            # `_changed` is notified for all jobs: most wake-ups bring nothing new for this member.
            if news != reply or self._clock() >= due_s:
                reply, due_s = news, self._clock() + heartbeat_s
                yield reply

    def _depart(self, jobs: Jobs, nonce: int) -> None:
        self._attending -= 1
        jobs.depart(nonce, self._clock())

    # --- people -------------------------------------------------------------------------------------------------

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

    def remove_job(self, request: rpc.RemoveJobRequest) -> rpc.Empty:
        """Remove a job, and end its memberships.  Raises UsageError if `force` is needed."""
        with self._changed:
            self._need_jobs()
            _refuse_to_end(self._jobs.find(request.job), force=request.force)
            self._jobs.remove(request.job)
            self._bring_up_to_date()
        return rpc.Empty()

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Describe a job."""
        with self._changed:
            self._need_jobs()
            return self._describe(self._jobs.find(request.job))

    def list_jobs(self, _: rpc.Empty) -> rpc.JobList:
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
            return views.slot_list(self._connection.query(slots), self._jobs)

    def statistics(self, _: rpc.Empty) -> rpc.Statistics:
        """Read the switch's counters."""
        with self._changed:
            self._need_switch()
            live = [job for job in self._jobs if job.live is not None]
            counts = self._connection.count_members({job.group: job.workers for job in live})
            return views.statistics(self._connection.count_events(), live, counts)

    def ports(self, _: rpc.Empty) -> rpc.PortList:
        """Describe all ports of which something is known."""
        with self._changed:
            self._need_jobs()
            return views.port_list(self._jobs, self._settings)

    def set_loss(self, request: rpc.LossRequest) -> rpc.PortList:
        """Set the drop simulator at one port, or at all."""
        for probability in (request.ingress, request.egress):
            if not 0 <= probability <= 1:
                raise UsageError(f"a probability is between 0 and 1, not {probability}")
        if request.port is not None and (request.port == CPU_PORT or not 0 <= request.port <= LAST_PORT):
            raise UsageError(f"ports of hosts are 0 to {LAST_PORT} without {CPU_PORT}, not {request.port}")
        loss = Loss(ingress=request.ingress, egress=request.egress)
        with self._changed:
            self._need_switch()
            if request.port is None:
                self._settings.loss = loss
                self._settings.port_loss.clear()
            else:
                self._settings.port_loss[request.port] = loss
            self._synchronise()
            return views.port_list(self._jobs, self._settings)

    def _describe(self, job: Job) -> rpc.JobInfo:
        lanes = self._config.program.lanes
        return views.job_info(job, self._clock(), is_up=self._connection.is_up, lanes=lanes)

    def info(self, _: rpc.Empty) -> rpc.ControllerInfo:
        """Describe this controller."""
        config = self._config
        with self._changed:
            return rpc.ControllerInfo(
                package_version=config.package_version,
                wire_version=WIRE_VERSION,
                program_digest=config.program.digest,
                lanes=config.program.lanes,
                switch=config.switch_address,
                free_slots=self._jobs.free_slots,
            )


def _heartbeat_s(job: Job) -> float:
    """Return the time between two heartbeats of a job's members."""
    return min(1.0, job.timeout_s / 10)


def _refuse_to_end(job: Job, *, force: bool) -> None:
    """Raise UsageError if a job has members and `force` does not say that their memberships may end."""
    if job.present and not force:
        raise UsageError(f"job {job.name!r} has {job.present} members, whom this would cut off; --force does so")
