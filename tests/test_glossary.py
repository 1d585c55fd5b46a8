"""docs/glossary.md: every place in the code that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "glossary.md").read_text()
TERM = re.compile(r"^\*\*(.+?)\*\*: ", re.MULTILINE)
PLACE = re.compile(r"`((?:[\w-]+/)+\w+\.(?:py|p4))`(?: `([^`]+)`)?")


@pytest.mark.parametrize(("path", "name"), sorted(set(PLACE.findall(TEXT))))
def test_what_the_glossary_names_is_in_the_code(path: str, name: str) -> None:
    text = (ROOT / path).read_text()
    if name:
        words = name if name.startswith("control ") else rf"(?:(?:class|def) {name}\b|^(?:    )?{name}\b(?: =|:))"
        assert re.search(words, text, re.MULTILINE), f"{path} has no {name}"


def test_every_term_is_explained_once() -> None:
    terms = TERM.findall(TEXT)
    assert len(terms) == len(set(terms))
