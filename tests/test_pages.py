"""The pages for readers: files that they name are there, and tables are shown as tables."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *ROOT.glob("*/docs/**/*.md"),
    *ROOT.glob("*/README.md"),
]
CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"`(?:\.\./)*((?:[\w.-]+/)*[\w.-]+(?:\.(?:py|p4|md|toml|json|sh|sbatch|yml|lua)|/))`")
NOT_THERE = {
    "switch.p4": "the learner's, made by `switchsum exercise start`",
    "mininet/__init__.py": "must not be there: it would shadow Mininet",
    "mine/program.p4": "the reader makes it, for a protocol of their own",
    "one_sum.py": "the reader makes it, from the code on the page",
    "sum.py": "the reader makes it, from the code on the page",
    "manifest.json": "a sweep writes it",
    "hosts/": "a folder of certificates that the user makes",
}


def named_paths(page: Path) -> Iterator[str]:
    """Yield the paths that stand in backticks in a page's text; of a module's path the last parts are enough."""
    yield from PATH.findall(CODE_BLOCK.sub("", page.read_text()))


def tracked() -> list[str]:
    """Return the files of the repository; without git, as in an unpacked sdist, those that are there."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split() or [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if path.is_file()]


def test_every_path_in_backticks_is_there() -> None:
    files = ["/" + name for name in tracked()]
    named = {(page.relative_to(ROOT).as_posix(), name) for page in PAGES for name in named_paths(page)}
    assert len(named) > 100
    missing = {
        (page, name)
        for page, name in named
        if not any(f"/{name}" in file if name.endswith("/") else file.endswith(f"/{name}") for file in files)
    }
    assert {(page, name) for page, name in missing if name not in NOT_THERE} == set()
    assert {name for _, name in missing} == set(NOT_THERE)  # what has come, or is no longer named, leaves the list


ROWS_WITHOUT_A_HEAD = re.compile(r"^\n(\|.*)\n(?!\|[ :|-]+\|$)", re.MULTILINE)
"""A table begins with a head and its line; rows behind an empty line are shown as text."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tables_have_no_empty_lines(page: Path) -> None:
    assert ROWS_WITHOUT_A_HEAD.findall(CODE_BLOCK.sub("", page.read_text())) == []
