"""What the jobs of a controller should have on its switches, and how it gets there, also when some of them are away.

The jobs are found on the switches (`rebuild`), and what is planned for them is written (`plan`, `fleet`).  A job whose
trees pass a switch or a link that stays away goes over to others (`moves`, `rerouting`).  All methods need the
controller's lock.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from functools import partial

from switchsum.protocol.errors import RemoteError, SwitchLost, UsageError
from switchsum.protocol.p4runtime import P4RuntimeError

from . import moves, rails
from .config import Config
from .connection import OUSTED_CODES, SwitchConnection
from .fleet import Fleet
from .job import Job
from .jobs import Former, Jobs
from .machines import Incarnation
from .neighbours import PERIOD_S, Neighbours
from .plan import Identity, Settings, branches_of, plan_all
from .rebuild import live_records, loads_of, merged, rebuild, view_of
from .rerouting import carry_out
from .switch import Switch

log = logging.getLogger(__name__)


class Keeping:
    """The jobs of one controller, and the switches that have them."""

    def __init__(self, config: Config, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._fabric = config.switches
        self._fleet = Fleet(
            {
                name: SwitchConnection(switch.p4runtime, partial(self._make_switch, name))
                for name, switch in self._fabric.switches.items()
            }
        )
        self._neighbours = Neighbours(list(self._fabric.switches), secrets.token_bytes(32))
        self._loaded = 0
        """How many switches have come without anything of a controller's, and members have not been told of it.

        That is read from the switch: a controller that loads a program may end, or lose the switch, a moment later."""
        self._absences: moves.Absences[str] = moves.Absences()
        self._cuts: moves.Absences[rails.Pair] = moves.Absences(2 * PERIOD_S)
        """Links that are not found, although the switches at both ends are there."""
        self._has_news = False
        """A switch has come, or is done without from now on, and the others may not know what follows from that."""
        self._forget()

    def _make_switch(self, name: str) -> Switch:
        raise NotImplementedError

    def _forget(self) -> None:
        """Start without jobs; those on the switch are found when it is connected."""
        self._former: Former = {}
        config = self._config
        self._is_fresh = True
        self._jobs = self._make_jobs()
        self._fleet.without.clear()
        self._waits: dict[str, str] = {}
        """By job, why it waits for a switch that stays away, as it was told last."""
        self._settings = Settings(
            identity=Identity(
                address=config.address, growth_bytes=self._config.limits(self._fleet.limits).growth_bytes
            ),
            stations=dict(config.stations),
            flood_ports=config.flood_ports,
        )

    def _make_jobs(self) -> Jobs:
        draw_nonce, draw_cookie, draw_epoch = (partial(secrets.randbits, bits) for bits in (64, 64, 16))
        total_slots = self._config.program.total_slots
        return Jobs(total_slots, draw_nonce, draw_cookie, draw_epoch, self._fabric.most_workers)

    def _learn(self) -> None:
        """Find the jobs on the switches.

        Only a controller that has just been started believes the switches.  Later its own jobs are the truth.
        """
        self._believe(rebuild(merged(self._fleet.states()), self._jobs, self._settings, self._clock()))

    def _believe(self, problems: list[str]) -> None:
        for problem in problems:
            log.warning("removed from the switch: %s", problem)
        self._jobs.keep_former(self._former)
        # The controller before may have been killed when it had told only some of the switches of the last one.
        self._settings.loads = max(map(loads_of, self._fleet.states().values()), default=0)
        self._is_fresh = False
        known = {frozenset((name, far)) for name, ports in self._fabric.links().items() for far in ports}
        for job in self._jobs:
            # The links that were found this time, or those of another file, may not be those of the job's trees.
            if job.live is not None and not rails.links_of_job(self._fabric, job.live) <= known:
                self._begin_move(job, job.live, "a link that this controller does not have stays away")

    def _learn_from_some(self) -> bool:
        """Find the jobs although switches stay away; return whether the others have all that their records tell of."""
        state = merged(self._fleet.states())
        if view_of(state) < 0:
            return False
        problems = rebuild(state, self._jobs, self._settings, self._clock())
        if sum(job.live is not None for job in self._jobs) < live_records(state):
            self._jobs = self._make_jobs()
            return False
        self._believe(problems)
        self._settings.view += 1
        return True

    def _note_absence(self, name: str, error: P4RuntimeError) -> None:
        if error.code in OUSTED_CODES:  # it is there, and another controller's
            self._absences.end(name)
        elif self._absences.note(name, self._clock()) and len(self._fabric.switches) > 1 and not self._is_fresh:
            self._settings.view += 1

    def _synchronise(self) -> None:
        """Write the difference between the plan and the switches; raises RemoteError."""
        self._carry_out_moves()
        self._fleet.change(plan_all(self._jobs, self._settings, self._fabric))

    def _mend(self) -> None:
        """Give the switches that are there what they lack while another one is away; no job is admitted meanwhile."""
        if self._is_fresh or len(self._fleet.away()) == len(self._fleet.connections):
            return
        self._count_loads()
        try:
            self._carry_out_moves()
        except RemoteError as error:
            self._fleet.note(error)
        else:
            self._fleet.mend(plan_all(self._jobs, self._settings, self._fabric))

    def _count_loads(self) -> None:
        """Let members hear of switches that have come without their rounds, also while another one is away."""
        self._settings.loads += self._loaded
        self._loaded = 0

    def _moving(self) -> list[tuple[Job, Incarnation]]:
        """Return the jobs that are on their way to other trees."""
        return [(job, job.live) for job in self._jobs if job.live is not None and job.live.is_moving]

    def _carry_out_moves(self) -> None:
        """Bring jobs to the trees that they have got; raises RemoteError, and then it has to be tried again."""
        if not (moving := self._moving()):
            return
        routes = [
            (rails.routes(self._fabric, job, live), branches_of(job, live, self._settings, self._fabric))
            for job, live in moving
        ]
        try:
            carry_out(self._fleet, plan_all(self._jobs, self._settings, self._fabric), routes)
        except SwitchLost:
            raise
        except RemoteError as error:  # a switch has no room, for one
            for job, _ in moving:
                self._jobs.refuse(job, error)
            raise
        for job, live in moving:
            live.is_moving = False
            log.info("job %s: goes on over its new trees", job.name)

    def _do_without(self) -> None:
        """Begin to move jobs away from switches and links that stay away, and do without switches that no job needs."""
        stay, cut, away = self._absences.long(self._clock()), self._cuts.long(self._clock()), self._fleet.away()
        if not (stay or cut) or len(away) == len(self._fleet.connections):
            return
        if self._is_fresh and not self._learn_from_some():
            return
        used: set[str] = set()
        for job in self._jobs:
            if job.live is None:
                continue
            gone = sorted(stay & rails.switches_of_job(self._fabric, job.live))
            gone += [
                f"the link from {' to '.join(sorted(pair))}"
                for pair in cut & rails.links_of_job(self._fabric, job.live)
            ]
            if gone:
                self._begin_move(job, job.live, f"{' and '.join(gone)} {'stay' if gone[1:] else 'stays'} away")
            used |= rails.switches_of_job(self._fabric, job.live)
        more = stay - used - self._fleet.without
        if more:
            log.warning("%s: away, and done without, since no running job needs it", " and ".join(sorted(more)))
        self._fleet.without |= more
        self._has_news |= bool(more)

    def _begin_move(self, job: Job, live: Incarnation, why: str) -> None:
        try:
            text = moves.begin(self._fabric, live, self._fleet.away(), why, self._cuts.long(self._clock()))
        except UsageError as error:
            if self._waits.get(job.name) != str(error):
                self._waits[job.name] = str(error)
                log.warning("job %s waits: %s", job.name, error)
        else:
            self._waits.pop(job.name, None)
            log.warning("job %s moves: %s", job.name, text)
