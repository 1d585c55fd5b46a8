"""What loss costs, on the way up and again on the way down, beside none; and what recovery costs without loss."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from checks.bench.records import Record, Samples, record

WORKERS = 4
SIZE_BYTES = 100_000_000
TURNS = 15
RECOVERY_BYTES = 20_000_000
RECOVERY_PAIRS = 401
"""What is to be told apart is little: many short pairs."""
LOSSES = (0.001, 0.01, 0.05)
"""Shares of frames."""
LANES = (256, 2048)


def job(worker: str, lanes: int, size_bytes: int, *arguments: object) -> list[list[float]]:
    """Run a job whose ranks are the module `worker`; returns what rank 0 wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "figures.json")
        launch = [sys.executable, "-m", "switchsum", "run", "-n", str(WORKERS), "--lanes", str(lanes), "--"]
        measured = [sys.executable, "-m", f"checks.bench.{worker}", str(size_bytes), *map(str, arguments), str(path)]
        subprocess.run([*launch, *measured], check=True)
        figures: list[list[float]] = json.loads(path.read_text())
        return figures


def run() -> list[Record]:
    """Measure every lane build."""
    return [made for lanes in LANES for made in (*stretch(lanes), *recovery(lanes))]


def _conditions(lanes: int, size_bytes: int, text: str) -> str:
    where = f"{WORKERS} worker processes and the switch on one machine, shared memory, float32"
    return f"{where}, {size_bytes:,} bytes, {text}, {lanes} lanes"


def stretch(lanes: int) -> Iterator[Record]:
    """Measure how many times the loss-free time it takes."""
    shares = ",".join(str(share) for share in (0.0, *LOSSES))
    turns = job("loss_worker", lanes, SIZE_BYTES, TURNS, shares)
    for number, share in enumerate(LOSSES, start=1):
        lossy = f"{share:.1%} lost at ingress and {share:.1%} at egress, {TURNS} runs in turn with others in one job"
        yield record(
            f"loss.stretch.{1000 * share:.0f}permille.{WORKERS}workers.{lanes}",
            Samples(values=[turn[number] / turn[0] for turn in turns]),
            "times the loss-free time",
            _conditions(lanes, SIZE_BYTES, lossy),
        )


def recovery(lanes: int) -> Iterator[Record]:
    """Measure time and processor time over what they are without recovery."""
    costs = job("recovery_worker", lanes, RECOVERY_BYTES, RECOVERY_PAIRS)
    pairs = f"nothing lost, {RECOVERY_PAIRS} pairs of runs in one job, with recovery and compiled without it in turn"
    for name, unit, values in zip(("time", "cpu"), ("time", "processor time"), zip(*costs, strict=True), strict=True):
        samples = Samples(values=list(values))
        cost = record(
            f"loss.recovery.{name}.{WORKERS}workers.{lanes}",
            samples,
            f"times the {unit} without recovery",
            _conditions(lanes, RECOVERY_BYTES, pairs),
        )
        low, high = samples.interval
        yield dataclasses.replace(cost, more={"95 % from": low, "to": high})
