"""Sparse allreduces on slow links beside dense ones and others': `python -m checks.lab.sparse` (root, torch).

For each number of workers, rate and group of ways, one job under `switchsum run --links veth --rate` measures them.
Rows are merged into checks/lab/results/sparse.json by what they were measured under, so that a part can be repeated;
`--publish` makes the tables of docs/results/sparse.md and the plots of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from checks.bench import ages, gradients
from checks.bench.records import provenance
from checks.lab.sparse_page import GROUPS, publish

SPARSE_RESULTS = Path(__file__).parent / "results" / "sparse.json"
MTU = {2048: 9000, 256: 1500}
"""Of the links on which TCP runs, as large as frames of so many lanes want."""
KEY = ("workers", "rate", "lanes", "values", "way")
Row = dict[str, Any]


def measure(workers: int, rate: str, lanes: int, values: int, group: str, folder: Path, steps: int) -> list[Row]:
    """Run one job; returns its rows."""
    if group == "accumulated":
        gradients.record(workers, values, (steps,), folder)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "rows.json")
        launch = [
            sys.executable,
            "-m",
            "switchsum",
            "run",
            "-n",
            str(workers),
            "--lanes",
            str(lanes),
            "--links",
            "veth",
            "--rate",
            rate,
        ]
        worker = [
            sys.executable,
            "-m",
            "checks.lab.sparse_worker",
            "--rate",
            rate,
            "--mtu",
            str(MTU[lanes]),
            "--values",
            str(values),
            "--gradients",
            str(folder.absolute()),
            "--steps",
            str(steps),
            "--out",
            str(out),
        ]
        subprocess.run(
            [*launch, "--timeout", "60", "--terminal", "--", *worker, "--group", group],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        cell: Row = {"workers": workers, "rate": rate, "lanes": lanes, "values": values}
        if group == "accumulated":
            cell["step"] = steps
        here = provenance(load_before)
        return [{**cell, **_summary(row), **here} for row in json.loads(out.read_text())]


def _summary(row: Row) -> Row:
    seconds = row.pop("seconds")
    median = statistics.median(seconds)
    return {**row, "seconds": median, "runs": len(seconds), "spread": (max(seconds) - min(seconds)) / 2 / median}


def merge(rows: list[Row], path: Path = SPARSE_RESULTS) -> list[Row]:
    """Put rows into the file in the place of those of the same key; returns all."""
    known = [row for row in (json.loads(path.read_text()) if path.exists() else []) if row["group"] in GROUPS]
    kept = {tuple(row[name] for name in KEY): row for row in known}
    kept |= {tuple(row[name] for name in KEY): row for row in rows}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(list(kept.values()), indent=1) + "\n")
    return list(kept.values())


def main() -> None:
    """Measure and merge, or publish."""
    parser = argparse.ArgumentParser(prog="python -m checks.lab.sparse", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--rate", nargs="+", default=["200mbit", "1gbit"])
    parser.add_argument("--lanes", type=int, nargs="+", choices=MTU, default=[2048])
    parser.add_argument("--size", type=int, default=100_000_000, help="bytes of float32")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument(
        "--gradients",
        type=Path,
        default=gradients.FOLDER,
        help="where accumulators are; made there if they are missing",
    )
    parser.add_argument("--steps", type=int, default=gradients.STEPS, help="the training's step that they are of")
    parser.add_argument(
        "--publish", action="store_true", help="only write what was recorded into docs, and plots of it"
    )
    options = parser.parse_args()
    if options.publish:
        publish(merge([]))
        ages.mark()
        return
    for lanes in options.lanes:
        for rate in options.rate:
            for workers in options.workers:
                for group in options.groups:
                    sys.stdout.write(f"{group}: {workers} workers, links of {rate}, {lanes:,} lanes\n")
                    sys.stdout.flush()
                    rows = measure(workers, rate, lanes, options.size // 4, group, options.gradients, options.steps)
                    merge(rows)


if __name__ == "__main__":
    main()
