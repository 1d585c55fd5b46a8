"""Soak: `python -m checks.soak --seconds 1800 --frames 1e9`; says what happened, exits with 1 if anything was wrong."""

from __future__ import annotations

import argparse
import queue
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from checks.soak.memory import Growth, resident_bytes
from checks.soak.world import SharedWorld, TreeWorld, WorkerProcess, World, leftovers
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import SwitchLost
from switchsum_switch.process.children import Children

SLOTS: Final = 128
KILLS: Final = 0.15
"""Share of the jobs in which a worker is killed."""
LATEST_KILL_S: Final = 5.0
MOST_ROUNDS: Final = 12
STUCK_S: Final = 300.0
"""A job that takes longer hangs: without progress its members would have given up long before."""
FEW_SLOTS: Final = 8
FEW_BLOCKS: Final = 200
"""What jobs with few slots add at most: each block costs them a round trip's share."""
SHARING: Final = 0.8
"""Share of the jobs that share slots, where jobs can."""
MOST_BLOCKS: Final = 4000
WARM_SHARE: Final = 1 / 3
"""Memory is compared with what it was after this share of the time, or a minute."""
WARM_JOBS: Final = 3
"""A worker's memory is compared with what it was after so many jobs: until then it meets larger arrays."""
MOST_GROWTH: Final = 0.05
SLACK_BYTES: Final = 2 << 20
"""Growth that is none: some pages that had not been touched before."""
FORGIVEN: Final = ("WorkerLost", "CollectiveTimeout", "NotAdmitted")
"""What members of a job may raise when one of them is killed."""


@dataclass(slots=True)
class Running:
    """A job on the switch."""

    name: str
    places: list[WorkerProcess]
    began_s: float
    kill_at_s: float = float("inf")
    reports: list[dict[str, Any]] = field(default_factory=list)
    killed: int = 0


