"""Simulated times beside measured ones.

Run as root: python -m checks.lab.validate [--seed 7] [--rows] [--publish]   Each row is a job of real processes over
veth pairs whose rates tc's tbf keeps, and the same job in virtual time.  Sums run back to back, so that the token
buckets, which let 256 KiB go at once after a pause, are empty.

Ten cells are drawn at random: the seed is the day's if none is given.  A cell counts if the machine's cores were at
most half busy, else another one is drawn in its place.  Those that count must be within 3 %.

`--rows` measures the fixed rows of docs/results/validated.md in their place, in 8 minutes; --quick four short ones of
them.  A row counts if its processors idle at least 15 % of the time; else it is marked.  These rows are kept as they
come and are measured once (`--again`: anew).  `--publish` writes the table of that page.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from checks.bench import ages
from checks.bench.records import provenance
from checks.lab.convergence_results import RESULTS
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_switch.process.children import Children
from switchsum_switch.process.ending import ended_by_signals

KEPT: Final = RESULTS.parent / "validated.json"
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "results" / "validated.md"
BEGIN, END = "<!-- validated: make validate ARGS='--rows --publish' -->", "<!-- end of validated -->"
HEAD: Final = (
    "| workers | network | Mbit/s | loss | MB | measured, ms | simulated, ms | apart | processors |",
    "|---|---|---|---|---|---|---|---|---|",
)
MOST_BUSY: Final = 0.85
"""Share of the processors' time in a row whose links bound it."""
HALF_BUSY: Final = 0.5
"""Most of the machine's processor time that may be busy, by whatever process, in a cell that was drawn."""
CELLS: Final = 10
MOST_DRAWS: Final = 4
"""So many times as many cells are drawn at most, where the machine is not quiet."""
LANES: Final = 256
_VETH: Final = CableConditions(delay_s=5e-6, overhead_bytes=0, queue_bytes=1 << 20)
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
ALL: Final = (*STARS, *LOSSY, *TREES)
QUICK: Final = (
    Row(workers=2, mbit=100, sizes=((1_000_000, 5), (10_000_000, 1))),
    Row(workers=4, mbit=200, sizes=((1_000_000, 5), (10_000_000, 2))),
    Row(workers=4, mbit=200, loss=0.01, sizes=((10_000_000, 2),), within=0.15),
    Row(workers=4, mbit=28, shape="two-spines,2,20,8", sizes=((1_000_000, 3),), within=0.15),
)


def drawn(random: Random) -> Row:
    """Return a cell at random: a job that keeps two cores less than half busy, with sums of 0.05 to 2 s."""
    shape, workers = random.choice((("", 2), ("", 3), ("", 4), ("", 6), ("", 8), *_DRAWN_TREES))
    most_mbit = min(200, (_TREE_MBIT if shape else _STAR_MBIT) / workers)
    mbit = round(math.exp(random.uniform(math.log(20), math.log(most_mbit))))
    loss = random.choice((0.0, 0.0, 0.001, 0.01))
    seconds = math.exp(random.uniform(math.log(0.5 if loss else 0.05), math.log(2)))
    size = max(_LEAST_BYTES, round(seconds * mbit * 1e6 / 8, -5))
    repeats = 5 if loss else min(10, max(3, round(3 / seconds)))
    return Row(workers=workers, mbit=mbit, shape=shape, loss=loss, sizes=((int(size), repeats),))


_LEAST_BYTES: Final = 200_000
"""Shorter sums are over before a call's start, which is not simulated, is small beside them."""
_STAR_MBIT, _TREE_MBIT = 1000, 500
"""Of all workers' links together: so much keeps two cores a third busy."""
_DRAWN_TREES: Final = (("leaf-spine,2,1,2", 4), ("leaf-spine,4,1,2", 8))


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
    """Return how long the same sum takes in virtual time, behind another one; with loss the median of some seeds.

    It has as many slots as the measured one, whose links set no limit.
    """
    return statistics.median(_simulated(row, size, seed) for seed in range(1, 1 + (_SEEDS if row.loss else 1)))


_SEEDS: Final = 5


