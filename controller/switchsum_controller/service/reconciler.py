"""The reconciler: what the jobs of a controller should have on its switches, and how it gets there.

It owns the lock, the clock, the jobs, the switches and the settings.  The jobs are found on the switches (`rebuild`),
and what is planned for them is written (`plan`, `fleet`), also when some switches are away.  A job whose trees pass a
switch or a link that stays away goes over to others (`moves`, `rerouting`).

Three kinds of threads come here: `Upkeep.run` on the main thread, gRPC's threads with calls of members and users, and
the thread that reads P4Runtime's stream.  One lock, `changed`, guards everything; whoever calls a method of the
reconciler holds it.  The stream's thread must never wait for the lock, since a call that holds it may wait for the
stream.  So hellos, and the end of a connection, are queued as events, and `Upkeep.run` handles them, together with
time-outs.

After each change `bring_up_to_date` writes to the switches what has changed, and admits incarnations that are complete.
If a switch is away, or refuses something, that is logged, and `Upkeep.run` tries again.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from switchsum_protocol.errors import NotAdmitted, RemoteError, SwitchLost, UsageError
from switchsum_protocol.frame import FRAME_BYTES, Flag, payload_bytes
from switchsum_protocol.wire import Packet, nonce_from_fields
from switchsum_switch.messages.p4runtime import P4RuntimeError

from ..jobs.job import Job
from ..jobs.machines import Incarnation
from ..jobs.registry import Former, Jobs
from ..jobs.several_links import check_addresses, number_links
from ..plan.plan import Identity, Settings, branches_of, plan_all
from ..plan.rebuild import live_records, loads_of, merged, rebuild, view_of
from ..plan.windows import most_in_flight
from ..switches.connection import OUSTED_CODES, SwitchConnection
from ..switches.fleet import Fleet
from ..switches.neighbours import PERIOD_S, Neighbours
from ..switches.switch_session import Session
from ..trees import moves, rails
from ..trees.fabric import Fabric
from .config import Config
from .refusals import Refusals
from .rerouting import carry_out

log = logging.getLogger("switchsum.controller.service.reconciler")

SWITCH_WAIT_S: Final = 3.0
"""Seconds that a call waits for a switch that is not connected yet. The parts of a system start in any order."""


class Reconciler:
    """The jobs of one controller, and the switches that have them, behind one lock."""

    def __init__(
        self,
        config: Config,
        clock: Callable[[], float],
        *,
        sessions: Callable[[str], Session] | None = None,
        draw: Callable[[int], int] = secrets.randbits,
    ) -> None:
        """Make one without switches yet.

        `sessions` opens one with the switch of a name, over P4Runtime if nothing else is said; `draw` draws so many
        bits, for nonces, cookies and epochs.
        """
        self.config = config
        self.clock = clock
        self._draw = draw
        self.changed = threading.Condition()
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """Events that `Upkeep.run` handles with the lock held."""
        self.is_stopping = False
        self.refusals = Refusals()
        self.fabric = config.switches
        self.fleet = Fleet(
            {
                name: SwitchConnection(switch.p4runtime, partial(sessions or self._open_session, name))
                for name, switch in self.fabric.switches.items()
            }
        )
        self.neighbours = Neighbours(list(self.fabric.switches), secrets.token_bytes(32))
        self.loaded = 0
        """Number of switches that came without state of a controller, and of which members do not know yet. It is read
        from the switch: a controller that loads a program may end, or lose the switch, a moment later.
        """
        self.absences: moves.Absences[str] = moves.Absences()
        self.cuts: moves.Absences[rails.Pair] = moves.Absences(2 * PERIOD_S)
        """Links that are not found, although the switches at both ends are there."""
        self.awaited: set[str] = set()
        """Switches that are away, and for which running jobs wait: no other one can take their place."""
        self.is_joining_held_up = False
        """Ranks that join may wait for a switch that is away."""
        self.has_news = False
        """A switch has come, or is done without from now on, and the others may not know what follows from that."""
        self._forget()

    def _open_session(self, name: str) -> Session:
        config = self.config
        session = Session(
            config.program,
            self.fabric.switches[name].p4runtime,
            device_id=config.device_id,
            election_id=config.election_id,
            on_hello=lambda port, packet: self.events.put(partial(self._take_hello, name, port, packet)),
            on_lldp=lambda payload: self.events.put(partial(self._take_lldp, name, payload)),
            on_end=lambda error: self.events.put(partial(self._lose_session, name, session, error)),
        )
        return session

    def _forget(self) -> None:
        """Start without jobs; those on the switch are found when it is connected."""
        self.former: Former = {}
        config = self.config
        self.is_fresh = True
        self.jobs = self._make_jobs()
        self.fleet.without.clear()
        self._waits: dict[str, str] = {}
        """Reason why a job waits for a switch that stays away, by job, as members were told last."""
        self.settings = Settings(
            identity=Identity(address=config.address, growth_bytes=self.config.limits(self.fleet.limits).growth_bytes),
            stations=dict(config.stations),
            flood_ports=config.flood_ports,
        )

    def _make_jobs(self) -> Jobs:
        draw_nonce, draw_cookie, draw_epoch = (partial(self._draw, bits) for bits in (64, 64, 16))
        total_slots = self.config.program.total_slots
        return Jobs(
            total_slots, draw_nonce, draw_cookie, draw_epoch, self.fabric.most_workers, self.fabric.shared_slots
        )

    # --- what the switches have -----------------------------------------------------------------------------------

    def learn(self) -> None:
        """Find the jobs on the switches.

        Only a controller that has just been started believes the switches.  Later its own jobs are the truth.
        """
        self._believe(rebuild(merged(self.fleet.states()), self.jobs, self.settings, self.clock()))

    def _believe(self, problems: list[str]) -> None:
        for problem in problems:
            log.warning("removed from the switch: %s", problem)
        self.jobs.keep_former(self.former)
        # The controller before may have been killed when it had told only some of the switches of the last one.
        self.settings.loads = max(map(loads_of, self.fleet.states().values()), default=0)
        self.is_fresh = False
        known = {frozenset((name, far)) for name, ports in self.fabric.links().items() for far in ports}
        for job in self.jobs:
            # The links that were found this time, or those of another file, may not be those of the job's trees.
            if job.live is not None and not rails.links_of_job(self.fabric, job.live) <= known:
                self._begin_move(job, job.live, "a link that this controller does not have stays away")

    def _learn_from_some(self) -> bool:
        """Find the jobs although switches stay away; return whether the others have all that their records tell of."""
        state = merged(self.fleet.states())
        if view_of(state) < 0:
            return False
        problems = rebuild(state, self.jobs, self.settings, self.clock())
        if sum(job.live is not None for job in self.jobs) < live_records(state):
            self.jobs = self._make_jobs()
            return False
        self._believe(problems)
        self.settings.view += 1
        return True

    def note_absence(self, name: str, error: P4RuntimeError) -> None:
        """Note that a switch is away; whatever else is written meanwhile says that it is newer."""
        if error.code in OUSTED_CODES:  # it is there, and another controller's
            self.absences.end(name)
        elif self.absences.note(name, self.clock()) and len(self.fabric.switches) > 1 and not self.is_fresh:
            self.settings.view += 1

    def end_jobs_if_ousted(self) -> None:
        """End all memberships if another P4Runtime client has been primary.

        That client may have written what members take for sums.  The jobs are forgotten, and found again on the switch
        when the controller is primary again.
        """
        ousted = self.fleet.take_ousted()
        if not ousted or self.is_fresh:
            return
        error = SwitchLost(
            f"another P4Runtime client has become primary of the switch {ousted[0]}, and can write "
            "there what passes for sums: connect again when the controller has the switch back"
        )
        log.error("ended all %d jobs: %s", len(list(self.jobs)), error)
        former = self.jobs.end_all(error)
        self._forget()
        self.former = former
        self.changed.notify_all()

    # --- events -----------------------------------------------------------------------------------------------------

    def _lose_session(self, name: str, session: Session, error: P4RuntimeError) -> None:
        """Handle the end of the connection to a switch."""
        self.fleet.connections[name].detach(error, session)
        if not self.fleet.connections[name].is_up:
            self.note_absence(name, error)
        self.end_jobs_if_ousted()

    def _take_hello(self, name: str, port: int, packet: Packet) -> None:
        header = packet.header
        nonce = nonce_from_fields(header.number, header.digest)
        whole = bool(header.flags & Flag.PAYLOAD)
        now, link = self.clock(), header.link
        if self.jobs.hello(nonce, header.rank, packet.source, port, now, whole=whole, switch=name, link=link):
            size = "whole" if whole else "short"
            log.debug("received a %s hello of rank %d from %s on port %d", size, header.rank, packet.source, port)
        else:
            log.debug("ignored a hello from %s on port %d: no job waits for it", packet.source, port)  # a late copy

    def _take_lldp(self, name: str, payload: bytes) -> None:
        self.neighbours.hear(name, payload, self.clock())

    # --- what the switches should have --------------------------------------------------------------------------------

    def bring_up_to_date(self) -> None:
        """Bring the switch up to date and admit complete incarnations.

        Errors are logged, and `Upkeep.run` tries again.
        """
        try:
            # `synchronise` first removes entries of ended incarnations: nobody may write to cells that `_admit` reads.
            if self.fleet.is_up:
                self.synchronise()
                for job in list(self.jobs):
                    if job.is_complete:
                        self._admit(job)
            else:
                self.mend()
        except RemoteError as error:
            self.fleet.note(error)
        self.changed.notify_all()

    def synchronise(self, *, for_running: bool = False) -> None:
        """Write the difference between the plan and the switches; raises RemoteError.

        What is written `for_running` jobs alone does not wait for switches that none of them uses.
        """
        self._carry_out_moves()
        unused = self.connected_unused() if for_running else set[str]()
        self.fleet.change(plan_all(self.jobs, self.settings, self.fabric), unused)
        if for_running and unused & self.fleet.without:
            self._tell_without(unused & self.fleet.without)

    def mend(self) -> None:
        """Give the switches that are there what they lack while another one is away; no job is admitted meanwhile."""
        if self.is_fresh or len(self.fleet.away()) == len(self.fleet.connections):
            return
        self.count_loads()
        try:
            self._carry_out_moves()
        except RemoteError as error:
            self.fleet.note(error)
        else:
            self.fleet.mend(plan_all(self.jobs, self.settings, self.fabric))

    def count_loads(self) -> None:
        """Let members hear of switches that have come without their rounds, also while another one is away."""
        self.settings.loads += self.loaded
        self.loaded = 0

    def _admit(self, job: Job) -> None:
        """Make a complete incarnation live; if a switch refuses its entries, its members get the reason."""
        try:
            check_addresses(job.gathering)
            number_links(job, self.jobs.take_number)
            if len(self.fabric.switches) > 1:
                job.gathering.held_up = self._lay_out(job, job.gathering)
                if job.gathering.held_up:
                    return
            branches_of(job, job.gathering, self.settings, self.fabric)  # only tried: raises where there is no room
        except UsageError as error:  # nothing was written yet
            log.warning("job %s: %s", job.name, error)
            self.jobs.refuse(job, NotAdmitted(str(error)))
            return
        try:
            # Slots are read and cleared while no entry lets any frame into them: the old members are shut out, the new
            # ones not admitted yet.
            if job.fits_slots:
                self.jobs.fit(job, most_in_flight(job.gathering, *self.frame_limits))
            there = job.slots if job.shares_slots else None
            first_number = self.fleet.hand_over(job.reserved, there, self.fabric.fallback)
            self.fleet.clear_counts(job.group, job.workers)
            self.jobs.make_live(job, first_number)
            self.synchronise()
        except RemoteError as error:
            if self.fleet.is_up:  # otherwise it is done when the switch is back
                self.jobs.refuse(job, error)
            raise
        if job.live is not None:
            log.info(
                "job %s: epoch %d runs; its collectives have numbers from %d on",
                job.name,
                job.live.epoch,
                job.live.first_number,
            )

    def _lay_out(self, job: Job, gathering: Incarnation) -> str:
        """Give a complete incarnation its trees; return what it has to wait for where switches or links are away.

        Raises UsageError if there are no trees although all are there.
        """
        if job.shares_slots and self.fabric.fallback in self.fleet.without:
            refusal = self.fleet.connections[self.fabric.fallback].refusal
            why = f"cannot be used: {refusal}" if refusal else "does not answer"
            return f"switch {self.fabric.fallback}, the fallback of jobs that share slots, {why}"
        cut = self.cuts.long(self.clock())
        try:
            others = self._uses_beside(job)
            gathering.above = moves.trees_without(self.fabric, gathering, self.fleet.without, cut, others)
        except UsageError as error:
            if not (self.fleet.without or cut):
                raise
            return str(error)
        return ""

    def _uses_beside(self, job: Job) -> moves.Uses:
        """Return which links and roots other running jobs use."""
        return moves.Uses.of(self.fabric, (one.live for one in self.jobs if one is not job and one.live is not None))

    def away_of(self, live: Incarnation) -> list[str]:
        """Return the switches of a running job's trees that are away."""
        used = rails.switches_of_job(self.fabric, live)
        if any(job.live is live and job.shares_slots for job in self.jobs):
            used |= {self.fabric.fallback}
        return [name for name in self.fleet.away() if name in used]

    @property
    def frame_limits(self) -> tuple[int | None, int, Fabric]:
        """How many frames a port of a switch holds (None: no limit), how long they are, and the switches."""
        frame_bytes = FRAME_BYTES + payload_bytes(self.config.program.lanes_per_frame)
        return self.config.limits(self.fleet.limits).port_frames, frame_bytes, self.fabric

    def moving(self) -> list[tuple[Job, Incarnation]]:
        """Return the jobs that are on their way to other trees."""
        return [(job, job.live) for job in self.jobs if job.live is not None and job.live.is_moving]

    def _carry_out_moves(self) -> None:
        """Bring jobs to the trees that they have got; raises RemoteError, and then it has to be tried again."""
        if not (moving := self.moving()):
            return
        routes = [
            (rails.routes(self.fabric, job, live), branches_of(job, live, self.settings, self.fabric))
            for job, live in moving
        ]
        try:
            carry_out(self.fleet, plan_all(self.jobs, self.settings, self.fabric), routes)
        except SwitchLost:
            raise
        except RemoteError as error:  # a switch has no room, for one
            for job, _ in moving:
                self.jobs.refuse(job, error)
            raise
        for job, live in moving:
            live.is_moving = False
            log.info("job %s: goes on over its new trees", job.name)

    def do_without(self) -> None:
        """Begin to move jobs away from switches and links that stay away, and do without these switches.

        A job whose members are connected to one waits for it; all other jobs go on, and new ones begin.
        """
        stay, cut, away = self.absences.long(self.clock()), self.cuts.long(self.clock()), self.fleet.away()
        if not (stay or cut) or len(away) == len(self.fleet.connections):
            return
        if self.is_fresh and not self._learn_from_some():
            return
        used: set[str] = set()
        for job in self.jobs:
            if job.live is None:
                continue
            gone = sorted(stay & rails.switches_of_job(self.fabric, job.live))
            links = cut & rails.links_of_job(self.fabric, job.live)
            names = [*gone, *(f"the link from {' to '.join(sorted(pair))}" for pair in links)]
            if names:
                why = f"{' and '.join(names)} {'stay' if names[1:] else 'stays'} away"
                self._begin_move(job, job.live, why, gone)
            used |= rails.switches_of_job(self.fabric, job.live)
            used |= {self.fabric.fallback} if job.shares_slots else set()
        self.awaited = used & {*away}
        now = self.clock()
        self.is_joining_held_up = any(job.is_held_up(now) for job in self.jobs)
        more = stay - self.fleet.without
        for name in sorted(more):
            why = (
                "the jobs that need it wait, and all others"
                if name in used
                else "no running job needs it, and all jobs"
            )
            log.warning("switch %s does not answer: %s go on without it", name, why)
        self.fleet.without |= more
        self.has_news |= bool(more)

    def do_without_unused(self) -> None:
        """Do at once without switches that are away and that no running job uses.

        What is decided for a running job then need not wait for them; they get it when they are back.
        """
        away = {*self.fleet.away()}
        if (more := away - self._used() - self.fleet.without) and len(away) < len(self.fleet.connections):
            self.fleet.without |= more
            self._tell_without(more)

    def connected_unused(self) -> set[str]:
        """Return the switches that are connected and that no running job uses."""
        return {*self.fleet.connections} - self._used() - {*self.fleet.away()}

    def _used(self) -> set[str]:
        """Return the switches that running jobs use."""
        used = set[str]()
        for job in self.jobs:
            if job.live is not None:
                used |= rails.switches_of_job(self.fabric, job.live)
                used |= {self.fabric.fallback} if job.shares_slots else set()
        return used

    def _tell_without(self, names: Collection[str]) -> None:
        log.warning("switch %s does not answer: running jobs do not need it", ", ".join(sorted(names)))
        self.has_news = True

    def _begin_move(self, job: Job, live: Incarnation, why: str, gone: Sequence[str] = ()) -> None:
        try:
            cut = self.cuts.long(self.clock())
            move = moves.begin(self.fabric, live, self.fleet.away(), why, cut, self._uses_beside(job), gone)
        except UsageError as error:
            if self._waits.get(job.name) != str(error):
                self._waits[job.name] = str(error)
                log.warning("job %s waits: %s", job.name, error)
        else:
            self._waits.pop(job.name, None)
            log.warning("job %s moves: %s", job.name, move)

    # --- for callers --------------------------------------------------------------------------------------------------

    def need_switch(self) -> None:
        """Wait for the switch and its jobs for a short while if it is away or they are not read yet; raises SwitchLost.

        A switch counts as up a moment before its jobs are read (`Upkeep._connect`); an answer in between would not know
        them.
        """
        self.changed.wait_for(lambda: self.fleet.is_up and not self.is_fresh, SWITCH_WAIT_S)
        self.fleet.need()
        if self.is_fresh:
            raise SwitchLost("the switch answers, but the controller has not read its jobs yet: try again in a second")

    def need_some_switch(self, *, waits: bool = True) -> None:
        """Do as `need_switch` if all switches are away and it `waits`, or if the jobs are not read yet."""
        if self.is_fresh or (waits and len(self.fleet.away()) == len(self.fleet.connections)):
            self.need_switch()

    def need_jobs(self) -> None:
        """Wait for the switch for a short while if its jobs have not been read yet; raises SwitchLost."""
        if self.is_fresh:
            self.need_switch()
