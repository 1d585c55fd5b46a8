"""Slows the worker down in ten ways, and sees that a gate of speed fails each time.

Run: python -m checks.slowed [--only NAME]

Each way changes a copy of the repository.  Rough networks in virtual time come first (`checks.rough --short`).
What they do not notice has to fail on slow links (`checks.line`, which needs root).  Exits with 1 where one goes
unnoticed, or where the copy without a change fails.  Each takes half a minute to compile.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from checks.clone import ROOT, import_path

from .slowdowns import SLOWDOWNS, Slowdown

GATES: Final = (("checks.rough", "--short"), ("checks.line", "--all-loads"))
LONGEST_S: Final = 900.0


def copy(to: Path) -> None:
    """Copy what git tracks, and what it does not ignore."""
    named = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, named.stdout.decode().split("\0")):
        source, target = ROOT / name, to / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def noticed_by(folder: Path) -> str:
    """Run the gates in a copy; return the one that fails with its first line of why, or nothing."""
    environment = {**os.environ, "PYTHONPATH": import_path(folder)}
    for gate in GATES:
        done = subprocess.run(
            [sys.executable, "-m", *gate],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        if done.returncode:
            falls = [line for line in done.stdout.splitlines() if line.startswith("FALLS")]
            why = falls[0] if falls else (done.stderr.strip().splitlines() or ["no output"])[-1]
            return f"{gate[0]}: {len(falls)} fall; {why[:150]}"
    return ""


def main() -> int:
    """Print each slowdown and which gate has noticed it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="slowdowns whose names match this regular expression")
    chosen: list[Slowdown | None] = [one for one in SLOWDOWNS if re.search(parser.parse_args().only, one.name)]
    failed = 0
    for one in [None, *chosen]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="switchsum-slowed-") as scratch:
            copy(Path(scratch))
            if one is not None:
                one.apply(Path(scratch))
            found = noticed_by(Path(scratch))
        is_right = bool(found) == (one is not None)
        failed += not is_right
        name = one.name if one else "no change"
        says = f"noticed by {found}" if found else "nothing falls"
        print(f"{'right' if is_right else 'WRONG'}  {name}: {says} ({time.monotonic() - began:.0f} s)", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
