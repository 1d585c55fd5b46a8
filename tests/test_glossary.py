"""docs/glossary.md and docs/glossary-code.md: every place in the code that they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = "".join((ROOT / "docs" / name).read_text() for name in ("glossary.md", "glossary-code.md"))
TERM = re.compile(r"^\*\*(.+?)\*\*: ", re.MULTILINE)
PLACE = re.compile(r"`((?:[\w-]+/)+\w+\.(?:py|p4))`(?: `([^`]+)`)?")
CLASS = re.compile(r"^(?:class ([A-Z]\w+)|([A-Z]\w*[a-z]\w*)(?:: [\w.]+)? = (.+))", re.MULTILINE)
ASKED_FOR = (
    *(
        "slot",
        "round",
        "version",
        "cell",
        "column",
        "block",
        "lane",
        "lane format",
        "frame",
        "member",
        "rank",
        "cookie",
    ),
    *("incarnation", "epoch", "job", "tree", "link", "port", "transport", "window", "backoff", "headroom", "bell"),
    *("in flight", "replica", "admission", "contribution", "lanes per frame", "pipeline", "program"),
)


def entries() -> dict[str, str]:
    parts = TERM.split(TEXT)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("term", ASKED_FOR)
def test_the_glossary_has_the_words_of_the_protocol(term: str) -> None:
    assert term in entries()


@pytest.mark.parametrize(("path", "name"), sorted(set(PLACE.findall(TEXT))))
def test_what_the_glossary_names_is_in_the_code(path: str, name: str) -> None:
    text = (ROOT / path).read_text()
    if name:
        words = name if name.startswith("control ") else rf"(?:(?:class|def) {name}\b|^(?:    )?{name}\b(?: =|:))"
        assert re.search(words, text, re.MULTILINE), f"{path} has no {name}"


def test_every_term_is_explained_once() -> None:
    terms = TERM.findall(TEXT)
    assert len(terms) == len(set(terms))


def test_a_name_of_a_floor_means_one_class() -> None:
    """Aliases of arrays and type variables are short for what they say; `model` is always written in front."""
    found: dict[tuple[str, str], set[str]] = {}
    for floor in ("protocol", "native", "connections", "switch", "controller", "host"):
        for path in (ROOT / floor).rglob("*.py"):
            if path != ROOT / "switch" / "model.py":
                for name, alias, meaning in CLASS.findall(path.read_text()):
                    if not meaning.startswith(("npt.", "TypeVar", "Callable")):
                        found.setdefault((floor, name or alias), set()).add(meaning or str(path))
    assert {key: places for key, places in found.items() if len(places) > 1} == {}
