"""Jobs of several ranks, each peer's started as its users start it, on one machine or on a star of limited links."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from checks.bench.allreduce_worker import Run
from checks.bench.turns import play
from switchsum.laboratory.star import UNLIMITED
from switchsum.launch.options import MTU

LINE_MTU = {128: 1500, 256: 1500, 2048: 9000}
"""MTU of the links on which a lane build is measured, and everybody beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is measured: who, how many, on what."""

    peer: str
    """A key of `switchsum.laboratory.peers.PEERS`, or `tcp`: one stream between two ranks."""
    workers: int
    sizes: tuple[int, ...]
    """Bytes of the arrays."""
    runs: int
    lanes: int | None = None
    """Of switchsum, None: its default; of the others it chooses the links' MTU."""
    rate: str | None = None
    """Of every link and direction, as for tc; None: one machine, nothing limited."""
    options: tuple[str, ...] = ()
    """Further ones of `switchsum run`."""

    @property
    def mtu(self) -> int:
        """Longest packet of the links."""
        return LINE_MTU[self.lanes or 256]


def worker_command(job: Job, path: Path) -> list[str]:
    """Return the command of one rank."""
    return [sys.executable, "-m", "checks.bench.allreduce_worker", job.peer, str(path)]


def is_there(peer: str) -> bool:
    """Tell whether a peer is installed here."""
    match peer:
        case "gloo":
            return importlib.util.find_spec("torch") is not None
        case "openmpi":
            return shutil.which("mpirun") is not None
    return True


def command(job: Job, path: Path) -> list[str]:
    """Return the command of a job whose ranks wait for their turns at the socket `path`."""
    ranks = worker_command(job, path)
    if job.peer.startswith("switchsum"):
        return [*_launch(job), "--", *ranks]
    if job.rate is not None or job.peer == "gloo":
        return over_bridge(job.workers, job.rate or UNLIMITED, ranks, peer=job.peer, mtu=job.mtu)
    return ["mpirun", "--oversubscribe", *_as_root(), "-n", str(job.workers), *ranks]


def over_switch(workers: int, rate: str, rank: Sequence[str], *, mtu: int = MTU) -> list[str]:
    """Return the command of a job of ours with links of a rate, or without any, and else a user's defaults."""
    links = [] if rate == UNLIMITED else ["--links", "veth", "--rate", rate, "--mtu", str(mtu)]
    return [sys.executable, "-m", "switchsum", "run", "-n", str(workers), "--timeout", "60", *links, "--", *rank]


def over_bridge(workers: int, rate: str, rank: Sequence[str], *, peer: str = "gloo", mtu: int = MTU) -> list[str]:
    """Return the command of a peer's job over a bridge of the kernel and links of the same kind, or the loopback."""
    apart = [] if rate == UNLIMITED else ["unshare", "--net", "--"]
    return [*apart, sys.executable, "-m", "switchsum.laboratory.star", peer, str(workers), rate, str(mtu), *rank]


def measure(jobs: Mapping[str, Job]) -> dict[tuple[str, int], list[Run]]:
    """Run those jobs whose programs are installed, all at the same time and in turn; return the runs of each size."""
    there = {name: job for name, job in jobs.items() if is_there(job.peer)}
    plays = {name: (partial(command, job), job.workers, job.sizes) for name, job in there.items()}
    return play(plays, max((job.runs for job in there.values()), default=0))


def _launch(job: Job) -> list[str]:
    launch = [sys.executable, "-m", "switchsum", "run", "-n", str(job.workers)]
    if job.lanes is not None:
        launch += ["--lanes", str(job.lanes)]
    if job.rate is not None:
        launch += ["--links", "veth", "--rate", job.rate]
    return [*launch, *(job.options or ("--timeout", "60"))]


def _as_root() -> list[str]:
    return ["--allow-run-as-root"] if os.geteuid() == 0 else []