def _simulated(row: Row, size: int, seed: int) -> float:
    from switchsum.planning.sources import read
    from switchsum_controller.plan import windows
    from switchsum_lab.simulation import jobs  # takes seconds, which a job that is measured does not need

    planned = read(row.shape or f"star,{row.workers}", row.mbit)
    hosts = planned.hosts[: row.workers]
    link = replace(_VETH, loss=row.loss)
    # Each switch loses frames at its own end of a cable, so that between two of them both do.
    between = replace(_VETH, loss=1.0 - (1.0 - row.loss) ** 2)
    network = jobs.build(planned, between, lanes=LANES, seed=seed)
    job = jobs.Job(network, planned, hosts, link, lanes=LANES, window_slots=windows.within())
    taken = []
    for _ in range(_SIMULATED_TWICE):
        arrays = [np.full(size // 4, rank + 1, np.float32) for rank in range(row.workers)]
        taken.append(job.allreduce(arrays).seconds)
        if not np.all(arrays[0] == row.workers * (row.workers + 1) // 2):
            raise SystemExit("a simulated sum is wrong")
    return taken[-1]


def compare(row: Row) -> list[dict[str, Any]]:
    """Return what the lines of a row show: each size's times, and the processors' share of them."""
    load = os.getloadavg()[0]
    found = measure(row)
    where = provenance(load)
    return [
        {
            "measured_s": statistics.median(one["seconds"]),
            "simulated_s": simulate(row, one["bytes"]),
            "bytes": one["bytes"],
            "processors": one["processors"] / (os.cpu_count() or 1),
            "busy": one["busy"],
            **where,
        }
        for one in found["results"]
    ]


def lines(row: Row, cells: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a row, and whether each is near enough, or counts for nothing."""
    for one in cells:
        apart, busy = one["simulated_s"] / one["measured_s"] - 1, one["processors"]
        counts = busy <= MOST_BUSY
        note = "" if counts else " processors bound it"
        yield _line(row, one, f"{busy:.0%}{note}"), not counts or abs(apart) <= row.within


def _line(row: Row, one: Mapping[str, Any], processors: str) -> str:
    apart = one["simulated_s"] / one["measured_s"] - 1
    return (
        f"| {row.workers} | {row.shape or 'one switch'} | {row.mbit:g} | {100 * row.loss:g}% | "
        f"{one['bytes'] / 1e6:g} | {1e3 * one['measured_s']:,.1f} | {1e3 * one['simulated_s']:,.1f} | {apart:+.1%} | "
        f"{processors} |"
    )


def cells(seed: int, count: int = CELLS) -> Iterator[tuple[Row, Mapping[str, Any]]]:
    """Draw cells, measure them, and yield those in which the machine's cores were at most half busy.

    Raises SystemExit where too few of them were.
    """
    random, left = Random(f"validate {seed}"), count
    for _ in range(MOST_DRAWS * count):
        row = drawn(random)
        [one] = compare(row)
        if one["busy"] > HALF_BUSY:
            print(f"left out, cores {one['busy']:.0%} busy: {_line(row, one, '')}", file=sys.stderr, flush=True)
            continue
        yield row, one
        left -= 1
        if not left:
            return
    raise SystemExit(f"the cores were more than half busy in all but {count - left} cells: is the machine quiet?")


def key(row: Row) -> str:
    """Return under which name a row is kept."""
    return json.dumps(asdict(row))


def publish(kept: Mapping[str, Sequence[Mapping[str, Any]]], page: Path = PAGE) -> None:
    """Write the table of the rows that were measured."""
    here = [row for row in ALL if key(row) in kept]
    cells = [one for row in here for one in kept[key(row)]]
    machines = " and ".join(sorted({", ".join(one["machine"].split(", ")[:2]) for one in cells}))
    dates = " and ".join(sorted({one["date"] for one in cells}))
    loads = [load for one in cells for load in one["load"]]
    said = f"Measured on {machines}, {dates}, load {min(loads)} to {max(loads)}; simulated beside it."
    table = [*HEAD, *(line for row in here for line, _ in lines(row, kept[key(row)])), "", said]
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    page.write_text("\n".join([before + BEGIN, "", *table, "", END + after]), encoding="utf-8")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(datetime.now(UTC).strftime("%Y%m%d")), help="of the cells")
    parser.add_argument("--cells", type=int, default=CELLS, help="how many")
    parser.add_argument("--rows", action="store_true", help="the fixed rows in place of cells that are drawn")
    parser.add_argument("--quick", action="store_true", help="four short rows, of which nothing is kept")
    parser.add_argument("--again", action="store_true", help="with --rows: measure also what has been")
    parser.add_argument(
        "--publish", action="store_true", help="with --rows: write the table of docs/results/validated.md afterwards"
    )
    options = parser.parse_args()
    if not (options.rows or options.quick):
        _draw(options.seed, options.cells)
        return
    known: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    fresh = options.quick or options.again
    print(*HEAD, sep="\n", flush=True)
    is_near = True
    with ended_by_signals():
        for row in QUICK if options.quick else ALL:
            cells = known[key(row)] if key(row) in known and not fresh else compare(row)
            for line, near in lines(row, cells):
                print(line, flush=True)
                is_near = is_near and near
            if not options.quick:
                known[key(row)] = cells
                KEPT.write_text(json.dumps(known, indent=1) + "\n")
    if options.publish:
        publish(known)
        ages.mark()
    if not is_near:
        raise SystemExit("a row whose links bound it is further apart than 3 %, or 15 % with loss or trees")


def _draw(seed: int, count: int) -> None:
    """Print a table of cells that are drawn; raises SystemExit if one of them is too far apart."""
    print(f"seed {seed}", HEAD[0].replace("processors", "cores busy"), HEAD[1], sep="\n", flush=True)
    is_near = True
    with ended_by_signals():
        for row, one in cells(seed, count):
            print(_line(row, one, f"{one['busy']:.0%}"), flush=True)
            is_near = is_near and abs(one["simulated_s"] / one["measured_s"] - 1) <= row.within
    if not is_near:
        raise SystemExit("a cell whose cores were at most half busy is further apart than 3 %")


if __name__ == "__main__":
    main()
