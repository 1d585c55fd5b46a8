"""The walks in docs/walks.md, and the lists of files in packages: what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WALKS = (ROOT / "docs/walks.md").read_text().split("\n## ")[1:]
STEP = re.compile(r"^\d+\. (?:.|\n(?!\n|\d+\. ))*", re.MULTILINE)
DEFINES = r"def|class|action|control|state|header|enum bit<\d+>"
NAME = re.compile(r"`([^`\s]+)`")
PACKAGES = (
    "",
    "host/switchsum_host",
    "controller/switchsum_controller",
    "switch/src/switchsum_switch",
    "lab/src/switchsum_lab",
)
"""What a walk says of a file's path the first time, and leaves out later."""


def is_file(name: str) -> bool:
    return bool(re.fullmatch(r"[\w/]+/[\w/]+\.(py|p4)", name))


def path_of(name: str) -> Path:
    """Return a file by its path, or by the end of it that follows the name of a package."""
    return next(path for package in PACKAGES if (path := ROOT / package / name).is_file())


def text_of(name: str) -> str:
    """Return the text of such a file."""
    return path_of(name).read_text()


def defines(text: str, name: str) -> bool:
    """Return whether a file has a definition of each part of a dotted name."""
    return all(re.search(rf"({DEFINES}) {part}\b|^{part}: Final\b", text, re.MULTILINE) for part in name.split("."))


def check_names(step: str, section: str) -> None:
    """Every name stands in a file that the step names; `Class.method` of another step's file may be named as well."""
    names = NAME.findall(step)
    assert is_file(names[0]), step
    own = [text_of(name) for name in names if is_file(name)]
    others = [text_of(name) for name in NAME.findall(section) if is_file(name)]
    for name in names:
        if re.fullmatch(r"[A-Za-z_][\w.]*", name) and name != "held" and not is_file(name):
            is_others = re.fullmatch(r"[A-Z]\w*\.\w+", name)
            assert any(defines(text, name) for text in (others if is_others else own)), (name, names[0])


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.partition("\n")[0])
def test_a_walk_names_what_is_there(walk: str) -> None:
    steps = STEP.findall(walk)
    assert steps
    for step in steps:
        check_names(step, walk)


MOST_FILES = {
    "An array's way there and back": 7,
    "From PyTorch's all_reduce to the switch": 8,
    "Where is a lost frame noticed?": 5,
    "A worker joins": 8,
}
"""Files that the steps of a walk may have a reader open; what else there is stands in a table below the steps."""


@pytest.mark.parametrize("title", MOST_FILES)
def test_a_walk_opens_few_files(title: str) -> None:
    [walk] = [walk for walk in WALKS if walk.startswith(f"{title}\n")]
    opened = {path_of(name) for step in STEP.findall(walk) for name in NAME.findall(step) if is_file(name)}
    assert len(opened) <= MOST_FILES[title], sorted(opened)


def test_readme_leads_to_the_walks() -> None:
    assert WALKS
    assert "(docs/walks.md)" in (ROOT / "README.md").read_text()


LISTS = [
    path
    for package in ("controller", "exercises", "host", "lab/src", "protocol", "src", "switch/src")
    for path in (ROOT / package).rglob("__init__.py")
    if re.search(r"^\| (folder or )?files? \|", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.parent.relative_to(ROOT).as_posix())
def test_a_package_that_lists_its_files_lists_all_of_them(path: Path) -> None:
    rows = re.findall(r"^\| (.*?) \|", path.read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([\w/.]+)`", row)}
    files = {one.name for one in path.parent.glob("*.py")} - {"__init__.py"}
    assert listed == files | {f"{one.parent.name}/" for one in path.parent.glob("*/__init__.py")}


def test_what_a_joining_worker_passes_is_there() -> None:
    page = (ROOT / "docs/walks.md").read_text()
    section = page.partition("## A worker joins\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. .*$", section, re.MULTILINE)
    assert steps
    for step in steps:
        check_names(step, section)
