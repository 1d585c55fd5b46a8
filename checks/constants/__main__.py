"""Tries the recovery of a worker without each of its constants, on rough networks that may need it.

Run: python -m checks.constants [--only window] [--cells 200 --seed 7 --kinds queue,mark] [--publish]

Simulates the fixed cells of `checks.rough` with each constant at the values that switch it off, and keeps what falls
(ten minutes of a core).  With `--cells` it looks for a cell among random ones instead, and prints
those that hold their bounds with the constant and fall without it.  `--publish` writes the table of docs/recovery.md.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, Final

from checks.bench.records import provenance
from checks.constants import page
from checks.constants.neutral import ELSEWHERE, NEUTRAL
from checks.constants.sources import Constant, constants
from checks.constants.trying import Found, Trier, outcomes
from checks.rough import short
from checks.rough.cells import Cell
from checks.rough.drawing import KINDS, draw
from checks.rough.running import Outcome

_OF_A_RECORD: Final = ("commit", "code", "date")


def fallen(cells: Mapping[str, Cell], usual: Found, found: Found) -> dict[str, str]:
    """Return the cells that hold their bounds as things are and fall with a change, with what they miss."""
    falls = {}
    for name, cell in cells.items():
        limits = short.bounds(name) if name in short.CELLS else short.bounds_of(cell)
        if not limits.missed(_outcome(cell, usual[name])) and (missed := limits.missed(_outcome(cell, found[name]))):
            falls[name] = missed
    return falls


def _outcome(cell: Cell, found: Mapping[str, Any]) -> Outcome:
    recovery = max(0.0, found["took_s"] - cell.bound_s) / cell.timeout_s
    return Outcome(bound_s=cell.bound_s, recovery=recovery, **found)


def try_one(trier: Trier, one: Constant, cells: Mapping[str, Cell], usual: Found) -> dict[str, dict[str, Any]]:
    """Try a constant's values, until something falls; return what fell, by value.  Prints a line for each."""
    tries: dict[str, dict[str, Any]] = {}
    for value in NEUTRAL[one.name]:
        found = trier.found(one, value)
        falls = fallen(cells, usual, found)
        moved = sum(found[name]["digest"] != usual[name]["digest"] for name in cells)
        tries[f"{value:g}"] = {"falls": falls, "moved": moved}
        lines = [f"{one.name} = {one.value}, with {value:g}: {len(falls)} fall, {moved} go another way"]
        lines += [f"  {name if name in short.CELLS else f'{name} {cells[name].text}'}: {falls[name]}" for name in falls]
        print(*lines, sep="\n", flush=True)
        if falls:
            break
    return tries


def try_all(chosen: Sequence[Constant], cells: Mapping[str, Cell], processes: int) -> Iterator[tuple[Constant, Any]]:
    """Try constants in some processes; yield each with what fell.

    Raises RuntimeError where reading constants from memory makes a difference by itself.
    """
    texts = {name: cell.text for name, cell in cells.items()}
    usual = outcomes([*texts.items()])
    triers: SimpleQueue[Trier] = SimpleQueue()

    def with_one(one: Constant) -> dict[str, dict[str, Any]]:
        trier = triers.get()
        try:
            return try_one(trier, one, cells, usual)
        finally:
            triers.put(trier)

    with ExitStack() as opened, ThreadPoolExecutor(processes) as pool:
        for _ in range(processes):
            trier = Trier(texts)
            opened.callback(trier.close)
            triers.put(trier)
        first = triers.get()
        if others := [name for name, one in first.found().items() if one != usual[name]]:
            raise RuntimeError(f"without a change these go another way: {', '.join(others)}")
        triers.put(first)
        yield from zip(chosen, pool.map(with_one, chosen), strict=True)


def main() -> None:
    """Try, keep, publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="constants whose names match this regular expression")
    parser.add_argument("--untouched", action="store_true", help="only those without which no fixed cell fell")
    parser.add_argument("--cells", type=int, default=0, help="so many random cells in place of the fixed ones")
    parser.add_argument("--first", type=int, default=0, help="number of the first random cell")
    parser.add_argument("--seed", type=int, default=int(datetime.now(UTC).strftime("%Y%m%d")))
    parser.add_argument("--kinds", default="", help="of random cells, with commas between them")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--publish", action="store_true", help="write the table of docs/recovery.md, and try nothing")
    options = parser.parse_args()
    if options.publish:
        page.publish()
        return
    kinds = tuple(name.strip() for name in options.kinds.split(",") if name.strip())
    if unknown := {*kinds} - {*KINDS}:
        parser.error(f"there are no kinds {', '.join(sorted(unknown))}: {', '.join(KINDS)}")
    known, began = page.kept(), time.monotonic()
    chosen = [one for name, one in constants().items() if name in NEUTRAL and re.search(options.only, name)]
    if options.untouched:
        chosen = [one for one in chosen if one.name not in ELSEWHERE and not is_needed(known.get(one.name, {}))]
    cells: Mapping[str, Cell] = short.CELLS
    if options.cells:
        numbers = range(options.first, options.first + options.cells)
        cells = {f"{options.seed}:{number}": draw(options.seed, number, kinds) for number in numbers}
    of_a_record = {key: value for key, value in provenance().items() if key in _OF_A_RECORD}
    for one, tries in try_all(chosen, cells, min(max(1, options.processes), len(chosen))):
        if not options.cells:
            page.keep({one.name: {"value": one.value, "tries": tries, **of_a_record}})
    print(f"{len(chosen)} constants in {time.monotonic() - began:.0f} s")


def is_needed(row: Mapping[str, Any]) -> bool:
    """Tell whether a fixed cell was seen to fall without a constant."""
    return any(one["falls"] for one in row.get("tries", {}).values())


if __name__ == "__main__":
    main()
