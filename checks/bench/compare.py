"""The same allreduces by switchsum and by others, one job after the other, as records of one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from checks.bench.allreduce_worker import Run
from checks.bench.choice import size_name
from checks.bench.jobs import Job, is_there, run
from checks.bench.records import Record, Samples, record
from switchsum.launch.options import rate_bits

SMALL_BYTES = 100_000
"""Below it the table shows times, from it on rates."""
LARGE_BYTES = 100_000_000
"""From here on memory for code and rings, which is used by the first array, is small beside the array."""
OTHERS = {"gloo": "gloo", "openmpi": "Open MPI"}

Cell = tuple[str, int]
"""Who (a lane build or a peer), and how many bytes."""


def measure(jobs: Iterable[tuple[str, Job]]) -> dict[Cell, list[Run]]:
    """Run jobs by name, those of them whose programs are installed."""
    taken = {}
    for name, job in jobs:
        if is_there(job.peer):
            for size, runs in run(job).items():
                taken[name, size] = runs
    return taken


def records(prefix: str, workers: int, taken: Mapping[Cell, Sequence[Run]], rate: str | None = None) -> list[Record]:
    """Make one record of each cell; `prefix` begins their names."""
    return [
        _record(f"{prefix}.{size_name(size)}.{workers}workers.{name}", workers, name, size, taken, rate)
        for name, size in taken
    ]


def _record(
    full_name: str, workers: int, name: str, size: int, taken: Mapping[Cell, Sequence[Run]], rate: str | None
) -> Record:
    runs = taken[name, size]
    line = "one machine" if rate is None else f"links of {rate} and direction"
    conditions = f"{workers} workers, {line}, float32, {size:,} bytes, {len(runs)} runs"
    made = record(full_name, _samples(runs, size), "us" if size < SMALL_BYTES else "MB/s per worker", conditions)
    more = {}
    if size >= SMALL_BYTES:
        more["bus MB/s"] = made.value * 2 * (workers - 1) / workers
        cpu = sum(one.cpu_seconds for one in runs) / len(runs)
        more["CPU s/GB"] = cpu / (workers * size / 1e9)
        if size >= LARGE_BYTES:
            more["memory beside"] = runs[-1].own_bytes / size
        if rate is not None:
            more["share of line"] = made.value * 8e6 / rate_bits(rate)
    if name not in OTHERS:
        for other, title in OTHERS.items():
            if (other, size) in taken:
                theirs = _samples(taken[other, size], size).median
                more[f"x {title}"] = theirs / made.value if size < SMALL_BYTES else made.value / theirs
    return dataclasses.replace(made, more=more)


def _samples(runs: Sequence[Run], size: int) -> Samples:
    if size < SMALL_BYTES:
        return Samples(values=[one.seconds * 1e6 for one in runs])
    return Samples(values=[size / one.seconds / 1e6 for one in runs])
