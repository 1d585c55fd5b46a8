"""The site: every page is in its contents, no link leads out of it, and its references are complete."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import logging
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from switchsum.cli.app import application

ROOT = Path(__file__).resolve().parent.parent
NEEDS_GRIFFE = pytest.mark.skipif(importlib.util.find_spec("griffe") is None, reason="needs griffe (griffelib)")


def entries(nav: Any) -> Iterator[str]:
    """Yield the pages of a part of the contents."""
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from entries(part)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    names = (
        *(page.file for page in importlib.import_module("tools.api_pages").MODULES.values()),
        "api.md",
        "commands.md",
    )
    made = {name: f"# {name}\n" for name in names}
    importlib.import_module("tools.site_pages").write_pages(folder, made)
    return folder


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


COMPLAINTS = Kept()
"""What griffe says of docstrings while the pages are made."""


@pytest.fixture(scope="module")
def references() -> dict[str, str]:
    logging.getLogger("griffe").addHandler(COMPLAINTS)
    pages: dict[str, str] = importlib.import_module("tools.reference_pages").pages()
    logging.getLogger("griffe").removeHandler(COMPLAINTS)
    return pages


def test_every_page_is_in_the_contents_once(site: Path) -> None:
    nav = list(entries(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    assert len(nav) == len(set(nav))
    made = {str(path.relative_to(site)) for path in site.rglob("*.md")}
    sources = {name for name in made if Path(name).stem.count(".") == 0}  # the others are files that pages link to
    assert sources == set(nav)


def test_tables_and_code_fit_and_commands_are_copied_without_comments(site: Path) -> None:
    style = (site / "wide.css").read_text()
    for rule in ("pre > code { white-space: pre-wrap;", ".language-sh [data-md-copying] .c1 { display: none; }"):
        assert rule in style
    configured = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert configured["extra_css"] == ["wide.css"]
    assert "content.code.copy" in configured["theme"]["features"]
    assert len(configured["theme"]["palette"]) == 3  # the system's colours, light and dark, with a toggle


MOST_FOR_USERS = 25
"""Pages that a user of the allreduce meets in the contents, beside README, changelog and what is made of docstrings."""


def test_a_user_of_the_allreduce_meets_few_pages() -> None:
    contents = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    parts = {name: list(entries(part)) for one in contents for name, part in one.items()}
    found = [page for name in ("Start", "I train", "Reference") for page in parts[name]]
    written = [page for page in found if page.startswith("docs/") and not page.startswith("docs/api")]
    assert len(written) <= MOST_FOR_USERS, written


def test_links_stay_within_the_site(site: Path) -> None:
    tool = importlib.import_module("tools.site_pages")
    count = 0
    for page in site.rglob("*.md"):
        for part in tool.FENCE.split(page.read_text())[::2] if Path(page.stem).suffix == "" else ():
            for target, _ in tool.LINK.findall(part):
                if not target.startswith(tool.ELSEWHERE):
                    goal = Path(os.path.normpath(page.parent / target))
                    assert goal.is_relative_to(site), (page, target)
                    assert goal.is_file(), (page, target)
                    count += 1
    assert count > 200


def test_links_have_titles_and_no_file_names(site: Path) -> None:
    page = (site / "docs" / "for-teaching.md").read_text()
    assert "[A tour of ten minutes](tour.md); the [live page]" in page
    assert ".md](" not in page


def own_sections(page: str) -> dict[str, str]:
    """Return the sections of a page of the API, by the name that each describes."""
    found = re.findall(r"^##+ ([\w.]+)\n(.*?)(?=^##+ |\Z)", page, flags=re.MULTILINE | re.DOTALL)
    return dict(found)


def arguments(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "cls"}


BASES = {"Communicates", "Compressor"}
"""Classes to derive from: nobody calls them."""


@NEEDS_GRIFFE
def test_every_public_name_is_on_the_page_of_its_module(references: dict[str, str]) -> None:
    tool = importlib.import_module("tools.api_pages")
    seen = 0
    for path in ("switchsum", "switchsum_host.compress", "switchsum.testing", "switchsum_switch"):
        module, page = importlib.import_module(path), references[tool.MODULES[path].file]
        sections = own_sections(page)
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.isfunction(thing) and not inspect.isclass(thing):
                continue  # a name for a type
            assert f"[{name}]({tool.MODULES[path].file}#" in references["api.md"], name
            if inspect.isclass(thing) and issubclass(thing, Exception):
                assert f"| `{name}` |" in sections["Errors"]
                continue
            functions: dict[str, Any] = {name: thing}
            if inspect.isclass(thing):
                hidden, shown = tool.FOR_OURSELVES.get(name, set()), tool.SHOWN.get(name)
                members: list[tuple[str, Any]] = inspect.getmembers(thing)
                public = [
                    (of, one)
                    for of, one in members
                    if not of.startswith("_") and of not in hidden and (shown is None or of in shown)
                ]
                data: Any = thing
                functions = {f"{name}.{of}": one for of, one in public if inspect.isroutine(one) and is_ours(one)}
                fields = {of for of, one in public if isinstance(one, property)}
                fields |= {field.name for field in dataclasses.fields(data)} if is_data(thing) else set()
                for of in (fields - hidden) & (fields if shown is None else shown):
                    assert f"`{of}`" in sections[name], f"{name}.{of}"
                if name not in tool.MADE_BY_OTHERS and not is_data(thing) and name not in BASES:
                    functions[name] = thing
            for heading, function in functions.items():
                if heading not in sections:  # described in a class above
                    assert f"`{heading.partition('.')[2]}`" in sections[name], heading
                    continue
                rows = set(re.findall(r"^\| `(\w+)` \|.*[^ |] \|$", sections[heading], flags=re.MULTILINE))
                assert arguments(function) <= rows, heading
                seen += 1
    assert seen > 60


@NEEDS_GRIFFE
def test_every_argument_of_the_api_is_described(references: dict[str, str]) -> None:
    pages = {name: page for name, page in references.items() if name.startswith("api-")}
    empty = [
        (name, heading, row)
        for name, page in pages.items()
        for heading, text in own_sections(page).items()
        for row in re.findall(r"^\| `\w+` \|.*\|  \|$", text, flags=re.MULTILINE)
    ]
    assert len(pages) == 6
    assert empty == []


def is_data(thing: Any) -> bool:
    return dataclasses.is_dataclass(thing)


@NEEDS_GRIFFE
def test_docstrings_of_the_api_are_read_without_complaint(references: dict[str, str]) -> None:
    assert references
    assert COMPLAINTS.texts == []


@NEEDS_GRIFFE
def test_what_a_class_inherits_from_another_one_on_the_page_is_described_once(references: dict[str, str]) -> None:
    page = references["api-compress.md"]
    assert page.count("Average one gradient over all ranks, and wait") == 1
    section = own_sections(page)["TopK"]
    assert "As in `Compressor`: `sums_in_network`, `ranks_may_differ`, `exchange`" in section
    assert "| `density` | <code>float</code> |  | Share of values that a rank sends" in section  # what `__init__` says


@NEEDS_GRIFFE
def test_what_users_call_comes_first_and_what_they_do_not_make_has_no_call(references: dict[str, str]) -> None:
    sections = own_sections(references["api-switchsum.md"])
    assert list(sections)[:3] == ["connect", "Communicator", "Communicator.allreduce"]
    assert "driver" not in sections["Communicator"]
    assert "queue" not in sections["Handle"]


def is_ours(routine: Any) -> bool:
    """Whether a method was written here, and not in Python."""
    return str(getattr(routine, "__module__", "")).startswith("switchsum")


@NEEDS_GRIFFE
def test_pytorch_has_its_sections(references: dict[str, str]) -> None:
    exports = re.search(r"^__all__ = (\[.*?\])", (ROOT / "src/switchsum/torch/__init__.py").read_text(), re.M | re.S)
    assert exports is not None  # read, not imported: torch may not be there
    names = {*ast.literal_eval(exports[1])} - {"hooks"}  # a module, with a page of its own
    assert len(names) > 3
    assert names <= own_sections(references["api-torch.md"]).keys()
    assert "compressed" in own_sections(references["api-hooks.md"])


@NEEDS_GRIFFE
def test_options_say_where_else_they_come_from(references: dict[str, str]) -> None:
    page = references["commands.md"]
    assert "| `--rank` | Ranks that run here: 1, 0-3 or 0,4-7. Else from RANK. Required. |" in page
    assert "| `--flood-port` | Port to which broadcasts go as well. Repeatable. |" in page


@NEEDS_GRIFFE
def test_every_command_and_option_is_on_the_page(references: dict[str, str]) -> None:
    def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        below = getattr(command, "commands", {})
        if not below or command.invoke_without_command:
            yield name, command
        for word, child in below.items():
            yield from walk(child, f"{name} {word}")

    page = references["commands.md"]
    for name, command in walk(typer.main.get_command(application()), "switchsum"):
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        options = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
        assert {one for one in options if one.startswith("-")} <= set(re.findall(r"`(-[^`]+)`", section)), name
