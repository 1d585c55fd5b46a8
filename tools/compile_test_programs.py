"""Compile the P4 programs of the switch's tests, benchmark and example with p4c, one JSON and one P4Info beside each.

Run as `python tools/compile_test_programs.py` (p4c-bm2-ss must be on PATH); a test compares what it makes with what is
committed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track

COMPILER = "p4c-bm2-ss"
ROOT = Path(__file__).parent.parent
FOLDERS = (
    ROOT / "switch" / "tests" / "programs",
    ROOT / "checks" / "bench" / "p4",
    ROOT / "examples" / "switch",
)


def compile_program(source: Path, target: Path) -> None:
    """Compile a program into a folder; raises CalledProcessError when p4c refuses it."""
    made, p4info = target / f"{source.stem}.json", target / f"{source.stem}.p4info.txtpb"
    command = [COMPILER, "--std", "p4-16", "-o", str(made), "--p4runtime-files", str(p4info), source.name]
    subprocess.run(command, check=True, cwd=source.parent)
    document = json.loads(made.read_text())
    document["program"] = source.name
    made.write_text(json.dumps(document, separators=(",", ":")) + "\n")


def sources() -> list[Path]:
    """Return the programs; common.p4 is included by them."""
    return sorted(path for folder in FOLDERS for path in folder.glob("*.p4") if path.stem != "common")


def main() -> int:
    """Compile all programs in place; returns the exit code."""
    if shutil.which(COMPILER) is None:
        print(f"{COMPILER} is not on PATH: install p4c (https://github.com/p4lang/p4c)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        for source in track(sources(), COMPILER, console=Console(stderr=True)):
            compile_program(source, Path(scratch))
        for source in sources():
            for suffix in (".json", ".p4info.txtpb"):
                made = source.with_suffix(suffix)
                shutil.copyfile(Path(scratch) / made.name, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
