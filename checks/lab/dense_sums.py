"""What dense arrays lose by the choice of a way, in shared memory: `python -m checks.lab.dense_sums [--publish]`.

One job adds arrays of 4,096 to 16 million float32 of which no value is zero, by a plain sum and by each call that
chooses a way, in turns.  A figure is the time on the slowest rank, and a share compares a call with the plain sum of
the same turn.  An `allreduce_sparse` returns new arrays of places and values, so it is compared with a plain sum of a
copy.

`--publish` writes the table into docs/results/sparse-ways.md.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

import switchsum
from checks.bench.records import measured_on, provenance
from checks.lab.block_bytes import arguments, print_tables
from checks.lab.sparse_ways import PAGE

Floats = npt.NDArray[np.float32]

BEGIN, END = "<!-- dense: python -m checks.lab.dense_sums --publish -->", "<!-- end of dense -->"
SIZES: Final = (4096, 32_768, 262_144, 1 << 20, 1 << 22, 1 << 24)
RANKS: Final = 2
VALUES: Final = 30_000_000
"""Values that each way adds of a size, in 9 to 101 turns."""
UNTIMED: Final = 3
"""Turns before those that count: from the third one on a call begins with the sum."""
PLAIN, COPY = "plain sum", "plain sum of a copy"
BESIDE: Final = {"top-k of all": PLAIN, "blocks of 32": PLAIN, "rows": COPY}
"""Calls that choose a way, and what they are compared with."""


def turns(size: int) -> int:
    """Return how many turns count."""
    return max(9, min(101, VALUES // size))


def work(out: Path) -> None:
    """Take part in the job, and leave this rank's seconds in a file."""
    with switchsum.connect() as comm:
        found: dict[int, dict[str, list[float]]] = {}
        for size in SIZES:
            own = np.random.default_rng(comm.rank).standard_normal(size).astype(np.float32)
            array = own.copy()
            ways = _ways(comm, array, own)
            took: dict[str, list[float]] = {name: [] for name in ways}
            for turn in range(UNTIMED + turns(size)):
                names = list(ways)
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    array[:] = own
                    comm.barrier()
                    began = time.perf_counter()
                    ways[name]()
                    took[name] += [time.perf_counter() - began] * (turn >= UNTIMED)
            found[size] = took
        out.with_name(f"{out.name}.{comm.rank}").write_text(json.dumps(found))


def _ways(comm: switchsum.Communicator, array: Floats, own: Floats) -> dict[str, Callable[[], object]]:
    """Return the calls: some add in place, the others return new arrays."""
    places = np.arange(own.size)
    return {
        PLAIN: lambda: comm.allreduce(array),
        "top-k of all": lambda: comm.allreduce_topk(array, array.size),
        "blocks of 32": lambda: comm.allreduce(array, block=32),
        COPY: lambda: comm.allreduce(own.copy()),
        "rows": lambda: comm.allreduce_sparse(places, own, own.size),
    }


def measure() -> dict[int, dict[str, list[float]]]:
    """Run the job; return the seconds of the slowest rank, by size and way, turn by turn."""
    with tempfile.TemporaryDirectory(prefix="switchsum-dense-") as scratch:
        out = Path(scratch, "times")
        worker = [sys.executable, "-m", "checks.lab.dense_sums", "--out", str(out)]
        command = [sys.executable, "-m", "switchsum", "run", "-n", str(RANKS), "--", *worker]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=sys.stderr)
        each = [json.loads(out.with_name(f"times.{rank}").read_text()) for rank in range(RANKS)]
    return {
        size: {name: list(map(max, *(one[str(size)][name] for one in each))) for name in each[0][str(size)]}
        for size in SIZES
    }


def table() -> Iterator[str]:
    """Yield the table, a row for each size."""
    load = os.getloadavg()[0]
    found = measure()
    cells = " | ".join(f"{name}: ms | over {'it' if beside == PLAIN else 'a copy'}" for name, beside in BESIDE.items())
    yield f"| values | {PLAIN} | {cells} |"
    yield f"|{'---|' * (2 + 2 * len(BESIDE))}"
    for size, took in found.items():
        row = [f"{size:,}", f"{1e3 * statistics.median(took[PLAIN]):.3f} ms"]
        for name, beside in BESIDE.items():
            shares = [one / other for one, other in zip(took[name], took[beside], strict=True)]
            row += [f"{1e3 * statistics.median(took[name]):.3f}", f"{statistics.median(shares):.2f}"]
        yield f"| {' | '.join(row)} |"
    yield ""
    yield f"{RANKS} ranks, {turns(SIZES[-1])} to {turns(SIZES[0])} turns. Measured on {measured_on(provenance(load))}."


def main() -> None:
    """Print the table, and publish it; or be a rank."""
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, help="be a rank, and leave its seconds there")
    options = parser.parse_args()
    if options.out is not None:
        work(options.out)
    else:
        print_tables(table(), BEGIN, END, publish=options.publish, page=PAGE)


if __name__ == "__main__":
    main()
