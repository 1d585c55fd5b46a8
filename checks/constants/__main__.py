"""Tries the recovery of a worker without each of its constants, on rough networks that may need it.

Run: python -m checks.constants [--only window] [--cells 200 --seed 7 --kinds queue,mark] [--publish]

Simulates the fixed cells of `checks.rough` with each constant at the values that switch it off, and keeps what falls
(half a minute of a core for each value).  With `--cells` it looks for a cell among random ones instead, and prints
those that hold their bounds with the constant and fall without it.  `--publish` writes the table of docs/recovery.md.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from checks.bench.records import provenance
from checks.constants import page
from checks.constants.neutral import NEUTRAL
from checks.constants.sources import Constant, constants
from checks.constants.trying import tried
from checks.rough import short
from checks.rough.cells import Cell
from checks.rough.drawing import KINDS, draw
from checks.rough.running import Outcome

_OF_A_RECORD: Final = ("commit", "code", "date")


def fallen(cells: Mapping[str, Cell], usual: Mapping[str, Outcome], found: Mapping[str, Outcome]) -> dict[str, str]:
    """Return the cells that hold their bounds as things are and fall with a change, with what they miss."""
    falls = {}
    for name, cell in cells.items():
        limits = short.bounds(name) if name in short.CELLS else short.bounds_of(cell)
        if not limits.missed(usual[name]) and (missed := limits.missed(found[name])):
            falls[name] = missed
    return falls


def try_one(
    constant: Constant, cells: Mapping[str, Cell], usual: Mapping[str, Outcome]
) -> tuple[Constant, dict[str, dict[str, Any]]]:
    """Try a constant's values, until something falls; return what fell, by value.  Prints a line for each."""
    found: dict[str, dict[str, Any]] = {}
    for value in NEUTRAL[constant.name]:
        outcomes = tried(constant, value, cells)
        falls = fallen(cells, usual, outcomes)
        moved = sum(outcomes[name].digest != usual[name].digest for name in cells)
        found[value] = {"falls": falls, "moved": moved}
        print(f"{constant.name} = {constant.value}, with {value}: {len(falls)} fall, {moved} move", flush=True)
        for name, missed in falls.items():
            print(f"  {name if name in short.CELLS else f'{name} {cells[name].text}'}: {missed}", flush=True)
        if falls:
            break
    return constant, found


def main() -> None:
    """Try, keep, publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="constants whose names match this regular expression")
    parser.add_argument(
        "--untouched", action="store_true", help="only those without which no fixed cell was seen to fall"
    )
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
    named = {name: one for name, one in constants().items() if name in NEUTRAL and re.search(options.only, name)}
    if options.untouched:
        named = {name: one for name, one in named.items() if not is_needed(known.get(name, {}))}
    cells: Mapping[str, Cell] = short.CELLS
    if options.cells:
        numbers = range(options.first, options.first + options.cells)
        cells = {f"{options.seed}:{number}": draw(options.seed, number, kinds) for number in numbers}
    usual = tried(None, "", cells)
    of_a_record = {key: value for key, value in provenance().items() if key in _OF_A_RECORD}
    with ThreadPoolExecutor(max(1, options.processes)) as pool:
        for one, found in pool.map(lambda one: try_one(one, cells, usual), named.values()):
            if not options.cells:
                page.keep({one.name: {"value": one.value, "tries": found, **of_a_record}})
    print(f"{len(named)} constants in {time.monotonic() - began:.0f} s")


def is_needed(row: Mapping[str, Any]) -> bool:
    """Tell whether a fixed cell was seen to fall without a constant."""
    return any(one["falls"] for one in row.get("tries", {}).values())


if __name__ == "__main__":
    main()
