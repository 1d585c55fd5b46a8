"""Drawings of the slot machine are those of its tables, and the citation is of this version."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import yaml

import switchsum
from switchsum_host.engine.rules import RULES, Action

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return importlib.import_module("tools.draw_machines")


def test_drawings_are_current(tool: ModuleType) -> None:
    for name, made in tool.drawings().items():
        ElementTree.fromstring(made)
        assert (ROOT / "docs" / "images" / name).read_text() == made, f"{name} is stale: python -m tools.draw_machines"


def test_drawings_have_every_row(tool: ModuleType) -> None:
    switch, worker = tool.drawings().values()
    assert {int(number) for number in re.findall(r"row (\d+)", switch)} == set(range(3, 13))
    rows = [rule for rule in RULES if {rule.idle, rule.waiting, rule.blocked} - {Action.NEVER, Action.NOTHING}]
    assert all(rule.event.name in worker for rule in rows)


def test_pictures_are_current_and_name_what_is_there() -> None:
    pictures = importlib.import_module("tools.draw_pictures")
    for name, made in pictures.drawings().items():
        ElementTree.fromstring(made)
        assert (ROOT / "docs" / "images" / name).read_text() == made, f"{name} is stale: python -m tools.draw_pictures"
    for control, file, _ in pictures.WAY:
        assert re.search(rf"^(?:control|parser) {control}\b", (ROOT / "p4src" / file).read_text(), re.MULTILINE), (
            control
        )
    steps = (ROOT / "host/switchsum_host/engine/loop.py").read_text()
    assert all(
        re.search(rf"\b(?:link\.|recovery\.){step}\b|^def {step}\(", steps, re.MULTILINE) for step, _ in pictures.LOOP
    )


def test_drawings_follow_the_readers_colours(tool: ModuleType) -> None:
    for made in (*tool.drawings().values(), *importlib.import_module("tools.draw_pictures").drawings().values()):
        assert "prefers-color-scheme:dark" in made


@pytest.mark.parametrize(
    ("name", "says"), [("demo", ["make demo"]), ("explain", ["switchsum explain", "- Rank 2 (north"])]
)
def test_recorded_commands_say_what_they_said_and_fetch_nothing(name: str, says: list[str]) -> None:
    made = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
    assert all(one in made.replace("&#160;", " ") for one in says)
    assert "//" not in re.sub(r"https?://(www\.textualize\.io|www\.w3\.org)", "", made)  # nothing is fetched


def test_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (switchsum.__version__, "Apache-2.0")
    assert {"cff-version", "message", "title", "authors", "type"} <= cited.keys()
