"""Allreduce on one machine, nothing limited: shared-memory links beside gloo over the loopback and Open MPI."""

from __future__ import annotations

from dataclasses import replace

from checks.bench.choice import Choice
from checks.bench.compare import OTHERS, records
from checks.bench.jobs import Job, measure
from checks.bench.records import Record

WORKERS = (2, 4, 8, 16)
LANES = (256, 2048)
SIZES = (4, 100_000, 1_000_000, 10_000_000, 100_000_000)
LARGEST = 500_000_000
"""Only with as many workers as `LARGEST_WORKERS`: each has an array of that."""
LARGEST_WORKERS = 4
INT16_BYTES = 100_000_000
"""Lanes of 16 bits are measured with as many workers, and the largest array up to this."""
TAKES = ("workers", "sizes", "lanes", "peers", "runs")


def run(choice: Choice) -> list[Record]:
    """Measure each number of workers: every lane build, then the others."""
    made: list[Record] = []
    for workers in choice.workers or WORKERS:
        sizes = choice.sizes or (SIZES + (LARGEST,) * (workers == LARGEST_WORKERS))
        ours = Job(peer="switchsum", workers=workers, sizes=tuple(sorted(sizes)), runs=choice.runs)
        lanes = choice.lanes or LANES
        large = max((size for size in sizes if size <= INT16_BYTES), default=min(sizes))
        narrow = replace(ours, peer="switchsum-int16", lanes=max(lanes), sizes=(large,))
        jobs = {f"{build}": replace(ours, lanes=build) for build in lanes}
        if workers == LARGEST_WORKERS:
            jobs[f"{narrow.lanes}-int16"] = narrow
        jobs |= {peer: replace(ours, peer=peer) for peer in choice.peers or OTHERS}
        made += records("allreduce.shm", workers, measure(jobs))
    return made
