"""Sparse sums on limited links, beside mpi4py's: `python -m checks.lab.beside_mpi [--publish]` (root; some minutes).

Each turn runs a job of switchsum, one of switchsum with jumbo frames, and one of Open MPI, one after the other, on
links of the same rate.  Open MPI's ranks talk over the kernel's bridge, with segmentation offloads, so that forwarding
costs them nothing.  They add as SparCML does by split and allgather, and by one MPI_Allgatherv of all pairs.  Sums are
checked.

A figure is the time of twenty calls in a row over twenty, on the slowest rank.  As many calls before them empty the
links' buckets, which else let 256 KiB pass at once.  Without mpi4py or mpirun, Open MPI's rows are left out.

`--publish` writes the table into docs/results/sparse-ways.md.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from checks.bench.records import measured_on, provenance
from checks.lab.beside_mpi_worker import BLOCKS, CALLS, LOGISTIC
from checks.lab.block_bytes import arguments, print_tables
from checks.lab.sparse_ways import PAGE

BEGIN, END = "<!-- mpi: python -m checks.lab.beside_mpi --publish -->", "<!-- end of mpi -->"
CELLS: Final = (
    (4, "100mbit", LOGISTIC),
    (4, "100mbit", "0.01"),
    (4, "1gbit", "0.001"),
    (4, "1gbit", "0.01"),
    (4, "1gbit", "0.1"),
    (2, "1gbit", "0.01"),
)
"""Workers, rates of links, and densities of a million values, or the recorded logistic regression."""
MTU: Final = 1500
OURS: Final = {"switchsum": "256", "switchsum, frames of 2,048 lanes": "2048"}
"""Lanes of frames."""
MPI: Final = "mpi"
_WORKER: Final = (sys.executable, "-m", "checks.lab.beside_mpi_worker")
Times = dict[str, list[tuple[float, float, float]]]
"""For each way, the seconds of a call on the slowest rank, of a rank's processor on average, and of the switch's."""


def turn(peer: str, workers: int, rate: str, density: str) -> Times:
    """Run one job; return its times."""
    with tempfile.TemporaryDirectory(prefix="switchsum-mpi-") as scratch:
        out = Path(scratch, "times")
        worker = [*_WORKER, "--peer", MPI if peer == MPI else "ours", "--density", density, "--out", str(out)]
        command = [sys.executable, "-m", "switchsum", "run", "-n", str(workers), "--links", "veth", "--rate", rate]
        command += ["--lanes", OURS.get(peer, ""), "--terminal", "--"]
        if peer == MPI:
            star = [sys.executable, "-m", "switchsum_lab.sweeps.star", "openmpi", str(workers), rate, str(MTU)]
            command = ["unshare", "--net", "--", *star]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, *worker], check=True, env=environment, stdout=sys.stderr)
        of_ranks: list[Times] = [json.loads(out.with_name(f"times.{rank}").read_text()) for rank in range(workers)]
    return {
        name if peer == MPI else peer: [
            (
                max(one[0] for one in runs),
                statistics.mean(one[1] for one in runs),
                statistics.mean(one[2] for one in runs),
            )
            for runs in zip(*(one[name] for one in of_ranks), strict=True)
        ]
        for name in of_ranks[0]
    }


def table(turns: int, cells: Sequence[tuple[int, str, str]]) -> Iterator[str]:
    """Yield the table, a row for each cell and way."""
    load = os.getloadavg()[0]
    has_mpi = shutil.which("mpirun") is not None and find_spec("mpi4py") is not None
    if not has_mpi:
        sys.stderr.write("Open MPI is left out: apt install openmpi-bin libopenmpi-dev, pip install mpi4py\n")
    yield (
        "| links | workers | values | way | ms a call: median (range) | processor ms of a rank | of the switch | "
        "times ours |"
    )
    yield f"|{'---|' * 8}"
    for workers, rate, density in cells:
        found: Times = {}
        for _ in range(turns):
            for peer in (*OURS, MPI)[: len(OURS) + has_mpi]:
                for name, times in turn(peer, workers, rate, density).items():
                    found.setdefault(name, []).extend(times)
        ours = statistics.median(one[0] for one in found["switchsum"])
        for name, times in found.items():
            took = sorted(1e3 * one[0] for one in times)
            median, worked = statistics.median(took), 1e3 * statistics.median(one[1] for one in times)
            switched = 1e3 * statistics.mean(one[2] for one in times)  # of ticks of 10 ms
            what = "logistic regression" if density == LOGISTIC else f"{float(density):.1%} of a million"
            yield (
                f"| {rate} | {workers} | {what} | {name} | {median:.2f} ({took[0]:.2f} to {took[-1]:.2f}) | "
                f"{worked:.2f} | {f'{switched:.2f}' if switched else ''} | {median / (1e3 * ours):.2f} |"
            )
    yield ""
    yield (
        f"{turns} turns of a job each, {BLOCKS} times {CALLS} calls in each. Measured on "
        f"{measured_on(provenance(load))}."
    )


def main() -> None:
    """Print the table, and publish it."""
    parser = arguments(__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cells", type=int, nargs="+", choices=range(len(CELLS)), default=list(range(len(CELLS))))
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("links need root")
    cells = tuple(CELLS[number] for number in options.cells)
    print_tables(table(options.turns, cells), BEGIN, END, publish=options.publish, page=PAGE)


if __name__ == "__main__":
    main()
