"""A page of docs/ that changes the sources step by step, followed to the letter in a copy of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from checks.clone import ROOT, import_path
from support.timing import patience
from switchsum_switch.kernels.plain import VARIABLE

COMPILER: Final = "p4c-bm2-ss"
LANES: Final = 128
"""Of the build that copies are compiled with, the smallest."""
_COPIED: Final = (
    *("protocol", "controller", "host", "exercises", "p4src", "src", "tools", "docs"),
    *("switch/src", "lab/src", "tests/protocol", "tests/p4", "support", "checks"),
)
_STEP: Final = re.compile(r"in\s+`([\w/]+\.(?:p4|py))`|```diff\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one file."""

    file: str
    before: str
    """Text that the file has, just once."""
    after: str


def steps(page: Path) -> list[Step]:
    """Return each change that a page shows, with the file that it names before."""
    found, file = [], ""
    for name, block in _STEP.findall(page.read_text()):
        file = name or file
        if block:
            lines = block.splitlines()
            before = "\n".join(line[1:] for line in lines if line[:1] in (" ", "-"))
            after = "\n".join(line[1:] for line in lines if line[:1] in (" ", "+"))
            found.append(Step(file, before, after))
    return found


NUMBERS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_CLAIM: Final = re.compile(r"change\s+(\w+)\s+files\s+by\s+hand,\s+with\s+fewer\s+than\s+(\d+)\s+lines")


def check_claim(page: Path) -> None:
    """See that a page takes the files that it says, and no more lines."""
    said, taken = _CLAIM.search(page.read_text()), steps(page)
    assert said is not None, f"{page.name} does not say how many files are changed"
    assert len({step.file for step in taken}) == NUMBERS.index(said[1]) + 1
    assert int(said[2]) - 20 < written_lines(taken) < int(said[2])


def written_lines(taken: list[Step]) -> int:
    """Return how many lines steps write."""
    return sum(len(set(step.after.splitlines()) - set(step.before.splitlines())) for step in taken)


def follow(page: Path, root: Path) -> Path:
    """Copy the sources to an empty folder, change them as a page says, and make what is made from tables."""
    for name in _COPIED:
        shutil.copytree(
            ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "results"), dirs_exist_ok=True
        )
    for step in steps(page):
        path = root / step.file
        text = path.read_text()
        assert text.count(step.before) == 1, f"{step.file} does not have, just once:\n{step.before}"
        path.write_text(text.replace(step.before, step.after))
    run(root, "tools/frame_tables.py")
    return root


def compile_copy(root: Path) -> Path:
    """Compile the smallest build of a copy's program; the test is skipped where there is no p4c."""
    if shutil.which(COMPILER) is None:
        pytest.skip(f"{COMPILER} is not on PATH")
    run(root, "-c", f"import compile_p4; compile_p4.compile_build({LANES})")
    return root


def run(root: Path, *arguments: str) -> str:
    """Run Python in a copy, without a compiler for its kernels; return what it says."""
    path = os.pathsep.join((import_path(root), str(root / "tools")))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path, VARIABLE: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience(100),
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
