"""Starts: `python -m checks.soak.starts --trials 200` kills and stops parts of a system while the ranks of a job join.

A root, two leaves, a controller and one that stands by are processes, and so are four ranks.  In each trial all ranks
join a job, at moments that the dice choose, and add one array.  Meanwhile one part is killed with SIGKILL, or stopped
with SIGSTOP for a while: between the first `connect()` and the first sum, wherever that finds it.  What was killed is
started again.  A trial is well if every rank has right sums, or if all that live raise the same named error within the
stated time.  Ranks whose fellow is killed after the job was complete go on without it (`reform`).  Prints what came of
the trials; the exit code is 1 if one was not well.
"""

from __future__ import annotations

import argparse
import queue
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from checks.soak.world import TreeWorld, WorkerProcess, leftovers
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import ControllerUnreachable, SwitchLost
from switchsum_switch.process.children import OURSELVES, Child, Children

RANKS: Final = 4
LEAVES: Final = 2
FIRST_S: Final = 0.4
"""The ranks begin to join within this time, and something happens within twice that."""
LONGEST_S: Final = 1.5
"""What was killed is started again after this at the latest, what was stopped goes on."""
TIMEOUT_S: Final = 30.0
"""Of a job in which everything comes back."""
SHORT_TIMEOUT_S: Final = 4.0
"""Of a job in which a rank is killed and does not come back: the others wait for it as long as that."""
STATED_S: Final = 30.0
"""How much longer than the job's time-out it may take until the last rank has told its end: a switch that is away has
20 s, which may pass before the wait for the ranks begins, and parts that start need processor time."""
BACK_S: Final = 120.0
"""How long all parts may take to be there again after a trial."""
SWITCH_TIMEOUT_S: Final = 20.0
BLOCKS: Final = 8
RIGHT: Final = "right sums"


class StartWorld(TreeWorld):
    """A tree with a controller and one that stands by."""

    def __init__(self, children: Children, scratch: Path) -> None:
        super().__init__(children, scratch, LEAVES)
        self.controller_child.may_end = True
        self._spare: Child | None = None
        self.have_spare()

    def link(self, index: int) -> str:
        """Return the link of a place: two ranks at each leaf, one of which uses UDP."""
        leaf = self._names[1 + index % LEAVES]
        if index < LEAVES:
            return f"shm:{self._scratch}/{leaf}.shm"
        return f"udp:{self._commands[leaf][self._commands[leaf].index('--udp') + 1]}"

    def have_spare(self) -> None:
        """Start a controller that stands by, unless there is one."""
        if self._spare is None or self._spare.process.poll() is not None:
            command = [*OURSELVES, "controller", "--listen", self.controller, "--standby"]
            self._spare = self._children.start(
                "standby", [*command, "--fleet", f"{self._scratch}/fleet.json"], quiet=True, may_end=True
            )

    def parts(self) -> dict[str, subprocess.Popen[bytes]]:
        """Return the processes that may be killed, by name."""
        assert self._spare is not None
        switches = {name: child.process for name, child in self.switches.items()}
        return {**switches, "controller": self.controller_child.process, "standby": self._spare.process}

    def bring_back(self, name: str) -> None:
        """Start what was killed; the one that stands by has taken the controller's place by itself."""
        if name in self.switches:
            self.kill_switches([name])
        elif name == "controller":
            assert self._spare is not None
            self.controller_child, self._spare = self._spare, None
        self.have_spare()

    def is_settled(self, client: ControllerClient) -> bool:
        """Return whether the controller has all switches, and they have all that they should have."""
        try:
            return all(one.state == "settled" for one in client.switches().switches)
        except (ControllerUnreachable, SwitchLost):
            return False


