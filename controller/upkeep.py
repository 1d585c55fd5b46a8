"""The upkeep of jobs and switch: the controller's loop, which keeps the switch as the plan wants it.

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
from collections.abc import Callable
from functools import partial
from typing import Final

from switchsum.protocol import rpc
from switchsum.protocol.errors import (
    RemoteError,
    SwitchLost,
)
from switchsum.protocol.frame import FRAME_BYTES, Flag, payload_bytes
from switchsum.protocol.p4runtime import Code, P4RuntimeError
from switchsum.protocol.wire import Packet

from .config import Config
from .connection import SwitchConnection
from .job import Job
from .jobs import Former, Jobs
from .plan import Identity, Settings, most_in_flight, plan, rebuild
from .refusals import Refusals
from .switch import Switch

log = logging.getLogger(__name__)

TICK_S: Final = 0.25
RETRY_S: Final = 0.5
"""Pause between two attempts to reach the switch."""
SWITCH_WAIT_S: Final = 3.0
"""How long a call waits for a switch that is not connected yet: the parts of a system start in any order."""


class Upkeep:
    """The jobs and the switch of one controller, behind one lock."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._changed = threading.Condition()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._failure: Exception | None = None
        self._refusals = Refusals()
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
                "switch %s: program of %d lanes per frame %s, jobs: %s",
                self._connection.address,
                self._config.program.lanes_per_frame,
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
            if job.fits_slots:
                self._jobs.fit(job, most_in_flight(job.gathering, *self._frame_limits))
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

    @property
    def _frame_limits(self) -> tuple[int | None, int]:
        """How many frames a port of the switch holds (None: no limit), and how long they are."""
        frame_bytes = FRAME_BYTES + payload_bytes(self._config.program.lanes_per_frame)
        return self._config.limits(self._connection.limits).port_frames, frame_bytes

    def _need_switch(self) -> None:
        """Wait for the switch for a short while if it is away; raises SwitchLost."""
        self._changed.wait_for(lambda: self._connection.is_up, SWITCH_WAIT_S)
        self._connection.need()

    def _need_jobs(self) -> None:
        """Wait for the switch for a short while if its jobs have not been read yet; raises SwitchLost."""
        if self._is_fresh:
            self._need_switch()
