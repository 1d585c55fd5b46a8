"""Build the three distributions, and try them in empty environments: `make dist` (needs the network).

Wheels and sdists of switchsum-switch, switchsum and switchsum-lab come to `dist/`.  Then each Python that is named, or
else each from 3.11 on that is on PATH, gets two environments of its own: one with the switch's wheel alone, in which a
P4 program runs, and one with all three, in which two ranks add and a simulation runs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("switch", ".", "lab")
"""Of the distributions, each after those that it needs."""
MINORS: Final = range(11, 20)
SUM: Final = """
import numpy as np, switchsum
with switchsum.connect() as comm:
    print(comm.allreduce(np.ones(3, np.float32)))
"""
ALONE: Final = """
import sys
from switchsum_switch import Switch
switch = Switch.from_file(sys.argv[1])
assert switch.process(1, bytes(60)) is not None
assert not any(name.partition(".")[0] in ("switchsum", "switchsum_host") for name in sys.modules)
print("a program runs")
"""


def build(into: Path) -> dict[str, Path]:
    """Build a wheel and an sdist of each distribution; return the wheels by the folders of the distributions."""
    wheels = {}
    for folder in FOLDERS:
        for kind in ("sdist", "wheel"):
            command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(into)]
            done = subprocess.run(command, cwd=ROOT / folder, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{folder}: {done.stdout}{done.stderr}")
            made = into / re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).split()[-1].rpartition("/")[2]
            print(made.relative_to(ROOT) if made.is_relative_to(ROOT) else made, flush=True)
            if kind == "wheel":
                wheels[folder] = made
    return wheels


def pythons() -> Iterator[str]:
    """Yield the interpreters on PATH, from 3.11 on."""
    for minor in MINORS:
        if (found := shutil.which(f"python3.{minor}")) is not None:
            yield found


def try_out(python: str, wheels: Sequence[Path], commands: Sequence[Sequence[str]]) -> None:
    """Install wheels into an empty environment and run commands of it; the first word of each is below its bin."""
    with tempfile.TemporaryDirectory(prefix="switchsum-dist-") as scratch:
        environment = {**os.environ, "XDG_CACHE_HOME": f"{scratch}/cache"}
        environment.pop("PYTHONPATH", None)
        subprocess.run([python, "-m", "venv", f"{scratch}/venv"], check=True)
        install = [f"{scratch}/venv/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *(str(wheel) for wheel in wheels)], check=True, env=environment)
        for command in commands:
            done = subprocess.run(
                [f"{scratch}/venv/bin/{command[0]}", *command[1:]],
                cwd=scratch,
                env={**environment, "PATH": f"{scratch}/venv/bin:{environment['PATH']}"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(f"{python}: {' '.join(command)}: {done.stdout}{done.stderr}")
            print(f"  {command[0]}: {(done.stdout.strip().splitlines() or [''])[-1]}", flush=True)


def main() -> None:
    """Build, and try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", help="interpreters")
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    shutil.rmtree(options.into, ignore_errors=True)
    wheels = build(options.into)
    program = str(ROOT / "exercises" / "switchsum_exercises" / "forwarder" / "solution.json")
    for python in options.pythons or pythons():
        print(python, flush=True)
        try_out(python, [wheels["switch"]], [["python", "-c", ALONE, program], ["switchsum-bmv2", "--help"]])
        run = ["switchsum", "run", "-n", "2", "--", "python", "-c", SUM]
        simulate = ["switchsum", "simulate", "--workers", "4", "--bytes", "100kB", "--json"]
        try_out(python, list(wheels.values()), [["switchsum", "--version"], run, simulate])


if __name__ == "__main__":
    main()