@dataclass(slots=True)
class Trial:
    """What one start came to."""

    number: int
    part: str
    """What it happened to: a name of `StartWorld.parts`, or a rank."""
    act: str
    """`kill` or `stop`."""
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def outcomes(self) -> set[str]:
        """What the ranks say that live."""
        return {outcome_of(report) for report in self.reports.values()}

    @property
    def kills_rank(self) -> bool:
        """Whether a rank does not come back."""
        return self.part.startswith("rank") and self.act == "kill"

    def problem(self, lived: int, stated_s: float) -> str:
        """Say what is not well; empty where all is."""
        outcomes = self.outcomes
        if len(self.reports) < lived:
            return f"{lived - len(self.reports)} ranks hang"
        if self.seconds > stated_s:
            return f"took {self.seconds:.1f} s, and {stated_s:g} are stated"
        if self.kills_rank:
            outcomes.discard(RIGHT)  # of a rank that was done when the other one was killed
            allowed = {"CollectiveTimeout", f"{RIGHT} without one"}
        else:
            allowed = {RIGHT}
        if not outcomes <= allowed:
            return "what has happened does not explain that"
        return "not the same on all ranks" if len(outcomes) > 1 else ""


def outcome_of(report: dict[str, Any]) -> str:
    """Say in a few words what a rank tells."""
    if report["outcome"] != "done":
        return str(report.get("error", report["outcome"]))
    return f"{RIGHT} without one" if report["reformed"] else RIGHT


class Starts:
    """Runs trials, one after the other."""

    def __init__(self, world: StartWorld, *, seed: int, patience: float = 1.0) -> None:
        """Multiply time-outs by `patience`, on a machine that does other things as well."""
        self._world = world
        self._dice = random.Random(seed)
        self._patience = patience
        self._places = [world.place(index) for index in range(RANKS)]
        self._await_ready(RANKS)
        self.trials: list[Trial] = []
        self.problems: list[str] = []

    def run(self, number: int, injury: tuple[str, str] | None = None) -> Trial:
        """Run one trial; `injury` is the part and the act, which the dice choose otherwise."""
        dice, world = self._dice, self._world
        names = [*world.parts(), *(f"rank {rank}" for rank in range(RANKS))]
        trial = Trial(number, *(injury or (dice.choice(names), dice.choice(("kill", "kill", "stop")))))
        timeout_s = self._patience * (SHORT_TIMEOUT_S if trial.kills_rank else TIMEOUT_S)
        job = f"start-{number}"
        with ControllerClient(world.controller, waits=True) as client:
            client.create_job(rpc.CreateJobRequest(job=job, workers=RANKS, slots=8, timeout_s=timeout_s))
        order: dict[str, Any] = {"job": job, "size": RANKS, "seed": number, "rounds": 1, "most_blocks": BLOCKS}
        order["timeout_s"] = min(timeout_s, self._patience * SWITCH_TIMEOUT_S)
        began = time.monotonic()
        acts: list[tuple[float, Callable[[], object]]] = [
            (began + dice.random() * FIRST_S, partial(self._send_to, place, {**order, "rank": rank}))
            for rank, place in enumerate(self._places)
        ]
        at = began + dice.random() * 2 * FIRST_S
        acts += self._injury(trial, at)
        for when, act in sorted(acts, key=lambda one: one[0]):
            time.sleep(max(0.0, when - time.monotonic()))
            act()
        self._collect(trial, timeout_s + STATED_S * self._patience, began)
        self._tidy(job)
        return trial

    def _send_to(self, place: WorkerProcess, order: dict[str, Any]) -> None:
        """Have a rank join, unless it was killed before its turn."""
        if not place.was_killed:
            place.order(**order)

    def _injury(self, trial: Trial, at: float) -> list[tuple[float, Callable[[], object]]]:
        """Return what happens to a part, and what makes it good, each with its time."""
        dice, world = self._dice, self._world
        process: subprocess.Popen[Any]
        if trial.part.startswith("rank"):
            place = self._places[int(trial.part.split()[1])]
            if trial.act == "kill":
                return [(at, place.kill)]
            process = place.process
        else:
            process = world.parts()[trial.part]
        back = at + dice.random() * LONGEST_S
        if trial.act == "kill":
            return [(at, process.kill), (back, lambda: self._bring_back(trial.part, process))]
        return [
            (at, lambda: process.send_signal(signal.SIGSTOP)),
            (back, lambda: process.send_signal(signal.SIGCONT)),
        ]

    def _bring_back(self, name: str, process: subprocess.Popen[Any]) -> None:
        process.wait()
        self._world.bring_back(name)

    def _collect(self, trial: Trial, stated_s: float, began: float) -> None:
        """Take what the ranks tell, and judge it."""
        killed = {place.index for place in self._places if place.was_killed}
        while len(trial.reports) < RANKS - len(killed) and time.monotonic() < began + stated_s + STATED_S:
            try:
                place, report = self._world.reports.get(timeout=1.0)
            except queue.Empty:
                continue
            if report is not None and place.index not in killed:
                trial.reports[place.index] = report
            elif report is None and place.index not in killed:
                trial.reports[place.index] = {"outcome": "foreign: the process ended"}
        trial.seconds = time.monotonic() - began
        self.trials.append(trial)
        if problem := trial.problem(RANKS - len(killed), stated_s):
            reports = "; ".join(f"rank {rank}: {report}" for rank, report in sorted(trial.reports.items()))
            self.problems.append(f"trial {trial.number}, {trial.act} {trial.part}: {problem} ({reports})")

    def _tidy(self, job: str) -> None:
        """Have everything there again for the next trial."""
        waiting = 0
        for place in self._places:
            if place.was_killed or place.index not in self.trials[-1].reports:
                place.kill()
                place.end()
                self._places[place.index] = self._world.place(place.index)
                waiting += 1
        self._await_ready(waiting)
        self._world.have_spare()
        end = time.monotonic() + BACK_S * self._patience
        with ControllerClient(self._world.controller, waits=True) as client:
            while not self._world.is_settled(client):
                if time.monotonic() > end:
                    raise TimeoutError("switches and controller have not come to terms again")
                time.sleep(0.05)
            client.remove_job(rpc.RemoveJobRequest(job=job, force=True))

    def _await_ready(self, count: int) -> None:
        while count:
            _, report = self._world.reports.get(timeout=BACK_S * self._patience)
            count -= report is not None and report["outcome"] == "ready"

    def finish(self) -> None:
        """End the ranks."""
        for place in self._places:
            if code := place.end():
                self.problems.append(f"a rank ended with exit code {code}")


