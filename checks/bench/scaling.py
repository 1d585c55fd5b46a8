"""What more workers cost: the same array on the same links with 2 to 16 of them."""

from __future__ import annotations

import os
from dataclasses import replace

from checks.bench.choice import Choice
from checks.bench.compare import records
from checks.bench.jobs import Job, measure
from checks.bench.records import Record

RATE = "200mbit"
LANES = 2048
WORKERS = (2, 4, 8, 16)
SIZE_BYTES = 10_000_000
RUNS = 5
TAKES = ("workers", "runs")


def run(choice: Choice) -> list[Record]:
    """Measure each number of workers, beside gloo; nothing without root."""
    made: list[Record] = []
    for workers in (choice.workers or WORKERS) if os.geteuid() == 0 else ():
        ours = Job(peer="switchsum", workers=workers, sizes=(SIZE_BYTES,), runs=choice.runs, lanes=LANES, rate=RATE)
        jobs = {f"{LANES}": ours, "gloo": replace(ours, peer="gloo")}
        made += records(f"scaling.{RATE}", workers, measure(jobs), RATE)
    return made
