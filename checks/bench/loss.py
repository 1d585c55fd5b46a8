"""What loss costs, on the way up and again on the way down, beside none; and what recovery costs without loss."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from checks.bench import swept
from checks.bench.choice import Choice
from checks.bench.records import Record, Samples, record

WORKERS = 4
TURNS = 15
RECOVERY_BYTES = 20_000_000
RECOVERY_PAIRS = 401
"""What is to be told apart is little: many short pairs."""
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
    return [*stretch(), *(made for lanes in LANES for made in recovery(lanes))]


def _conditions(lanes: int, size_bytes: int, text: str) -> str:
    where = f"{WORKERS} worker processes and the switch on one machine, shared memory, float32"
    return f"{where}, {size_bytes:,} bytes, {text}, {lanes} lanes"


def stretch() -> Iterator[Record]:
    """Measure how many times the loss-free time it takes."""
    taken = swept.measure("loss", Choice(runs=TURNS))
    for cell, runs in taken.items():
        if not cell.loss:
            continue
        lossy = f"{cell.loss:.1%} lost at ingress and {cell.loss:.1%} at egress"
        free = taken[dataclasses.replace(cell, loss=0.0)]
        yield record(
            f"loss.stretch.{1000 * cell.loss:.0f}permille.{cell.workers}workers.{cell.lanes}",
            Samples(values=[one.seconds / other.seconds for one, other in zip(runs, free, strict=True)]),
            "times the loss-free time",
            _conditions(swept.lanes_of(cell), cell.bytes, f"{lossy}, {len(runs)} runs in turn with others in one job"),
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
