"""The walks in docs/walks.md: what they name is there, and none is long."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST_MODULES = 6
LONGEST = {
    "An array's way there and back": 10,
    "From PyTorch's all_reduce to the switch": 8,
    "How would a lane format be added?": 15,
}
"""The way of an array passes each part of a worker once, and a format each place that knows all of them."""
*WALKS, _ = (ROOT / "docs/walks.md").read_text().split("\n## ")[1:]
"""Without the last section, which says how they are tried."""
STEP = re.compile(r"^\d+\. (?:.|\n(?!\n|\d+\. ))*", re.MULTILINE)
DEFINES = r"def|class|action|control|state|header|enum bit<\d+>"
NAME = re.compile(r"`([^`\s]+)`")


def is_file(name: str) -> bool:
    return bool(re.fullmatch(r"[\w/]+/[\w/]+\.(py|p4)", name))


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.partition("\n")[0])
def test_a_walk_is_short_and_names_what_is_there(walk: str) -> None:
    steps = STEP.findall(walk)
    assert len(steps) >= 4
    files = {name for step in steps for name in NAME.findall(step) if is_file(name)}
    assert len(files) <= LONGEST.get(walk.partition("\n")[0], MOST_MODULES)
    for step in steps:
        names = NAME.findall(step)
        assert is_file(names[0]), step
        text = "".join((ROOT / name).read_text() for name in names if is_file(name))
        for name in names:
            if re.fullmatch(r"[A-Za-z_][\w.]*", name) and name != "held" and not is_file(name):
                for part in name.split("."):
                    assert re.search(rf"({DEFINES}) {part}\b|^{part}: Final\b", text, re.MULTILINE), (name, names[0])


def test_there_are_six_and_readme_leads_there() -> None:
    assert len(WALKS) == 6
    assert "(docs/walks.md)" in (ROOT / "README.md").read_text()


def test_a_joining_worker_is_followed_through_ten_files() -> None:
    page = (ROOT / "docs/controller.md").read_text()
    section = page.partition("## A member joins, file by file\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. .*$", section, re.MULTILINE)
    assert len(steps) == 10
    for step in steps:
        name, *words = NAME.findall(step)
        text = (ROOT / name).read_text()
        for word in words:
            assert re.search(rf"(def|class) {word}\b", text), (word, name)
