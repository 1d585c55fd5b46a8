"""Draws rough networks, adds on each, and says how near that came to what is possible.

Run: python -m checks.rough [--seed 7] [--cells 300] [--first 0] [--kinds plain,queue] [--cell JSON] [--short]

The seed is the day's if none is given, and is printed.  `--first` continues a run that was stopped.  A line is printed
for each cell that does not hold its bounds; `--cell` simulates the cell of such a line again.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

from . import short
from .cells import Cell
from .drawing import KINDS, draw
from .report import Row, line, table
from .running import Outcome, run


def _run(one: tuple[str, Cell]) -> Row:
    name, cell = one
    try:
        outcome = run(cell)
    except Exception as error:  # a cell that cannot be simulated must not end thousands of others
        outcome = Outcome(bound_s=cell.bound_s, took_s=0.0, repeats=0.0, error=f"{type(error).__name__}: {error}"[:160])
    return Row(name=name, cell=cell, outcome=outcome)


def _rows(chosen: Iterable[tuple[str, Cell]], processes: int) -> Iterator[Row]:
    """Yield rows in order, as they come."""
    if processes == 1:
        yield from map(_run, chosen)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_run, chosen, chunksize=4)


def main() -> None:
    """Print lines, and a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=int(datetime.now(UTC).strftime("%Y%m%d")))
    options.add_argument("--cells", type=int, default=300)
    options.add_argument("--first", type=int, default=0, help="number of the first cell")
    options.add_argument("--kinds", default="", help="only these kinds, with commas between them")
    options.add_argument("--cell", default="", help="one cell, as a line shows it")
    options.add_argument("--short", action="store_true", help="the fixed cells")
    options.add_argument("--all", action="store_true", help="print all cells")
    options.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    given = options.parse_args()
    kinds = tuple(name.strip() for name in given.kinds.split(",") if name.strip())
    if unknown := {*kinds} - {*KINDS}:
        raise SystemExit(f"there are no kinds {', '.join(sorted(unknown))}: {', '.join(KINDS)}")
    if given.cell:
        chosen = [("cell", Cell.read(given.cell))]
    elif given.short:
        chosen = [*short.CELLS.items()]
    else:
        print(f"seed {given.seed}, cells {given.first} to {given.first + given.cells - 1}", flush=True)
        numbers = range(given.first, given.first + given.cells)
        chosen = [(f"{given.seed}:{number}", draw(given.seed, number, kinds)) for number in numbers]
    began, rows, fallen = time.monotonic(), [], 0
    for row in _rows(chosen, min(given.processes, len(chosen))):
        rows.append(row)
        limits = short.bounds(row.name) if given.short else short.bounds_of(row.cell)
        missed = limits.missed(row.outcome)
        fallen += bool(missed)
        if given.all or given.cell or missed:
            print(f"{'FALLS: ' + missed if missed else 'holds'} - {line(row)}", flush=True)
    print(*table(rows), sep="\n")
    print(f"{len(rows)} cells in {time.monotonic() - began:.0f} s, {fallen} of which do not hold their bounds")
    raise SystemExit(fallen > 0)


if __name__ == "__main__":
    main()
