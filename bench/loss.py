"""What loss costs: 1 % on the way up and again on the way down, beside none; and what recovery costs without loss."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.records import Record, Samples, record

WORKERS = 4
SIZE_BYTES = 100_000_000
PAIRS = 15
RECOVERY_BYTES = 20_000_000
RECOVERY_PAIRS = 401
"""What is to be told apart is little: many short pairs."""
LOSS = 0.01
LANES = (256, 2048)


def job(worker: str, lanes: int, size_bytes: int, *arguments: object) -> list[list[float]]:
    """Run a job whose ranks are the module `worker`; returns what rank 0 wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "figures.json")
        launch = [sys.executable, "-m", "switchsum", "run", "-n", str(WORKERS), "--lanes", str(lanes), "--"]
        measured = [sys.executable, "-m", f"bench.{worker}", str(size_bytes), *map(str, arguments), str(path)]
        subprocess.run([*launch, *measured], check=True)
        figures: list[list[float]] = json.loads(path.read_text())
        return figures


def run() -> list[Record]:
    """Measure every lane build."""
    where = f"{WORKERS} worker processes and the switch on one machine, shared memory, float32"
    lossy = (
        f"{SIZE_BYTES:,} bytes, {LOSS:.0%} lost at ingress and {LOSS:.0%} at egress, {PAIRS} pairs of runs in one job"
    )
    pairs_of = f"{RECOVERY_PAIRS} pairs of runs in one job, with recovery and compiled without it in turn"
    whole = f"{RECOVERY_BYTES:,} bytes, nothing lost, {pairs_of}"
    records = []
    for lanes in LANES:
        pairs = job("loss_worker", lanes, SIZE_BYTES, PAIRS, LOSS)
        stretch = Samples(values=[with_loss / without for without, with_loss in pairs])
        records.append(
            record(
                f"loss.stretch.{WORKERS}workers.{lanes}",
                stretch,
                "times the loss-free time",
                f"{where}, {lossy}, {lanes} lanes",
            )
        )
        costs = job("recovery_worker", lanes, RECOVERY_BYTES, RECOVERY_PAIRS)
        for name, unit, values in zip(
            ("time", "cpu"), ("time", "processor time"), zip(*costs, strict=True), strict=True
        ):
            samples = Samples(values=list(values))
            cost = record(
                f"loss.recovery.{name}.{WORKERS}workers.{lanes}",
                samples,
                f"times the {unit} without recovery",
                f"{where}, {whole}, {lanes} lanes",
            )
            low, high = samples.interval
            records.append(dataclasses.replace(cost, more={"95 % from": low, "to": high}))
    return records
