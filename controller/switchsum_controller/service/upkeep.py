"""The upkeep of jobs and switches: the controller's loop, which keeps the switches as the plan wants them."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from typing import Final

from switchsum_protocol.errors import RemoteError
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError

from ..plan.plan import Identity
from ..plan.rebuild import view_of
from ..tables.names import station_ports
from ..trees import moves
from .reconciler import Reconciler

log = logging.getLogger("switchsum.controller.service.upkeep")

TICK_S: Final = 0.25
RETRY_S: Final = 0.5
"""Pause between two attempts to reach the switch."""


class Upkeep:
    """Looks after what a reconciler has, until it is stopped."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._failure: Exception | None = None

    def run(
        self,
        on_connected: Callable[[], None] = lambda: None,
        on_refused: Callable[[P4RuntimeError], None] = lambda error: None,
    ) -> None:
        """Serve until `stop` is called, or raise what `fail` was called with.

        `on_connected` is called each time that a switch was connected and updated, `on_refused` each time that one
        does not take the program.
        """
        reconciler = self._reconciler
        while not reconciler.is_stopping:
            self.turn(self._next_events, on_connected, on_refused)
        with reconciler.changed:
            reconciler.fleet.close()
        if self._failure is not None:
            raise self._failure

    def turn(
        self,
        next_events: Callable[[], list[Callable[[], None]]],
        on_connected: Callable[[], None] = lambda: None,
        on_refused: Callable[[P4RuntimeError], None] = lambda error: None,
    ) -> None:
        """Connect what is away, and do what is due; `next_events` returns what has happened, and may wait for it."""
        reconciler = self._reconciler
        began_s = reconciler.clock()
        if reconciler.fleet.away() and self._connect(on_refused):
            on_connected()
        waited_s = reconciler.clock() - began_s
        events = next_events()
        with reconciler.changed:
            for handle in events:
                handle()
            # At least every TICK_S: silence is an event, too.
            self._look_for_links()
            reconciler.do_without()
            silent = reconciler.jobs.tick(reconciler.clock(), waited_s)
            for job, member in silent:
                log.warning(
                    "job %s: rank %d is lost: the controller heard nothing from it in time", job.name, member.rank
                )
            ended = reconciler.jobs.end_ephemeral()
            for job in ended:
                log.info("job %s: has ended, because its last member has left", job.name)
            waits = any(job.is_complete for job in reconciler.jobs)
            if silent or ended or events or waits or not reconciler.fleet.is_settled or reconciler.moving():
                reconciler.bring_up_to_date()

    def _next_events(self) -> list[Callable[[], None]]:
        """Wait for an event, at most a tick, and return all that have come: a switch may have been waited for."""
        reconciler = self._reconciler
        try:
            first = reconciler.events.get(timeout=TICK_S if reconciler.fleet.is_up else RETRY_S)
        except queue.Empty:
            return []
        return [first, *(reconciler.events.get() for _ in range(reconciler.events.qsize()))]

    def fail(self, error: Exception) -> None:
        """Make `run` raise an error; any thread may call it."""
        self._failure = error
        self.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` or `fail` was called."""
        return self._reconciler.is_stopping

    def stop(self) -> None:
        """Make `run` return; the entries stay on the switch."""
        reconciler = self._reconciler
        reconciler.is_stopping = True
        reconciler.events.put(lambda: None)

    def _connect(self, on_refused: Callable[[P4RuntimeError], None]) -> bool:
        """Try to connect with the switches that are away; return whether one came, and all are up to date now."""
        reconciler = self._reconciler
        came = [name for name in reconciler.fleet.away() if self._connect_one(name, on_refused)]
        with reconciler.changed:
            reconciler.do_without()
            reconciler.has_news |= bool(came)
            if not reconciler.fleet.is_up:
                reconciler.mend()
                return False
            if not reconciler.has_news:
                return False
            reconciler.has_news = False
            loaded = reconciler.loaded
            try:
                if reconciler.is_fresh:
                    reconciler.learn()
                reconciler.count_loads()
                limits = reconciler.config.limits(reconciler.fleet.limits)
                reconciler.settings.identity = Identity(
                    address=reconciler.config.address, growth_bytes=limits.growth_bytes
                )
                reconciler.synchronise()
            except RemoteError as error:
                reconciler.fleet.detach(error)
                return False
            names = ", ".join(job.name for job in reconciler.jobs) or "none"
            verb = "loaded" if loaded else "found"
            log.info(
                "switch %s: %d lanes per frame, program %s, jobs: %s",
                ", ".join(connection.address for connection in reconciler.fleet.needed.values()),
                reconciler.config.program.lanes_per_frame,
                verb,
                names,
            )
            reconciler.bring_up_to_date()
        return True

    def _connect_one(self, name: str, on_refused: Callable[[P4RuntimeError], None]) -> bool:
        """Try to connect with a switch and to read what it has; return whether it is there."""
        reconciler = self._reconciler
        connection, began_s = reconciler.fleet.connections[name], reconciler.clock()
        is_needed = name not in reconciler.fleet.without or name in reconciler.awaited
        is_due = reconciler.absences.is_due(name, began_s, is_wanted=reconciler.is_joining_held_up)
        if reconciler.is_stopping or not (is_needed or is_due):
            return False
        try:
            switch, was_loaded = connection.open()
        except P4RuntimeError as error:
            connection.note(error)
            reconciler.absences.tried(name, began_s, reconciler.clock())
            with reconciler.changed:
                reconciler.note_absence(name, error)
            if error.code is Code.INVALID_ARGUMENT:
                on_refused(error)
            if error.code is Code.ALREADY_EXISTS:
                with reconciler.changed:
                    connection.is_ousted = True
                    reconciler.end_jobs_if_ousted()
            return False
        with reconciler.changed:
            reconciler.end_jobs_if_ousted()
            try:
                connection.attach(switch, was_loaded=was_loaded)
            except RemoteError as error:
                connection.note(error)
                return False
            if view_of(connection.current) < 0:
                reconciler.loaded += 1
                reconciler.jobs.forget_attachments(name)
            reconciler.absences.end(name)
            reconciler.fleet.without.discard(name)
            reconciler.awaited.discard(name)
            return True

    def _look_for_links(self) -> None:
        """Let each switch show itself to its neighbours from time to time, and log which links come and go."""
        reconciler = self._reconciler
        now = reconciler.clock()
        if not reconciler.fabric.is_discovered or not reconciler.neighbours.is_due(now):
            return
        up = {name: one for name, one in reconciler.fleet.connections.items() if one.is_up}
        hosts = {name: station_ports(one.current) for name, one in up.items()}
        reconciler.neighbours.hosts = {**reconciler.neighbours.hosts, **hosts}
        for line in reconciler.neighbours.news(now):
            log.warning("%s", line)
        found = {frozenset(end.switch for end in link.ends) for link in reconciler.neighbours.look(now)[0]}
        moves.note_links(reconciler.cuts, reconciler.fabric, found, reconciler.fleet.away(), now)
        for name, connection in up.items():
            connection.need().send_frames(reconciler.neighbours.frames(name))
