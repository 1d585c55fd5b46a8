"""What the pages tell people to follow and to type is there: links, commands with their options, targets of make."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from switchsum.cli.app import application

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "switch/docs/**/*.md", "lab/docs/**/*.md", "*/README.md")
    for page in ROOT.glob(pattern)
    if page.name not in ("CHANGELOG.md", "pytorch-tests.md")  # of the past; generated
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
README_LINES = 120


def text_of(page: Path) -> str:
    """Return a page without its blocks of code."""
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return what GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shell_lines(page: Path) -> Iterator[str]:
    """Yield the commands of a page: lines of its blocks, and what stands between backticks."""
    text = page.read_text()
    for language, block in FENCE.findall(text):
        if language in ("", "sh"):
            yield from block.replace("\\\n", " ").splitlines()
    for code in re.findall(r"`([^`]+)`", FENCE.sub("", text)):
        yield " ".join(code.split())


def words_after(page: Path, program: str) -> Iterator[list[str]]:
    """Yield the words that follow a program's name on a page, up to the command's end."""
    for line in shell_lines(page):
        for found in re.finditer(rf"(?<!--switch)(?:^|[\s(]|bin/){program} ([^|&;<>)]*)", line.partition("#")[0]):
            with suppress(ValueError):  # prose with an apostrophe
                yield shlex.split(found[1])


def commands() -> dict[tuple[str, ...], set[str]]:
    """Return the options of every command, by its words."""
    found: dict[tuple[str, ...], set[str]] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        own = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        found[words] = {*own, "--help"}
        for name, child in getattr(command, "commands", {}).items():
            walk(child, (*words, name))

    walk(typer.main.get_command(application()), ())
    return found


COMMANDS: Final = commands()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        goal = (page.parent / name).resolve() if name else page
        assert goal.exists(), target
        if anchor:
            assert anchor in anchors(goal), target


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_have_these_names_and_options(page: Path) -> None:
    for words in words_after(page, "switchsum"):
        command = max((name for name in COMMANDS if tuple(words[: len(name)]) == name), key=len)
        assert command or not words or words[0] in ("COMMAND", "--version"), words
        own = words[: words.index("--")] if "--" in words else words
        given = {word.partition("=")[0] for word in own if word.startswith("-") and word[1:2].isalpha()}
        given |= {word.partition("=")[0] for word in own if word.startswith("--")}
        assert given <= COMMANDS[command], words


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_targets_of_make_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in words_after(page, "make"):
        named = {word for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)}
        assert named <= targets, words


def test_readme_is_short_and_begins_with_a_picture_and_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= README_LINES
    (_, two), *_ = FENCE.findall(text)
    assert "![A controller, workers and a switch" in text[: text.index("make demo")]
    assert [line.split()[0] for line in two.splitlines()] == ["git", "make"]
    assert text[: text.index("make demo")].count("\n") < 30
