"""The pages for readers: files that they name are there, and CONTRIBUTING's reading list is as long as it says."""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import prose

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")), *ROOT.glob("*/README.md")]
CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"`(?:\.\./)*((?:[\w.-]+/)*[\w.-]+(?:\.(?:py|p4|md|toml|json|sh|sbatch|yml|lua)|/))`")
NOT_THERE = {
    "switch.p4": "the learner's, made by `switchsum exercise start`",
    "mininet/__init__.py": "must not be there: it would shadow Mininet",
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


MOST_WORDS = 1_500
LOOKED_UP = {"operations.md": 2_000, "scale.md": 2_100, "sharing.md": 1_650, "lab.md": 1_550}
"""Pages most of whose words are in tables that are looked up: symptoms, what a network has, figures, keys of a file."""
LONGEST_SENTENCE = 40
MEDIAN = 16
MADE = re.compile(
    r"^<!-- (?:Generated from|[^:\n]+: (?:make|python)).*?-->$.*?^<!-- (?:[Ee]nd of) .*?-->$", re.DOTALL | re.MULTILINE
)
"""A part of a page that a program writes."""
READ = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
RECORDS = sorted(ROOT.glob("docs/results/*.md"))
"""Pages of figures, whose sentences are often lists of conditions; they are as short as others."""
MADE_WHOLE = (
    "Made from `checks/bench/results/records.json`",
    "`make torch-tests` runs all and writes this page",
    "Made by `python -m checks.conformance` from its last run",
)


def own_words(page: Path) -> int:
    """Count a page's words without the tables that programs write to it."""
    return len(MADE.sub("", page.read_text()).split())


@pytest.mark.parametrize("page", READ, ids=lambda page: page.stem)
def test_pages_and_their_sentences_are_short(page: Path) -> None:
    assert own_words(page) <= LOOKED_UP.get(page.name, MOST_WORDS)
    long = [one for one in prose.read(page) if len(prose.words(one)) > LONGEST_SENTENCE]
    assert page.stem == "citing" or long == []
    lengths = [len(prose.words(one)) for one in prose.read(page)]
    assert statistics.median(lengths) <= MEDIAN


FOR_WHOM = re.compile(r"(?:page is|words are|exercises are) for\b|\*\*It is for you\*\*|^This tour ", re.MULTILINE)
COMMAND = re.compile(r"^(?:```|>>>)|`(?:switchsum|make|python -m) [^`]+`", re.MULTILINE)
FIRST_SCREEN = 25
"""Lines."""
NO_READER = {"citing": "needs no command"}


@pytest.mark.parametrize("page", [one for one in READ if one.stem not in NO_READER], ids=lambda page: page.stem)
def test_the_first_screen_says_for_whom_a_page_is_and_has_a_command(page: Path) -> None:
    first = "\n".join(page.read_text().splitlines()[:FIRST_SCREEN])
    assert FOR_WHOM.search(first)
    assert COMMAND.search(first)


ROWS_WITHOUT_A_HEAD = re.compile(r"^\n(\|.*)\n(?!\|[ :|-]+\|$)", re.MULTILINE)
"""A table begins with a head and its line; rows behind an empty line are shown as text."""


@pytest.mark.parametrize("page", [*READ, *RECORDS], ids=lambda page: page.stem)
def test_tables_have_no_empty_lines(page: Path) -> None:
    assert ROWS_WITHOUT_A_HEAD.findall(CODE_BLOCK.sub("", page.read_text())) == []


@pytest.mark.parametrize("page", RECORDS, ids=lambda page: page.stem)
def test_pages_of_figures_are_short_where_no_program_writes_them(page: Path) -> None:
    assert any(one in page.read_text() for one in MADE_WHOLE) or own_words(page) <= MOST_WORDS


MOST_LINES_OF_AN_ALLREDUCE = 4_250  # its recovery knows the path: needless repeats, and queues


@pytest.fixture(scope="module")
def reading() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text.partition("## An afternoon's reading")[2].partition("\n## ")[0]


def test_the_reading_list_is_as_long_as_it_says(reading: str) -> None:
    items = re.split(r"\n\d\. ", reading.partition("\n\nThe rest")[0])[1:]
    assert len(items) == 5
    total = 0
    for item in items:
        lines, folder = 0, Path()
        for name in re.findall(r"[`\s]([\w/-]+\.(?:py|p4|md))", " " + item):
            folder = Path(name).parent if "/" in name else folder
            lines += (ROOT / folder / Path(name).name).read_text().count("\n")
        said = re.search(r"\(([\d,]+) lines\)", item)
        assert said is not None, item
        assert lines == pytest.approx(int(said[1].replace(",", "")), rel=0.1), item
        total += lines
    said = re.search(r"About ([\d,]+) lines", reading)
    assert said is not None
    assert total == pytest.approx(int(said[1].replace(",", "")), rel=0.05)
    assert total <= MOST_LINES_OF_AN_ALLREDUCE
