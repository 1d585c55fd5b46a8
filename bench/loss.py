"""What loss costs: allreduces with 1 % of all frames lost on the way up and again on the way down, beside none lost."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.records import Record, Samples, record

WORKERS = 4
SIZE_BYTES = 100_000_000
PAIRS = 7
LOSS = 0.01
LANES = (256, 2048)


def stretches(lanes: int, size_bytes: int = SIZE_BYTES, workers: int = WORKERS, pairs: int = PAIRS) -> list[float]:
    """Run pairs of allreduces in one job, with and without loss in turn; returns how much longer the first took."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "seconds.json")
        launch = [sys.executable, "-m", "switchsum", "run", "-n", str(workers), "--lanes", str(lanes), "--"]
        measured = [sys.executable, "-m", "bench.loss_worker", str(size_bytes), str(pairs), str(LOSS), str(path)]
        subprocess.run([*launch, *measured], check=True)
        return [lossy / whole for whole, lossy in json.loads(path.read_text())]


def run() -> list[Record]:
    """Measure every lane build."""
    conditions = (
        f"{WORKERS} worker processes and the switch on one machine, shared memory, float32, {SIZE_BYTES:,} bytes, "
        f"{LOSS:.0%} lost at ingress and {LOSS:.0%} at egress, {PAIRS} pairs of runs in one job"
    )
    return [
        record(
            f"loss.stretch.{WORKERS}workers.{lanes}",
            Samples(values=stretches(lanes)),
            "times the loss-free time",
            f"{conditions}, {lanes} lanes",
        )
        for lanes in LANES
    ]
