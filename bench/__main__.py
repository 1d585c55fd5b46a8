"""Run the benchmarks: `python -m bench`, or `--only switch`, `allreduce`, `veth`, `loss` or `load`."""

from __future__ import annotations

import argparse
from importlib import import_module

from rich.console import Console

from bench.page import publish
from bench.records import RESULTS, machine, save, show

TABLE_COLUMNS = 120
"""For output into files."""
PARTS = ("switch", "allreduce", "veth", "loss", "load")


def main() -> None:
    """Measure, print tables, write records."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--publish", action="store_true", help="only write the recorded figures into README and docs")
    options = parser.parse_args()
    if options.publish:
        publish()
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_COLUMNS)
    console.print(machine())
    for part in PARTS if options.only is None else (options.only,):
        records = import_module(f"bench.{part}").run()
        show(console, part, records)
        save(records)
    console.print(f"written to {RESULTS.relative_to(RESULTS.parent.parent.parent)}")


if __name__ == "__main__":
    main()
