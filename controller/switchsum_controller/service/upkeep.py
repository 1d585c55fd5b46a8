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
from .keeper import Keeper

log = logging.getLogger("switchsum.controller.service.upkeep")

TICK_S: Final = 0.25
RETRY_S: Final = 0.5
"""Pause between two attempts to reach the switch."""


class Upkeep:
    """Looks after what a keeper has, until it is stopped."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
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
        keeper = self._keeper
        while not keeper.is_stopping:
            self.turn(self._next_events, on_connected, on_refused)
        with keeper.changed:
            keeper.fleet.close()
        if self._failure is not None:
            raise self._failure

    def turn(
        self,
        next_events: Callable[[], list[Callable[[], None]]],
        on_connected: Callable[[], None] = lambda: None,
        on_refused: Callable[[P4RuntimeError], None] = lambda error: None,
    ) -> None:
        """Connect what is away, and do what is due; `next_events` returns what has happened, and may wait for it."""
        keeper = self._keeper
        began_s = keeper.clock()
        if keeper.fleet.away() and self._connect(on_refused):
            on_connected()
        waited_s = keeper.clock() - began_s
        events = next_events()
        with keeper.changed:
            for handle in events:
                handle()
            # At least every TICK_S: silence is an event, too.
            self._look_for_links()
            keeper.do_without()
            silent = keeper.jobs.tick(keeper.clock(), waited_s)
            for job, member in silent:
                log.warning(
                    "job %s: rank %d is lost: the controller heard nothing from it in time", job.name, member.rank
                )
            ended = keeper.jobs.end_ephemeral()
            for job in ended:
                log.info("job %s: has ended, because its last member has left", job.name)
            waits = any(job.is_complete for job in keeper.jobs)
            if silent or ended or events or waits or not keeper.fleet.is_settled or keeper.moving():
                keeper.bring_up_to_date()

    def _next_events(self) -> list[Callable[[], None]]:
        """Wait for an event, at most a tick, and return all that have come: a switch may have been waited for."""
        keeper = self._keeper
        try:
            first = keeper.events.get(timeout=TICK_S if keeper.fleet.is_up else RETRY_S)
        except queue.Empty:
            return []
        return [first, *(keeper.events.get() for _ in range(keeper.events.qsize()))]

    def fail(self, error: Exception) -> None:
        """Make `run` raise an error; any thread may call it."""
        self._failure = error
        self.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` or `fail` was called."""
        return self._keeper.is_stopping

    def stop(self) -> None:
        """Make `run` return; the entries stay on the switch."""
        keeper = self._keeper
        keeper.is_stopping = True
        keeper.events.put(lambda: None)

    def _connect(self, on_refused: Callable[[P4RuntimeError], None]) -> bool:
        """Try to connect with the switches that are away; return whether one came, and all are up to date now."""
        keeper = self._keeper
        came = [name for name in keeper.fleet.away() if self._connect_one(name, on_refused)]
        with keeper.changed:
            keeper.do_without()
            keeper.has_news |= bool(came)
            if not keeper.fleet.is_up:
                keeper.mend()
                return False
            if not keeper.has_news:
                return False
            keeper.has_news = False
            loaded = keeper.loaded
            try:
                if keeper.is_fresh:
                    keeper.learn()
                keeper.count_loads()
                limits = keeper.config.limits(keeper.fleet.limits)
                keeper.settings.identity = Identity(address=keeper.config.address, growth_bytes=limits.growth_bytes)
                keeper.synchronise()
            except RemoteError as error:
                keeper.fleet.detach(error)
                return False
            names = ", ".join(job.name for job in keeper.jobs) or "none"
            verb = "loaded" if loaded else "found"
            log.info(
                "switch %s: %d lanes per frame, program %s, jobs: %s",
                ", ".join(connection.address for connection in keeper.fleet.needed.values()),
                keeper.config.program.lanes_per_frame,
                verb,
                names,
            )
            keeper.bring_up_to_date()
        return True

    def _connect_one(self, name: str, on_refused: Callable[[P4RuntimeError], None]) -> bool:
        """Try to connect with a switch and to read what it has; return whether it is there."""
        keeper = self._keeper
        connection, began_s = keeper.fleet.connections[name], keeper.clock()
        is_needed = name not in keeper.fleet.without or name in keeper.awaited
        is_due = keeper.absences.is_due(name, began_s, is_wanted=keeper.is_joining_held_up)
        if keeper.is_stopping or not (is_needed or is_due):
            return False
        try:
            switch, _ = connection.open()
        except P4RuntimeError as error:
            connection.note(error)
            keeper.absences.tried(name, began_s, keeper.clock())
            with keeper.changed:
                keeper.note_absence(name, error)
            if error.code is Code.INVALID_ARGUMENT:
                on_refused(error)
            if error.code is Code.ALREADY_EXISTS:
                with keeper.changed:
                    connection.is_ousted = True
                    keeper.end_jobs_if_ousted()
            return False
        with keeper.changed:
            keeper.end_jobs_if_ousted()
            try:
                connection.attach(switch)
            except RemoteError as error:
                connection.note(error)
                return False
            if view_of(connection.current) < 0:
                keeper.loaded += 1
                keeper.jobs.forget_doors(name)
            keeper.absences.end(name)
            keeper.fleet.without.discard(name)
            keeper.awaited.discard(name)
            return True

    def _look_for_links(self) -> None:
        """Let each switch show itself to its neighbours from time to time, and log which links come and go."""
        keeper = self._keeper
        now = keeper.clock()
        if not keeper.fabric.is_discovered or not keeper.neighbours.is_due(now):
            return
        up = {name: one for name, one in keeper.fleet.connections.items() if one.is_up}
        hosts = {name: station_ports(one.current) for name, one in up.items()}
        keeper.neighbours.hosts = {**keeper.neighbours.hosts, **hosts}
        for line in keeper.neighbours.news(now):
            log.warning("%s", line)
        found = {frozenset(end.switch for end in link.ends) for link in keeper.neighbours.look(now)[0]}
        moves.note_links(keeper.cuts, keeper.fabric, found, keeper.fleet.away(), now)
        for name, connection in up.items():
            connection.need().send_frames(keeper.neighbours.frames(name))
