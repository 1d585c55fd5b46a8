"""Steps of a training on machines with an ordinary switch between them: `python -m checks.lab.machine_trainings`.

Machines are network namespaces on a bridge of the kernel, each with one link of 100 Mbit/s and an MTU of 1,500 (root).
DistributedDataParallel and DiLoCo here and over gloo, started as torchrun starts them.  What was measured is kept
(`--again`: measured anew); `--publish` writes the table of docs/slow-links.md.  `--threads 2` shows what threads cost
on two cores, and keeps nothing: torchrun leaves OMP_NUM_THREADS unset with one rank a machine, which is one for each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from checks.bench import ages
from checks.bench.records import provenance
from checks.lab.convergence_results import RESULTS, Results, Rows, added_to, say
from checks.lab.convergence_times import medians
from checks.lab.convergence_ways import ALONE
from checks.lab.machines import MTU, run_ranks
from switchsum.launch import wires
from switchsum_lab.sweeps.star import lay
from switchsum_switch.process.children import Children

KEPT: Final = RESULTS.parent / "machines.json"
PAGE: Final = Path(__file__).parents[2] / "docs" / "slow-links.md"
BEGIN, END = "<!-- machines: python -m checks.lab.machine_trainings --publish -->", "<!-- end of machines -->"
Row = dict[str, Any]
NAME: Final = "layers"
"""Of what is trained, among what a worker writes."""
MACHINES: Final = 4
RANKS: Final = (2, 1)
"""On each machine."""
RATE: Final = "100mbit"
STEPS: Final = 10
"""Of each way that averages gradients, in a round."""
ROUNDS: Final = 2
"""So often each backend trains, in turn."""
JOBS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "gloo": ("gloo", "gloo, fp16 hook", "gloo, PowerSGD 4", "gloo, streaming 50"),
        "switchsum": (ALONE, "dense", "int10", "globaltopk:0.02", "powersgd:4", "streaming 50, int10"),
    }
)
"""Ways by backend."""
TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gloo": "gloo, DistributedDataParallel",
        "gloo, fp16 hook": "gloo, fp16 hook",
        "gloo, PowerSGD 4": "gloo, torch's PowerSGD, rank 4",
        "gloo, streaming 50": "gloo, DiLoCo every 50, streamed",
        "dense": "here, float32",
        "int10": "here, `int10`",
        "globaltopk:0.02": "here, `globaltopk:0.02`",
        "powersgd:4": "here, `powersgd:4`",
        "streaming 50, int10": "here, DiLoCo every 50, streamed, int10",
    }
)
"""Rows of the table, in order."""


def measure(laid: Sequence[wires.Wire], ranks: int, rounds: int, steps: int, threads: int = 1) -> Row:
    """Run each backend in turn; return the medians of steps, and where they were taken."""
    load_before = os.getloadavg()[0]
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        for number in range(1, rounds + 1):
            for backend, ways in JOBS.items():
                say(f"{MACHINES} machines with {ranks} ranks each, round {number} of {rounds}: {backend}")
                written = Path(scratch, f"{backend}-{number}")
                worker = [sys.executable, "-m", "checks.lab.machine_worker", backend, str(steps), str(written), *ways]
                run_ranks(laid, ranks, worker, {"OMP_NUM_THREADS": str(threads)})
                for way, taken in json.loads(written.read_text())[NAME].items():
                    found.setdefault(way, []).extend(taken)
    return {**provenance(load_before), "ms": medians(found)}


def table(times: Rows) -> Iterator[str]:
    """Yield the lines of the page's table."""
    taken = {ranks: times[str(ranks)] for ranks in RANKS if str(ranks) in times}
    if not taken:
        yield "`sudo .venv/bin/python -m checks.lab.machine_trainings --publish` measures them; it was not run yet."
        return
    heads = [f"{ranks} rank{'s' * (ranks > 1)} a machine" for ranks in taken]
    yield f"| ms a step | {' | '.join(heads)} |"
    yield "|---" * (1 + len(heads)) + "|"
    for way, title in TITLES.items():
        cells = [_cell(row["ms"], way) for row in taken.values()]
        if any(cells):
            yield f"| {title} | {' | '.join(cells)} |"
    yield ""
    alone = [f"{row['ms'][ALONE]['median']:.0f}" for row in taken.values() if ALONE in row["ms"]]
    if alone:
        yield (
            f"Computing takes {' and '.join(alone)} ms of a step with DistributedDataParallel. "
            "In brackets: times as fast as the first row."
        )
    rows = list(taken.values())
    machines = " and ".join(sorted({", ".join(row["machine"].split(", ")[:2]) for row in rows}))
    loads = " and ".join(f"{row['load'][0]:.1f} to {row['load'][1]:.1f}" for row in rows)
    yield f"Measured on {machines}, {rows[-1]['date']}, load {loads}."


def _cell(ms: Mapping[str, Any], way: str) -> str:
    if way not in ms:
        return ""
    own, base = ms[way]["median"], ms["gloo"]["median"]
    return f"{own:,.0f}" if way == "gloo" else f"{own:,.0f} ({base / own:.2f})"


def publish(results: Results, page: Path = PAGE) -> None:
    """Write the table."""
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}{between(results)}{END}{rest.split(END)[1]}")


def between(results: Results) -> str:
    """Return what the page has between its marks."""
    return "\n\n" + "\n".join(table(results.times)) + "\n\n"


def main() -> None:
    """Measure what was not measured, and publish."""
    parser = argparse.ArgumentParser(prog="python -m checks.lab.machine_trainings", description=__doc__)
    parser.add_argument("--ranks", nargs="+", type=int, default=RANKS, help="on each machine")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=1, help="of a rank's computing; others than 1 are only printed")
    parser.add_argument("--again", action="store_true", help="measure also what has been")
    parser.add_argument("--publish", action="store_true", help="write the table of docs/slow-links.md afterwards")
    options = parser.parse_args()
    known = Results.read(KEPT).times
    is_kept = options.threads == 1
    missing = [ranks for ranks in options.ranks if options.again or not is_kept or str(ranks) not in known]
    with Children() as children:
        laid = lay(children, MACHINES, rate=RATE, mtu=MTU) if missing else []
        for ranks in missing:
            row = measure(laid, ranks, options.rounds, options.steps, options.threads)
            if is_kept:
                with added_to(KEPT) as results:
                    results.times[str(ranks)] = row
            else:
                say("\n".join(f"{way}: {ms['median']:.1f} ms" for way, ms in row["ms"].items()))
    if options.publish:
        publish(Results.read(KEPT))
        ages.mark()


if __name__ == "__main__":
    if os.environ.get("SWITCHSUM_IN_LAB") != "1":  # bridge and links are in a namespace of their own
        inside: Sequence[str] = ["unshare", "--net", "--", sys.executable, "-m", "checks.lab.machine_trainings"]
        there = {**os.environ, "SWITCHSUM_IN_LAB": "1"}
        sys.exit(subprocess.run([*inside, *sys.argv[1:]], env=there, check=False).returncode)
    main()
