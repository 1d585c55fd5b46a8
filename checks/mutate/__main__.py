"""Change the rules, one at a time, and see that a test or a check notices: `python -m checks.mutate`.

Exits with 1 when a change goes unnoticed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

# Before numba is imported: the worker's kernels run as plain Python, which reads the changed table.
os.environ["NUMBA_DISABLE_JIT"] = "1"

from rich.console import Console
from rich.progress import track

from checks.mutate import engine, hand_over, slot, worker
from checks.verify.search import missing_tool

PARTS = {"worker": worker.mutants, "slot": slot.mutants, "controller": hand_over.mutants, "engine": engine.mutants}
LONG = {"engine"}
"""Parts that take hours, and are made by their name alone."""


def main() -> None:
    """Print every change that goes unnoticed, and how many there were of each side."""
    parser = argparse.ArgumentParser(prog="python -m checks.mutate", description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="one part; engine, which takes long, is left out otherwise")
    chosen = parser.parse_args().only
    if tool := missing_tool():
        sys.exit(f"{tool} is not on PATH (Debian and Ubuntu: apt install spin gcc libc6-dev)")
    survivors = 0
    for part, mutants in PARTS.items():
        if chosen != part and (chosen is not None or part in LONG):
            continue
        tried: dict[str, int] = {}
        began = time.monotonic()
        for mutant in track(mutants(), f"changes of the {part}", total=None, console=Console(stderr=True)):
            tried[mutant.side] = tried.get(mutant.side, 0) + 1
            if not mutant.is_noticed():
                survivors += 1
                print(f"{mutant.side}: {mutant.name}: unnoticed", flush=True)
        counts = ", ".join(f"{side}: {count}" for side, count in tried.items())
        print(f"changes of the {counts} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{survivors} unnoticed")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