class Soak:
    """Keeps jobs coming and going."""

    def __init__(self, world: World, client: ControllerClient, *, workers: int, seed: int, timeout_s: float) -> None:
        self._world = world
        self._client = client
        self._dice = random.Random(seed)
        self._timeout_s = timeout_s
        self._starting = [world.place(index) for index in range(workers)]
        self._free: list[WorkerProcess] = []
        self._running: dict[str, Running] = {}
        self._count = 0
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.growth: dict[str, Growth] = {}
        self.is_warm = False

    @property
    def frames(self) -> int:
        """Frames that workers have sent and received so far, as far as they have told."""
        return self.counts["frames sent"] + self.counts["frames received"]

    def step(self) -> None:
        """Begin what can begin, kill what is to be killed, and take one report."""
        self._begin()
        now = time.monotonic()
        for job in list(self._running.values()):
            if now >= job.kill_at_s:
                self._kill(job)
            if now - job.began_s > STUCK_S:
                self.problems.append(f"{job.name} hangs")
                job.began_s = float("inf")
                for place in job.places:
                    place.kill()
        self._listen(0.2)

    def finish(self) -> None:
        """Wait for the jobs that run, and end all workers."""
        end = time.monotonic() + STUCK_S
        while self._running and time.monotonic() < end:
            self._listen(0.5)
        self.problems += [f"{name} did not end" for name in self._running]
        for place in [*self._free, *self._starting, *(place for job in self._running.values() for place in job.places)]:
            if code := place.end():
                self.problems.append(f"a worker ended with exit code {code}")

    def watch(self) -> None:
        """Note how much memory everything has."""
        for name, child in self._world.daemons().items():
            self._note(name, resident_bytes(child.process.pid))

    def _note(self, name: str, count_bytes: int) -> None:
        if self.is_warm:
            self.growth.setdefault(name, Growth()).note(count_bytes)

    def _begin(self) -> None:
        """Let a job begin when enough places are free, so that several run beside each other."""
        size = self._dice.randint(2, 5)
        if len(self._free) < size:
            return
        self._dice.shuffle(self._free)
        places, self._free = self._free[:size], self._free[size:]
        self._count += 1
        job = Running(f"soak-{self._count}", places, time.monotonic())
        if self._dice.random() < KILLS:
            job.kill_at_s = job.began_s + self._dice.uniform(0, LATEST_KILL_S)
        shared = self._world.shared_slots
        shares = bool(shared) and self._dice.random() < SHARING
        slots = self._dice.choice((FEW_SLOTS, shared if shares else SLOTS))
        most = MOST_BLOCKS if slots == SLOTS else FEW_BLOCKS
        request = rpc.CreateJobRequest(
            job=job.name, workers=size, slots=slots, timeout_s=self._timeout_s, shares_slots=shares
        )
        try:
            self._client.create_job(request)
        except SwitchLost:  # one that was killed is not back yet
            self._free += places
            return
        seed, rounds = self._dice.getrandbits(31), self._dice.randint(1, MOST_ROUNDS)
        self._running[job.name] = job
        self.counts["jobs"] += 1
        self.counts["jobs that share slots"] += shares
        for rank, place in enumerate(places):
            place.order(
                job=job.name,
                rank=rank,
                size=size,
                seed=seed,
                rounds=rounds,
                most_blocks=most,
                timeout_s=self._timeout_s,
            )

    def _kill(self, job: Running) -> None:
        job.kill_at_s = float("inf")
        reported = {report["place"] for report in job.reports}
        working = [place for place in job.places if place.index not in reported]
        if working:
            self._dice.choice(working).kill()
            job.killed += 1
            self.counts["workers killed"] += 1

    def _listen(self, timeout_s: float) -> None:
        """Take a worker's report, or learn of its end."""
        try:
            place, report = self._world.reports.get(timeout=timeout_s)
        except queue.Empty:
            return
        job = next((job for job in self._running.values() if place in job.places), None)
        if report is not None and report["outcome"] == "ready":
            self._starting.remove(place)
            self._free.append(place)
        elif report is None:
            if not place.was_killed:
                if job is not None:
                    self.problems.append(f"a worker of {job.name} ended by itself")
                return
            place.end()
            self._note_report(job, place, {"outcome": "killed"})
        else:
            self._take(place, report)
            self._note_report(job, place, report)

    def _note_report(self, job: Running | None, place: WorkerProcess, report: dict[str, Any]) -> None:
        """Keep what became of one member; with the last one the job is over.

        A worker that was killed just after its report has reported: its end is no second report.  Else the job would be
        over before the others' reports, which would then count for their next job.
        """
        if job is not None and all(known["place"] != place.index for known in job.reports):
            job.reports.append(report | {"place": place.index})
            if len(job.reports) == len(job.places):
                self._end(job)

    def _take(self, place: WorkerProcess, report: dict[str, Any]) -> None:
        self.counts["frames sent"] += report["frames_sent"]
        self.counts["frames received"] += report["frames_received"]
        self.counts["sums checked"] += report["sums"]
        self.counts["rounds taken"] += report["taken"]
        self.counts["communicators formed anew"] += report["reformed"]
        place.jobs += 1
        if place.jobs > WARM_JOBS:
            self._note(f"worker {place.pid}", report["resident_bytes"])

    def _end(self, job: Running) -> None:
        """Judge a job, and free its places."""
        del self._running[job.name]
        done = [report for report in job.reports if report["outcome"] == "done"]
        for report in job.reports:
            outcome = report["outcome"]
            if outcome.startswith("wrong"):
                self.counts["wrong sums"] += 1
                self.problems.append(f"{job.name}: {outcome}")
            if outcome == "error":
                self.counts["errors reported"] += 1
                if not job.killed or report["error"] not in FORGIVEN:
                    self.problems.append(f"{job.name}: {report['error']}: {report['text']}")
        for reformed in (False, True):
            if len({report["digest"] for report in done if report["reformed"] is reformed}) > 1:
                self.counts["wrong sums"] += 1
                self.problems.append(f"{job.name}: ranks have different bits")
        self._client.remove_job(rpc.RemoveJobRequest(job=job.name, force=True))
        for place in job.places:
            if place.was_killed:
                self._starting.append(self._world.place(place.index))
            else:
                self._free.append(place)


