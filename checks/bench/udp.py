"""Allreduce over ordinary UDP sockets on the loopback, the way without root: the embedded switch alone."""

from __future__ import annotations

from dataclasses import replace

from checks.bench.choice import Choice
from checks.bench.compare import records
from checks.bench.jobs import Job, measure
from checks.bench.records import Record

LANES = (256, 2048)
SIZES = (20_000_000,)
WORKERS = (4,)
OPTIONS = ("--links", "udp", "--timeout", "60")
TAKES = ("workers", "sizes", "lanes", "runs")


def run(choice: Choice) -> list[Record]:
    """Measure each number of workers and lane build."""
    made: list[Record] = []
    for workers in choice.workers or WORKERS:
        sizes = tuple(sorted(choice.sizes or SIZES))
        ours = Job(peer="switchsum", workers=workers, sizes=sizes, runs=choice.runs, options=OPTIONS)
        jobs = {f"{lanes}": replace(ours, lanes=lanes) for lanes in choice.lanes or LANES}
        made += records("allreduce.udp", workers, measure(jobs))
    return made
