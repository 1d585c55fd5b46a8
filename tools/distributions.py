"""Build the three distributions, and try them in empty environments: `make dist` (needs the network).

Wheels and sdists of switchsum-switch, switchsum and switchsum-lab come to `dist/`.  Then each Python that is named, or
else each from 3.11 on that is on PATH, gets two environments of its own: one with the switch's wheel alone, one with
all three.  In each the examples of the READMEs run and say what the pages show.
"""

from __future__ import annotations

import argparse
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("switch", ".", "lab")
"""Of the distributions, each after those that it needs."""
MINORS: Final = range(11, 20)
README, LABORATORY = ((ROOT / page).read_text() for page in ("README.md", "lab/README.md"))
PROGRAM: Final = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
SUM: Final = re.findall(r"^\[rank 0\] .*", README, re.MULTILINE)[0]
SIMULATION, SIMULATED = re.findall(r"```console\n\$ (switchsum simulate .*?)\n(.*?)```", LABORATORY, re.DOTALL)[0]
NOTHING_ELSE: Final = """
import sys, switchsum_switch
assert switchsum_switch.Switch
print(*sorted({name.partition(".")[0] for name in sys.modules if name.startswith("switchsum")}))
"""


@dataclass(frozen=True, slots=True)
class Example:
    """A command in an environment, and what it has to say among other lines; with dots for what may differ."""

    command: Sequence[str]
    says: str
    folder: Path | None = None


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


def try_out(python: str, wheels: Sequence[Path], examples: Sequence[Example]) -> None:
    """Install wheels into an empty environment and run examples with it."""
    with tempfile.TemporaryDirectory(prefix="switchsum-dist-") as scratch:
        (Path(scratch) / "train.py").write_text(PROGRAM)
        environment = {**os.environ, "XDG_CACHE_HOME": f"{scratch}/cache", "PYTHONUNBUFFERED": "1"}
        environment.pop("PYTHONPATH", None)
        environment["PATH"] = f"{scratch}/venv/bin:{environment['PATH']}"
        subprocess.run([python, "-m", "venv", f"{scratch}/venv"], check=True)
        install = [f"{scratch}/venv/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *(str(wheel) for wheel in wheels)], check=True, env=environment)
        for example in examples:
            done = subprocess.run(
                [f"{scratch}/venv/bin/{example.command[0]}", *example.command[1:]],
                cwd=example.folder or scratch,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            said = "\n".join(line.rstrip() for line in done.stdout.splitlines())
            is_right = doctest.OutputChecker().check_output(f"...{example.says}...", f"\n{said}\n", doctest.ELLIPSIS)
            if done.returncode or not is_right:
                sys.exit(f"{python}: {' '.join(example.command)}: {done.stdout}{done.stderr}")
            print(f"  right: {' '.join(example.command)[:100].splitlines()[0]}", flush=True)


def main() -> None:
    """Build, and try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", help="interpreters")
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    shutil.rmtree(options.into, ignore_errors=True)
    wheels = build(options.into)
    alone = [
        Example(["python", "-c", NOTHING_ELSE], "switchsum_switch"),
        Example(["python", "-m", "doctest", "switch/README.md"], "", ROOT),
        Example(["switchsum-bmv2", "--help"], "--grpc-server-addr"),
    ]
    together = [
        Example(["switchsum", "--version"], "switchsum "),
        Example(["switchsum", "run", "-n", "4", "--", "python", "train.py"], SUM),
        Example(shlex.split(SIMULATION), "\n".join(line.rstrip() for line in SIMULATED.splitlines())),
    ]
    for python in options.pythons or pythons():
        print(python, flush=True)
        try_out(python, [wheels["switch"]], alone)
        try_out(python, list(wheels.values()), together)


if __name__ == "__main__":
    main()
