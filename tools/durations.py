"""Print what files of tests take, the longest first: of logs of `make test-all ARGS=--durations=0 | tee LOG`.

A file that support/slow.txt leaves to `make test-rest` is marked with an r.  The sums say whether `make test` still
takes as long as somebody waits for; of a file that is divided only single tests are in one of them.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

from support.suites import places

LINE: Final = re.compile(r"^([\d.]+)s (?:setup|call|teardown) +(([^:\s]+\.py)::.*)$", re.MULTILINE)


def durations(log: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of each file in a log: of quick tests, and of those that support/slow.txt names."""
    slow = places()
    sums: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for seconds, test, file in LINE.findall(log):
        of_files = sums[test.startswith(slow)]
        of_files[file] = of_files.get(file, 0) + float(seconds)
    return sums


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--processes", type=int, default=3, help="of tests, beside one another (three on two cores)")
    options = parser.parse_args()
    quick, rest = durations("\n".join(path.read_text() for path in options.logs))
    rows = [(seconds, " ", file) for file, seconds in quick.items()] + [(s, "r", file) for file, s in rest.items()]
    for seconds, mark, file in sorted(rows, reverse=True):
        print(f"{seconds:8.1f} s {mark} {file}")
    for name, sums in (("quick tests", quick), ("support/slow.txt", rest)):
        total = sum(sums.values())
        print(f"{total:8.1f} s   {name}: about {total / options.processes:.0f} s in {options.processes} processes")


if __name__ == "__main__":
    main()
