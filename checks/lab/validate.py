"""Simulated times beside measured ones.

Run as root: python -m checks.lab.validate [--quick]   Each row is a job of real processes over veth pairs whose rates
tc's tbf keeps, and the same job in virtual time.  Sums run back to back, so that the token buckets, which let 256 KiB
go at once after a pause, are empty.  A row counts if its processors idle at least 15 % of the time; else it is marked.

The machine must be quiet.  All of it takes 6 minutes, and --quick a quarter of that.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from switchsum.launch.children import Children
from switchsum.launch.ending import ended_by_signals
from switchsum.simulation.conditions import Link

MOST_BUSY: Final = 0.85
"""Share of the processors' time in a row whose links bound it."""
LANES: Final = 256
_VETH: Final = Link(delay_s=5e-6, overhead_bytes=0, queue_bytes=1 << 20)
"""A veth pair has no preamble; tbf counts the bytes of a frame."""
_SIZES: Final = ((1_000_000, 10), (10_000_000, 3), (100_000_000, 1))
_SIMULATED_TWICE: Final = 2
"""The first sum begins with empty rounds that later ones do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job: its network, and the sizes that it adds, each so often."""

    workers: int
    mbit: float
    shape: str = ""
    """Of several switches; none: one switch."""
    loss: float = 0.0
    sizes: Sequence[tuple[int, int]] = _SIZES
    within: float = 0.03
    """How far measured and simulated may be apart."""


STARS: Final = tuple(Row(workers=workers, mbit=mbit) for mbit in (100, 200) for workers in (2, 4, 8, 16))
LOSSY: Final = tuple(
    Row(workers=workers, mbit=mbit, loss=0.01, sizes=((10_000_000, 3),), within=0.15)
    for workers, mbit in ((2, 100), (4, 100), (4, 200), (8, 100))
)
TREES: Final = (
    Row(workers=4, mbit=100, shape="leaf-spine,2,1,2", sizes=((1_000_000, 10), (10_000_000, 3)), within=0.15),
    Row(workers=8, mbit=50, shape="leaf-spine,4,1,2", sizes=((1_000_000, 10), (10_000_000, 2)), within=0.15),
    Row(workers=4, mbit=28, shape="two-spines,2,20,8", sizes=((4_000_000, 3),), within=0.15),
)
QUICK: Final = (
    Row(workers=2, mbit=100, sizes=((1_000_000, 5), (10_000_000, 1))),
    Row(workers=4, mbit=200, sizes=((1_000_000, 5), (10_000_000, 2))),
    Row(workers=4, mbit=200, loss=0.01, sizes=((10_000_000, 2),), within=0.15),
    Row(workers=4, mbit=28, shape="two-spines,2,20,8", sizes=((1_000_000, 3),), within=0.15),
)


def measure(row: Row) -> dict[str, Any]:
    """Run the job of a row; return what `validate_worker` says.  The job ends with this process at the latest.

    Raises CalledProcessError.
    """
    with tempfile.TemporaryDirectory(prefix="switchsum-validate-") as scratch, Children() as children:
        path = Path(scratch, "found.json")
        command = command_of(row, path)
        if code := children.start("job", command, quiet=True).process.wait():
            raise subprocess.CalledProcessError(code, command)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def command_of(row: Row, path: Path) -> list[str]:
    """Return the command of a row's job, which writes what it finds to a path."""
    links = f"veth@{row.mbit:g}" if row.shape else "veth"
    command = [sys.executable, "-m", "switchsum", "run", "-n", str(row.workers), "--links", links]
    command += ["--topology", row.shape] if row.shape else ["--rate", f"{row.mbit:g}mbit"]
    command += ["--lanes", str(LANES), "--loss", str(row.loss), "--timeout", "120", "--"]
    command += [sys.executable, "-m", "checks.lab.validate_worker", str(path)]
    return command + [str(number) for pair in row.sizes for number in pair]


def simulate(row: Row, size: int) -> float:
    """Return how long the same sum takes in virtual time, behind another one."""
    from switchsum.cli.topology import read
    from switchsum.simulation import jobs  # takes seconds, which a job that is measured does not need

    planned = read(row.shape or f"star,{row.workers}", row.mbit)
    hosts = planned.hosts[: row.workers]
    link = replace(_VETH, loss=row.loss)
    network = jobs.build(planned, link, lanes=LANES, seed=1)
    job = jobs.Job(network, planned, hosts, link, lanes=LANES)
    taken = []
    for _ in range(_SIMULATED_TWICE):
        arrays = [np.full(size // 4, rank + 1, np.float32) for rank in range(row.workers)]
        taken.append(job.allreduce(arrays).seconds)
        if not np.all(arrays[0] == row.workers * (row.workers + 1) // 2):
            raise SystemExit("a simulated sum is wrong")
    return taken[-1]


def compare(row: Row) -> bool:
    """Print the lines of a row; return whether all that count are near enough."""
    found, is_near = measure(row), True
    for one in found["results"]:
        measured, simulated = statistics.median(one["seconds"]), simulate(row, one["bytes"])
        apart, busy = simulated / measured - 1, one["processors"] / (os.cpu_count() or 1)
        counts = busy <= MOST_BUSY
        is_near = is_near and (not counts or abs(apart) <= row.within)
        network, note = row.shape or "one switch", "" if counts else " processors bound it"
        print(
            f"| {row.workers} | {network} | {row.mbit:g} | {row.loss:.0%} | {one['bytes'] / 1e6:g} | "
            f"{1e3 * measured:,.1f} | {1e3 * simulated:,.1f} | {apart:+.1%} | {busy:.0%}{note} |",
            flush=True,
        )
    return is_near


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    rows = QUICK if parser.parse_args().quick else (*STARS, *LOSSY, *TREES)
    print(f"Load {os.getloadavg()[0]:.1f} at the start.\n")
    print("| workers | network | Mbit/s | loss | MB | measured, ms | simulated, ms | apart | processors |")
    print("|---|---|---|---|---|---|---|---|---|")
    with ended_by_signals():
        near = [compare(row) for row in rows]
    if not all(near):
        raise SystemExit("a row whose links bound it is further apart than 3 %, or 15 % with loss or trees")


if __name__ == "__main__":
    main()
