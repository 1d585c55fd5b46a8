"""Jobs of several ranks, each peer's started as its users start it, on one machine or on a star of limited links."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checks.bench.allreduce_worker import Run
from checks.bench.records import Samples

LINE_MTU = {128: 1500, 256: 1500, 2048: 9000}
"""MTU of the links on which a lane build is measured, and everybody beside it."""
UNLIMITED = "unlimited"
"""In place of a rate: the loopback, and no links."""
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is measured: who, how many, on what."""

    peer: str
    """A key of `bench.backends.PEERS`, or `tcp`: one stream between two ranks."""
    workers: int
    sizes: tuple[int, ...]
    """Bytes of the arrays."""
    runs: int
    lanes: int = 256
    """Of switchsum; of the others it chooses the links' MTU."""
    rate: str | None = None
    """Of every link and direction, as for tc; None: one machine, nothing limited."""
    options: tuple[str, ...] = ()
    """Further ones of `switchsum run`."""

    @property
    def mtu(self) -> int:
        """Longest packet of the links."""
        return LINE_MTU[self.lanes]


def worker_command(job: Job, path: Path) -> list[str]:
    """Return the command of one rank."""
    sizes = ",".join(map(str, job.sizes))
    return [sys.executable, "-m", "checks.bench.allreduce_worker", job.peer, sizes, str(job.runs), str(path)]


def is_there(peer: str) -> bool:
    """Tell whether a peer is installed here."""
    match peer:
        case "gloo":
            return importlib.util.find_spec("torch") is not None
        case "openmpi":
            return shutil.which("mpirun") is not None
    return True


def run(job: Job) -> dict[int, list[Run]]:
    """Run a job to its end; return what each run of each size took."""
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        path = Path(scratch, "runs.json")
        if job.peer.startswith("switchsum"):
            command = _launched(job, path)
        elif job.rate is not None or job.peer == "gloo":
            apart = ["unshare", "--net", "--"] if job.rate is not None else []
            command = [*apart, sys.executable, "-m", "checks.bench.star", *_star_arguments(job, path)]
        else:
            command = ["mpirun", "--oversubscribe", *_as_root(), "-n", str(job.workers), *worker_command(job, path)]
        subprocess.run(command, check=True, timeout=TIMEOUT_S, start_new_session=True)
        return _read(job, path)


def _read(job: Job, path: Path) -> dict[int, list[Run]]:
    taken = json.loads(path.read_text())
    return {size: [Run(**run) for run in runs] for size, runs in zip(job.sizes, taken, strict=True)}


def _launched(job: Job, path: Path) -> list[str]:
    launch = [sys.executable, "-m", "switchsum", "run", "-n", str(job.workers), "--lanes", str(job.lanes)]
    if job.rate is not None:
        launch += ["--links", "veth", "--rate", job.rate]
    return [*launch, *(job.options or ("--timeout", "60")), "--", *worker_command(job, path)]


def _star_arguments(job: Job, path: Path) -> list[str]:
    sizes = ",".join(map(str, job.sizes))
    return [job.peer, str(job.workers), job.rate or UNLIMITED, str(job.mtu), sizes, str(job.runs), str(path)]


def _as_root() -> list[str]:
    return ["--allow-run-as-root"] if os.geteuid() == 0 else []


def switchsum_seconds(
    lanes: int, size_bytes: int, *, workers: int = 4, runs: int = 5, options: Sequence[str] = ()
) -> list[float]:
    """Run one size under `switchsum run`; returns the seconds of each run."""
    job = Job(peer="switchsum", workers=workers, sizes=(size_bytes,), runs=runs, lanes=lanes, options=tuple(options))
    return [one.seconds for one in run(job)[size_bytes]]


def rates(seconds: Sequence[float], size_bytes: int) -> Samples:
    """Turn seconds into MB/s per worker."""
    return Samples(values=[size_bytes / second / 1e6 for second in seconds])
