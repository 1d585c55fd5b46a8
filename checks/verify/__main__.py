"""Check the protocol: `python -m checks.verify`, or `--quick` for the subset that continuous integration runs."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.progress import track
from rich.table import Table

from checks.verify.configurations import CONFIGURATIONS
from checks.verify.designs import DESIGNS
from checks.verify.quorums import QUORUMS
from checks.verify.search import SearchError, missing_tool, search
from checks.verify.trees import TREES

TABLE_COLUMNS = 120
"""For output into files."""


def main() -> None:
    """Search each configuration and print what was found; exit with 1 when something else was expected."""
    parser = argparse.ArgumentParser(prog="python -m checks.verify", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave the long searches out")
    parser.add_argument("--only", default="", help="configurations whose names contain this")
    options = parser.parse_args()
    if tool := missing_tool():
        sys.exit(f"{tool} is not on PATH (Debian and Ubuntu: apt install spin gcc libc6-dev)")
    everything = (*CONFIGURATIONS, *TREES, *QUORUMS, *DESIGNS)
    chosen = [c for c in everything if options.only in c.name and not (options.quick and c.is_long)]
    table = Table("configuration", "outcome", "expected", "states", "depth", "seconds")
    for column in table.columns[3:]:
        column.justify = "right"
    total, unexpected = 0, 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for finding in track(pool.map(search, chosen), "searching", len(chosen), console=Console(stderr=True)):
                total += finding.states
                unexpected += not finding.is_expected
                table.add_row(
                    finding.configuration.name,
                    str(finding.outcome),
                    "yes" if finding.is_expected else f"NO: {', '.join(finding.configuration.outcomes)}",
                    f"{finding.states:,}",
                    str(finding.depth),
                    f"{finding.seconds:.1f}",
                )
        except SearchError as error:
            pool.shutdown(cancel_futures=True)
            sys.exit(str(error))
    console = Console()
    (console if console.is_terminal else Console(width=TABLE_COLUMNS)).print(table)
    print(f"{len(chosen)} searches, {total:,} states, {unexpected} unexpected")
    sys.exit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