def main() -> None:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m checks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--frames", type=float, default=0.0, help="go on until so many were sent and received")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--loss", type=float, default=0.01, help="probability for each frame and direction")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leaves", type=int, default=0, help="over a tree of so many leaves, which are killed, too")
    parser.add_argument("--shared", action="store_true", help="jobs share slots; switch and aggregator are killed, too")
    parser.add_argument("--pause", type=float, default=10.0, help="seconds from one death of a switch to the next")
    parser.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        help="of jobs, in seconds: more where a switch starts slowly",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="switchsum-soak-") as scratch, Children() as children:
        tree = TreeWorld(children, Path(scratch), options.leaves) if options.leaves else None
        tree = SharedWorld(children, Path(scratch)) if options.shared else tree
        world = tree or World(children, Path(scratch))
        with ControllerClient(world.controller) as client:
            client.set_loss(rpc.LossRequest(ingress=options.loss, egress=options.loss))
            soak = Soak(world, client, workers=options.workers, seed=options.seed, timeout_s=options.timeout)
            _run(soak, options.seconds, options.frames, Deaths(tree, options.seed, options.pause) if tree else None)
            soak.finish()
            lost = sum(c.packets for c in client.statistics().counters if c.reason.startswith("lost"))
    soak.problems += [f"left over: {what}" for what in leftovers(world.mark)]
    sys.exit(_judge(soak, lost))


class Deaths:
    """Kills switches now and then: a leaf or the aggregator, the root, or both."""

    def __init__(self, world: TreeWorld, seed: int, pause_s: float) -> None:
        self._world, self._dice, self._pause_s = world, random.Random(seed), pause_s
        self._next_s = time.monotonic() + pause_s

    def step(self, soak: Soak) -> None:
        """Kill what is to be killed now."""
        if time.monotonic() < self._next_s:
            return
        leaves = [name for name in self._world.switches if name != "root"]
        leaf = self._dice.choice(leaves)
        names = self._dice.choice(([leaf], ["root"], [leaf, "root"]))
        self._world.kill_switches(names)
        soak.counts["switches killed"] += len(names)
        self._next_s = time.monotonic() + self._pause_s


def _run(soak: Soak, seconds: float, frames: float, deaths: Deaths | None) -> None:
    began = time.monotonic()
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("soaking", total=seconds)
        while (passed := time.monotonic() - began) < seconds or soak.frames < frames:
            soak.is_warm = passed > min(60.0, seconds * WARM_SHARE)
            if deaths is not None:
                deaths.step(soak)
            soak.step()
            soak.watch()
            progress.update(task, completed=passed, description=f"{soak.counts['jobs']:,} jobs")


def _judge(soak: Soak, lost: int) -> int:
    """Print what happened; return the exit code."""
    table = Table("what", "count")
    table.columns[1].justify = "right"
    names = ("jobs", "sums checked", "frames sent", "frames received", "workers killed", "communicators formed anew")
    for name in (*names, "jobs that share slots", "rounds taken", "switches killed", "errors reported"):
        table.add_row(name, f"{soak.counts[name]:,}")
    table.add_row("frames lost on purpose", f"{lost:,}")
    table.add_row("wrong sums", f"{soak.counts['wrong sums']:,}")
    worst: dict[str, tuple[float, int]] = {}
    for name, growth in soak.growth.items():
        if growth.samples > 1:
            kind = name.partition(" ")[0]
            worst[kind] = max(worst.get(kind, (-1.0, 0)), (growth.ratio, growth.first_bytes))
            if growth.last_bytes > growth.first_bytes * (1 + MOST_GROWTH) + SLACK_BYTES:
                soak.problems.append(f"memory of {name} has grown by {growth.ratio:.1%}")
    for kind, (ratio, first_bytes) in sorted(worst.items()):
        table.add_row(f"memory of a {kind}, most growth", f"{first_bytes >> 20} MB, {ratio:+.1%}")
    Console(width=100).print(table)
    for problem in soak.problems:
        print(f"PROBLEM: {problem}")
    return 1 if soak.problems or not soak.counts["sums checked"] else 0


if __name__ == "__main__":
    main()
