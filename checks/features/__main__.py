"""Plays rows in which every three features meet, until all are played or the time is over.

Run: python -m checks.features [--seconds 600] [--seed 20261129] [--row 17] [--first 40] [--memory]

The seed is the day's if none is given, and is printed.  A row that is not right is printed with its number: `--row`
plays it again.  The last line says which row would have been next: `--first` goes on there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from switchsum.launch import wires
from switchsum_protocol.errors import LocalError
from switchsum_switch.process.children import Children

from .columns import COLUMNS, is_possible
from .covering import cover, possible_rows
from .judging import Judge
from .playing import Fleet, Processes, play_in_memory


def main() -> None:
    """Play, print, judge."""
    options = argparse.ArgumentParser(prog="python -m checks.features", description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--seed", type=int, default=int(datetime.now(UTC).strftime("%Y%m%d")))
    options.add_argument("--row", type=int, action="append", help="only this one")
    options.add_argument("--first", type=int, default=0, help="begin at this row")
    options.add_argument("--memory", action="store_true", help="only rows whose ranks are in one process")
    given = options.parse_args()
    has_wires = not given.memory and _is_in_namespace()  # which starts this program again
    rows = cover(possible_rows(COLUMNS, is_possible), given.seed)
    numbers = given.row or range(given.first, len(rows))
    chosen = [(number, row) for number, row in enumerate(rows) if number in numbers]
    chosen = [(number, row) for number, row in chosen if not given.memory or row["link"] == "memory"]
    chosen = [(number, row) for number, row in chosen if has_wires or row["link"] != "veth"]
    print(f"seed {given.seed}: {len(chosen)} of {len(rows)} rows", flush=True)
    judge, played, wrong, following = Judge(), 0, 0, "none"
    with tempfile.TemporaryDirectory(prefix="switchsum-features-") as scratch, Children() as children:
        has_processes = any(row["link"] != "memory" for _, row in chosen)
        processes = Processes(Fleet(children, Path(scratch), has_wires=has_wires)) if has_processes else None
        began = time.monotonic()
        try:
            for number, row in chosen:
                if time.monotonic() > began + given.seconds:
                    following = str(number)
                    break
                jobs = (
                    play_in_memory(row, number)
                    if row["link"] == "memory" or processes is None
                    else processes.play(row, number)
                )
                faults = judge.faults(row, number, jobs)
                played, wrong = played + 1, wrong + bool(faults)
                for fault in faults:
                    print(f"row {number} ({', '.join(row.values())}): {fault}", flush=True)
        finally:
            if processes is not None:
                processes.close()
    spent_s = time.monotonic() - began
    print(f"{played} rows in {spent_s:.0f} s, {wrong} of which are not right (seed {given.seed}); next: {following}")
    raise SystemExit(wrong > 0)


def _is_in_namespace() -> bool:
    """Go into a network namespace, in which ranks can have wires; say why this machine does not let us."""
    try:
        wires.enter_namespace([sys.executable, "-m", "checks.features"])
    except LocalError as error:
        print(f"no rows with veth: {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    main()
