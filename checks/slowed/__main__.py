"""Slows the worker down in many ways, and sees that a gate of speed fails each time.

Run: python -m checks.slowed [--only NAME] [--processes 2]

Each way changes a copy of the repository.  Rough networks in virtual time come first (`checks.rough --short`), and then
whole calls (`checks.bench.calls`, of which `make bench-small` is a part).  What these do not notice has to fail on slow
links (`checks.line`).  The last two need root.  Exits with 1 where one goes unnoticed, or where the copy without a
change fails.  Each is compiled first: what the change cannot be part of is taken from the cache.
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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from checks.clone import ROOT, import_path
from checks.compiled import copy_code
from switchsum_switch.kernels.cache import CACHE_VARIABLE

from .slowdowns import SLOWDOWNS, Slowdown

GATES: Final = (("checks.rough", "--short"), ("checks.bench.calls",), ("checks.line", "--all-loads"))
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


def noticed_by(folder: Path, cache: Path) -> str:
    """Run the gates in a copy; return the one that fails with its first line of why, or nothing."""
    environment = {**os.environ, "PYTHONPATH": import_path(folder), CACHE_VARIABLE: str(cache)}
    for gate in GATES:
        done = _run(gate, folder, environment)
        if done.returncode:
            falls = [line for line in done.stdout.splitlines() if line.startswith(("FALLS", "too slow"))]
            why = falls[0] if falls else (done.stderr.strip().splitlines() or ["no output"])[-1]
            return f"{gate[0]}: {len(falls)} fall; {why[:150]}"
    return ""


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def judge(one: Slowdown | None) -> bool:
    """Slow a copy down, and run the gates; print which one has noticed it, and return whether that is right."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="switchsum-slowed-") as scratch:
        folder, cache = Path(scratch, "clone"), Path(scratch, "cache")
        copy(folder)
        changed = []
        if one is not None:
            one.apply(folder)
            changed.append(one.module)
        environment = {**os.environ, "PYTHONPATH": import_path(folder)}
        digest = _run(["checks.compiled"], folder, environment).stdout.strip()
        copy_code(cache, digest, changed)
        found = noticed_by(folder, cache)
    is_right = bool(found) == (one is not None)
    name = one.name if one else "no change"
    says = f"noticed by {found}" if found else "nothing falls"
    print(f"{'right' if is_right else 'WRONG'}  {name}: {says} ({time.monotonic() - began:.0f} s)", flush=True)
    return is_right


def main() -> int:
    """Print each slowdown and which gate has noticed it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="slowdowns whose names match this regular expression")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="so many side by side")
    options = parser.parse_args()
    chosen: list[Slowdown | None] = [one for one in SLOWDOWNS if re.search(options.only, one.name)]
    began = time.monotonic()
    if not judge(None):  # alone: it fills the cache, and `checks.line` has the machine for itself
        return 1
    with ThreadPoolExecutor(options.processes) as pool:
        right = [*pool.map(judge, chosen)]
    print(f"{sum(right)} of {len(right)} slowdowns are noticed, in {time.monotonic() - began:.0f} s")
    return int(not all(right))


if __name__ == "__main__":
    sys.exit(main())
