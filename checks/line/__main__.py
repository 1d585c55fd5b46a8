"""Adds on slow links, and fails where a call leaves a part of the line idle, or repeats what was not lost.

Run as root: python -m checks.line [--only NAME] [--all-loads]

A slow link does not depend on the processor.  So the bounds hold on a busy machine, too, up to a load of 8; above it
the cells are skipped by name.  A cell that does not hold its bounds gets a second try, for a machine may stand still.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .cells import CELLS, REPEATS, SHARE, SPENT_BYTES, Cell

MOST_LOAD: Final = 8.0
TRIES: Final = 2
SIDE_BY_SIDE: Final = 3
LONGEST_S: Final = 180.0
"""Seconds after which a cell is stopped: it takes about ten, and a minute more where kernels are compiled first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cell went."""

    shares: Sequence[float] = ()
    """Share of the line that each call reached: two in a row, and one after a pause."""
    repeats: float = 0.0
    """Repeats for each contribution."""
    error: str = ""

    @property
    def holds(self) -> bool:
        """Whether the bounds are held."""
        return not self.error and min(self.shares) >= SHARE and self.repeats <= REPEATS

    @property
    def text(self) -> str:
        """The outcome in words."""
        if self.error:
            return self.error
        return f"{' '.join(f'{100 * share:5.1f} %' for share in self.shares)} of the line, repeats {self.repeats:.3f}"


def measure(cell: Cell) -> Outcome:
    """Run a cell's job once."""
    with tempfile.TemporaryDirectory(prefix="switchsum-line-") as scratch:
        path, network = Path(scratch, "calls.json"), Path(scratch, "network.yaml")
        if cell.racks:
            network.write_text(cell.topology())
        job = [sys.executable, "-m", "checks.line.worker", str(cell.call_bytes), str(SPENT_BYTES), str(path)]
        command = [sys.executable, "-m", "switchsum", "run", *cell.options(str(network)), "--", *job]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        except subprocess.TimeoutExpired:
            return Outcome(error=f"not done within {LONGEST_S:g} s")
        if done.returncode:
            return Outcome(error=f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        calls = json.loads(path.read_text())
    shares = [cell.call_bytes / cell.bytes_per_s / call["seconds"] for call in calls]
    return Outcome(shares, sum(call["repeats"] for call in calls) / sum(call["contributions"] for call in calls))


def hold(cell: Cell) -> bool:
    """Measure a cell until it holds its bounds, `TRIES` times at most; print each try."""
    for last in range(TRIES):
        found = measure(cell)
        how = "holds" if found.holds else "FALLS"
        print(f"{how}  {cell.name:20} {cell.workers} workers, slots {cell.slots:4} {found.text}", flush=True)
        if found.holds or last == TRIES - 1:
            break
    return found.holds


def main() -> int:
    """Run the cells; return 1 if one does not hold its bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cells whose names match this regular expression")
    parser.add_argument("--all-loads", action="store_true", help="also at a load above 8")
    options = parser.parse_args()
    chosen = [cell for cell in CELLS if re.search(options.only, cell.name)]
    load, began = os.getloadavg()[0], time.monotonic()
    print(f"load {load:.1f} on {os.cpu_count()} processors")
    if os.geteuid() != 0 or (load > MOST_LOAD and not options.all_loads):
        why = f"the load is {load:.1f}, above {MOST_LOAD:g}" if os.geteuid() == 0 else "laying links needs root"
        print(*(f"skipped: {cell.name}: {why}" for cell in chosen), sep="\n")
        return 0
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        held = [*pool.map(hold, [cell for cell in chosen if cell.is_slow])]
    held += [hold(cell) for cell in chosen if not cell.is_slow]
    print(f"{sum(held)} of {len(held)} cells hold their bounds, in {time.monotonic() - began:.0f} s")
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