def main() -> None:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m checks.soak.starts", description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=1.0, help="time-outs are so many times as long")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="switchsum-starts-") as scratch, Children() as children:
        world = StartWorld(children, Path(scratch))
        starts = Starts(world, seed=options.seed, patience=options.patience)
        for number in range(options.trials):
            trial = starts.run(number)
            print(
                f"{number}: {trial.act} {trial.part}: {' | '.join(sorted(trial.outcomes))}, {trial.seconds:.1f} s",
                flush=True,
            )
        starts.finish()
    starts.problems += [f"left over: {what}" for what in leftovers(world.mark)]
    sys.exit(judge(starts))


def judge(starts: Starts) -> int:
    """Print what came of the trials; return the exit code."""
    table = Table("part", "act", "trials", RIGHT, "else", "longest")
    for column in table.columns[2:]:
        column.justify = "right"
    kinds = sorted({(trial.part.split()[0].rstrip("01234"), trial.act) for trial in starts.trials})
    for part, act in kinds:
        of_kind = [one for one in starts.trials if one.part.startswith(part) and one.act == act]
        outcomes = Counter(" | ".join(sorted(one.outcomes)) for one in of_kind)
        others = [f"{name} {count}" for name, count in sorted(outcomes.items()) if name != RIGHT]
        longest = f"{max(one.seconds for one in of_kind):.1f} s"
        table.add_row(part, act, str(len(of_kind)), str(outcomes[RIGHT]), ", ".join(others), longest)
    Console(width=120).print(table)
    for problem in starts.problems:
        print(f"PROBLEM: {problem}")
    return 1 if starts.problems or not starts.trials else 0


if __name__ == "__main__":
    main()
