"""The same allreduces by switchsum and by others, one job after the other, as records of one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from checks.bench.choice import size_name
from checks.bench.records import Record, Samples, pairs, record
from switchsum.launch.link_options import rate_bits
from switchsum.launch.wires import BURST_BYTES

SMALL_BYTES = 100_000
"""Below it the table shows times, from it on rates."""
LARGE_BYTES = 100_000_000
"""From here on memory for code and rings, which is used by the first array, is small beside the array."""
OTHERS = {"gloo": "gloo", "openmpi": "Open MPI"}

Cell = tuple[str, int]
"""Who (a lane build or a peer), and how many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of an allreduce took."""

    seconds: float
    """On the slowest rank."""
    cpu_seconds: float
    """Of all processes of the job together: ranks, switch, and what they had the kernel do."""
    worker_seconds: float = 0.0
    """Of the ranks alone, likewise."""
    own_bytes: int = 0
    """Most memory that a rank used beside its arrays and what it had used when it had joined; 0: not known."""


SHAPE: Final = f"tbf with a bucket of {BURST_BYTES // 1024} KiB"
"""What limits a link, ours and those of others."""


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
    line = "one machine" if rate is None else f"links of {rate} each way, {SHAPE} for all"
    conditions = f"{workers} workers, {line}, float32, {size:,} bytes, {len(runs)} runs"
    made = record(full_name, _samples(runs, size), "us" if size < SMALL_BYTES else "MB/s per worker", conditions)
    more = {}
    if size >= SMALL_BYTES:
        more["bus MB/s"] = made.value * 2 * (workers - 1) / workers
        gigabytes = workers * size / 1e9
        more["CPU s/GB"] = sum(one.cpu_seconds for one in runs) / len(runs) / gigabytes
        if all(one.worker_seconds for one in runs):
            more["of it a worker's"] = sum(one.worker_seconds for one in runs) / len(runs) / gigabytes
        if size >= LARGE_BYTES and all(one.own_bytes for one in runs):
            more["memory beside"] = runs[-1].own_bytes / size
        if rate is not None:
            more["share of line"] = made.value * 8e6 / rate_bits(rate)
    intervals = {}
    if name not in OTHERS:
        for other, title in OTHERS.items():
            if (other, size) in taken:
                ratios = pairs([run.seconds for run in runs], [run.seconds for run in taken[other, size]])
                more[f"x {title}"], intervals[f"x {title}"] = ratios.median, ratios.interval
    return dataclasses.replace(made, more=more, intervals=intervals)


def _samples(runs: Sequence[Run], size: int) -> Samples:
    if size < SMALL_BYTES:
        return Samples(values=[one.seconds * 1e6 for one in runs])
    return Samples(values=[size / one.seconds / 1e6 for one in runs])
