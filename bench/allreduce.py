"""Allreduce between worker processes on shared-memory links, beside torch's gloo on the same machine."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.records import Record, Samples, beside, record

WORKERS = 4
SIZE_BYTES = 100_000_000
RUNS = 5
LANES = (256, 2048)


def worker_command(backend: str, size_bytes: int, runs: int, path: Path) -> list[str]:
    """Return the command of one rank."""
    return [sys.executable, "-m", "bench.allreduce_worker", backend, str(size_bytes), str(runs), str(path)]


def switchsum_seconds(
    lanes: int,
    size_bytes: int = SIZE_BYTES,
    workers: int = WORKERS,
    runs: int = RUNS,
    options: Sequence[str] = (),
) -> list[float]:
    """Run the job under the launcher, with further `options` of its; returns the seconds of each run."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "seconds.json")
        launch = [sys.executable, "-m", "switchsum", "run", "-n", str(workers), "--lanes", str(lanes)]
        subprocess.run([*launch, *options, "--", *worker_command("switchsum", size_bytes, runs, path)], check=True)
        return [float(value) for value in json.loads(path.read_text())]


def gloo_seconds(size_bytes: int = SIZE_BYTES, workers: int = WORKERS, runs: int = RUNS) -> list[float]:
    """Run the same ranks over gloo on loopback; returns the seconds of each run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "seconds.json")
        common = {"WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        common |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        command = worker_command("gloo", size_bytes, runs, path)
        ranks = [subprocess.Popen(command, env={**os.environ, **common, "RANK": str(rank)}) for rank in range(workers)]
        try:
            codes = [rank.wait(timeout=300) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(codes):
            raise RuntimeError(f"gloo ranks ended with {codes}")
        return [float(value) for value in json.loads(path.read_text())]


def rates(seconds: list[float], size_bytes: int) -> Samples:
    """Turn seconds into MB/s per worker."""
    return Samples(values=[size_bytes / second / 1e6 for second in seconds])


def run() -> list[Record]:
    """Measure every lane build; gloo runs beside them where torch is installed."""
    conditions = f"{WORKERS} worker processes and the switch on one machine, float32, {SIZE_BYTES:,} bytes, {RUNS} runs"
    gloo = rates(gloo_seconds(), SIZE_BYTES) if importlib.util.find_spec("torch") else None
    records = []
    for lanes in LANES:
        ours = rates(switchsum_seconds(lanes), SIZE_BYTES)
        alone = record(
            f"allreduce.shm.100MB.{WORKERS}workers.{lanes}", ours, "MB/s per worker", f"{conditions}, {lanes} lanes"
        )
        records.append(alone if gloo is None else beside(alone, "gloo", gloo))
    return records
