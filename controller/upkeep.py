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
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from switchsum.protocol.errors import (
    NotAdmitted,
    RemoteError,
    SwitchLost,
    UsageError,
)
from switchsum.protocol.frame import FRAME_BYTES, Flag, payload_bytes
from switchsum.protocol.p4runtime import Code, P4RuntimeError
from switchsum.protocol.wire import Packet, nonce_from_fields

from . import moves
from .config import Config
from .fabric import Fabric
from .job import Job
from .keeping import Keeping
from .links import check_addresses, number_links
from .machines import Incarnation
from .plan import Identity, branches_of, station_ports
from .rebuild import view_of
from .refusals import Refusals
from .switch import Switch
from .windows import most_in_flight

log = logging.getLogger(__name__)

TICK_S: Final = 0.25
RETRY_S: Final = 0.5
"""Pause between two attempts to reach the switch."""
SWITCH_WAIT_S: Final = 3.0
"""How long a call waits for a switch that is not connected yet: the parts of a system start in any order."""


class Upkeep(Keeping):
    """The jobs and the switches of one controller, behind one lock."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(config, clock)
        self._changed = threading.Condition()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._failure: Exception | None = None
        self._refusals = Refusals()

    def _make_switch(self, name: str) -> Switch:
        config = self._config
        switch = Switch(
            config.program,
            self._fabric.switches[name].p4runtime,
            device_id=config.device_id,
            election_id=config.election_id,
            on_hello=lambda port, packet: self._events.put(partial(self._take_hello, name, port, packet)),
            on_lldp=lambda payload: self._events.put(partial(self._take_lldp, name, payload)),
            on_end=lambda error: self._events.put(partial(self._lose_switch, name, switch, error)),
        )
        return switch

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
            began_s = self._clock()
            if self._fleet.away() and self._connect(on_refused):
                on_connected()
            waited_s = self._clock() - began_s
            events = self._next_events()
            with self._changed:
                for handle in events:
                    handle()
                # At least every TICK_S: silence is an event, too.
                self._look_for_links()
                self._do_without()
                silent = self._jobs.tick(self._clock(), waited_s)
                for job, member in silent:
                    log.warning("job %s: rank %d is lost, nothing was heard of it", job.name, member.rank)
                ended = self._jobs.end_ephemeral()
                for job in ended:
                    log.info("job %s: nobody is in it any more, and it ends", job.name)
                waits = any(job.is_complete for job in self._jobs)
                if silent or ended or events or waits or not self._fleet.is_settled or self._moving():
                    self._bring_up_to_date()
        with self._changed:
            self._fleet.close()
        if self._failure is not None:
            raise self._failure

    def _next_events(self) -> list[Callable[[], None]]:
        """Wait for an event, at most a tick, and return all that have come: a switch may have been waited for."""
        try:
            first = self._events.get(timeout=TICK_S if self._fleet.is_up else RETRY_S)
        except queue.Empty:
            return []
        return [first, *(self._events.get() for _ in range(self._events.qsize()))]

    def fail(self, error: Exception) -> None:
        """Make `run` raise an error; any thread may call it."""
        self._failure = error
        self.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` or `fail` was called."""
        return self._stopping

    def stop(self) -> None:
        """Make `run` return; the entries stay on the switch."""
        self._stopping = True
        self._events.put(lambda: None)

    def _connect(self, on_refused: Callable[[P4RuntimeError], None]) -> bool:
        """Try to connect with the switches that are away; return whether one came, and all are up to date now."""
        came = [name for name in self._fleet.away() if self._connect_one(name, on_refused)]
        with self._changed:
            self._do_without()
            self._has_news |= bool(came)
            if not self._fleet.is_up:
                self._mend()
                return False
            if not self._has_news:
                return False
            self._has_news = False
            loaded = self._loaded
            try:
                if self._is_fresh:
                    self._learn()
                self._count_loads()
                limits = self._config.limits(self._fleet.limits)
                self._settings.identity = Identity(address=self._config.address, growth_bytes=limits.growth_bytes)
                self._synchronise()
            except RemoteError as error:
                self._fleet.detach(error)
                return False
            names = ", ".join(job.name for job in self._jobs) or "none"
            verb = "loaded" if loaded else "found"
            log.info(
                "switch %s: program of %d lanes per frame %s, jobs: %s",
                ", ".join(connection.address for connection in self._fleet.needed.values()),
                self._config.program.lanes_per_frame,
                verb,
                names,
            )
            self._bring_up_to_date()
        return True

    def _connect_one(self, name: str, on_refused: Callable[[P4RuntimeError], None]) -> bool:
        """Try to connect with a switch and to read what it has; return whether it is there."""
        connection, began_s = self._fleet.connections[name], self._clock()
        if self._stopping or (name in self._fleet.without and not self._absences.is_due(name, began_s)):
            return False
        try:
            switch, _ = connection.open()
        except P4RuntimeError as error:
            connection.note(error)
            self._absences.tried(name, began_s, self._clock())
            with self._changed:
                self._note_absence(name, error)
            if error.code is Code.INVALID_ARGUMENT:
                on_refused(error)
            if error.code is Code.ALREADY_EXISTS:
                with self._changed:
                    connection.is_ousted = True
                    self._end_jobs_if_ousted()
            return False
        with self._changed:
            self._end_jobs_if_ousted()
            try:
                connection.attach(switch)
            except RemoteError as error:
                connection.note(error)
                return False
            if view_of(connection.current) < 0:
                self._loaded += 1
                self._jobs.forget_doors(name)
            self._absences.end(name)
            self._fleet.without.discard(name)
            return True

    def _lose_switch(self, name: str, switch: Switch, error: P4RuntimeError) -> None:
        """Handle the end of the connection to a switch."""
        self._fleet.connections[name].detach(error, switch)
        if not self._fleet.connections[name].is_up:
            self._note_absence(name, error)
        self._end_jobs_if_ousted()

    def _end_jobs_if_ousted(self) -> None:
        """End all memberships if another P4Runtime client has been primary.

        That client may have written what members take for sums.  The jobs are forgotten, and found again on the switch
        when the controller is primary again.
        """
        ousted = self._fleet.take_ousted()
        if not ousted or self._is_fresh:
            return
        error = SwitchLost(
            f"another P4Runtime client has become primary of the switch {ousted[0]}, and can write "
            "there what passes for sums: connect again when the controller has the switch back"
        )
        log.error("%d jobs end: %s", len(list(self._jobs)), error)
        former = self._jobs.end_all(error)
        self._forget()
        self._former = former
        self._changed.notify_all()

    def _take_hello(self, name: str, port: int, packet: Packet) -> None:
        header = packet.header
        nonce = nonce_from_fields(header.number, header.digest)
        whole = bool(header.flags & Flag.PAYLOAD)
        now, link = self._clock(), header.tree
        if self._jobs.hello(nonce, header.rank, packet.source, port, now, whole=whole, switch=name, link=link):
            size = "whole" if whole else "short"
            log.debug("%s hello of rank %d from %s on port %d", size, header.rank, packet.source, port)
        else:
            log.debug("a hello that nobody waits for, from %s on port %d", packet.source, port)  # a late copy

    def _take_lldp(self, name: str, payload: bytes) -> None:
        self._neighbours.hear(name, payload, self._clock())

    def _look_for_links(self) -> None:
        """Let each switch show itself to its neighbours from time to time, and log which links come and go."""
        now = self._clock()
        if not self._fabric.is_discovered or not self._neighbours.is_due(now):
            return
        up = {name: one for name, one in self._fleet.connections.items() if one.is_up}
        hosts = {name: station_ports(one.current) for name, one in up.items()}
        self._neighbours.hosts = {**self._neighbours.hosts, **hosts}
        for line in self._neighbours.news(now):
            log.warning("%s", line)
        found = {frozenset(end.switch for end in link.ends) for link in self._neighbours.look(now)[0]}
        moves.note_links(self._cuts, self._fabric, found, self._fleet.away(), now)
        for name, connection in up.items():
            connection.need().send_frames(self._neighbours.frames(name))

    # --- the switch, with the lock held -------------------------------------------------------------------------

    def _bring_up_to_date(self) -> None:
        """Bring the switch up to date and admit complete incarnations; errors are logged, and `run` tries again."""
        try:
            if self._fleet.is_up:
                self._synchronise()
                for job in list(self._jobs):
                    if job.is_complete:
                        self._admit(job)
            else:
                self._mend()
        except RemoteError as error:
            self._fleet.note(error)
        self._changed.notify_all()

    def _admit(self, job: Job) -> None:
        """Make a complete incarnation live; if a switch refuses its entries, its members get the reason."""
        try:
            check_addresses(job.gathering)
            number_links(job, self._jobs.take_number)
            if len(self._fabric.switches) > 1:
                job.gathering.held_up = self._lay_out(job.gathering)
                if job.gathering.held_up:
                    return
            branches_of(job, job.gathering, self._settings, self._fabric)
        except UsageError as error:  # nothing was written yet
            log.warning("job %s: %s", job.name, error)
            self._jobs.refuse(job, NotAdmitted(str(error)))
            return
        try:
            # Slots are read and cleared while no entry lets any frame into them: the old members are shut out, the new
            # ones not admitted yet.
            if job.fits_slots:
                self._jobs.fit(job, most_in_flight(job.gathering, *self._frame_limits))
            first_number = self._fleet.hand_over(job.slots)
            self._fleet.clear_counts(job.group, job.workers)
            self._jobs.admit(job, first_number)
            self._synchronise()
        except RemoteError as error:
            if self._fleet.is_up:  # otherwise it is done when the switch is back
                self._jobs.refuse(job, error)
            raise
        if job.live is not None:
            log.info("job %s: epoch %d runs, numbers from %d on", job.name, job.live.epoch, job.live.first_number)

    def _lay_out(self, gathering: Incarnation) -> str:
        """Give a complete incarnation its trees; return what it has to wait for where switches or links are away.

        Raises UsageError if there are no trees although all are there.
        """
        cut = self._cuts.long(self._clock())
        try:
            gathering.above = moves.trees_without(self._fabric, gathering, self._fleet.without, cut)
        except UsageError as error:
            if not (self._fleet.without or cut):
                raise
            return str(error)
        return ""

    @property
    def _frame_limits(self) -> tuple[int | None, int, Fabric]:
        """How many frames a port of a switch holds (None: no limit), how long they are, and the switches."""
        frame_bytes = FRAME_BYTES + payload_bytes(self._config.program.lanes_per_frame)
        return self._config.limits(self._fleet.limits).port_frames, frame_bytes, self._fabric

    def _need_switch(self) -> None:
        """Wait for the switch and its jobs for a short while if it is away or they are not read yet; raises SwitchLost.

        A switch counts as up a moment before its jobs are read (`_connect`); an answer in between would not know them.
        """
        self._changed.wait_for(lambda: self._fleet.is_up and not self._is_fresh, SWITCH_WAIT_S)
        self._fleet.need()
        if self._is_fresh:
            raise SwitchLost("the switch is there, and its jobs have not been read yet")

    def _need_jobs(self) -> None:
        """Wait for the switch for a short while if its jobs have not been read yet; raises SwitchLost."""
        if self._is_fresh:
            self._need_switch()
