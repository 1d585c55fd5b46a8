"""The site: every page is in its contents, no link leads out of it, and its references are complete."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import switchsum
from switchsum.cli import application

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
    made = {"api.md": "# API\n", "commands.md": "# Commands\n"}
    importlib.import_module("tools.site_pages").write_pages(folder, made)
    return folder


@pytest.fixture(scope="module")
def references() -> dict[str, str]:
    pages: dict[str, str] = importlib.import_module("tools.reference_pages").pages()
    return pages


def test_every_page_is_in_the_contents_once(site: Path) -> None:
    nav = list(entries(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    assert len(nav) == len(set(nav))
    made = {str(path.relative_to(site)) for path in site.rglob("*.md")}
    sources = {name for name in made if Path(name).stem.count(".") == 0}  # the others are files that pages link to
    assert sources == set(nav)


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
    assert "[A tour of ten minutes](tour.md): ten minutes to show." in page
    assert ".md](" not in page


def arguments(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "cls"}


@NEEDS_GRIFFE
def test_every_public_name_and_argument_is_on_the_page(references: dict[str, str]) -> None:
    page = references["api.md"]
    sections = {
        heading: text
        for module in re.split(r"^## ", page, flags=re.MULTILINE)[1:]
        for heading, text in re.findall(r"^####? ([\w.]+)\n(.*?)(?=^####? |\Z)", module, flags=re.MULTILINE | re.DOTALL)
    }
    seen = 0
    compress = importlib.import_module("switchsum.host.compress")
    for module in (switchsum, compress):
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.isfunction(thing) and not inspect.isclass(thing):
                continue  # a name for a type
            assert (thing.__doc__ or "").split("\n")[0][:40].replace("<", "&lt;") in page, name
            functions: dict[str, Any] = {name: thing}
            if inspect.isclass(thing):
                members: list[tuple[str, Any]] = inspect.getmembers(thing, inspect.isroutine)
                ours = {of: one for of, one in members if not of.startswith("_") and is_ours(one)}
                functions = {described(thing, of, module.__all__, sections): one for of, one in ours.items()}
                for of, _ in inspect.getmembers(thing, lambda one: isinstance(one, property)):
                    assert of.startswith("_") or f"`{of}`" in sections[name], f"{name}.{of}"
                for of in {of for above in thing.__mro__ for of in inspect.get_annotations(above)}:
                    is_told = dataclasses.is_dataclass(thing) or f" `{of}`" in sections[name]
                    assert of.startswith("_") or is_told, f"{name}.{of}"
                for field in dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ():
                    assert re.search(rf"\b{field.name}\b", sections[name]), f"{name}.{field.name}"
            assert name in sections
            for heading, function in functions.items():
                missing = {one for one in arguments(function) if not re.search(rf"\b{one}\b", sections[heading])}
                assert not missing, heading
                seen += 1
    assert seen > 50


def described(thing: type, of: str, public: list[str], sections: dict[str, str]) -> str:
    """Return where a method is described: in its class, or in one above that has a section too, and is named there."""
    own = f"{thing.__name__}.{of}"
    if own in sections:
        return own
    assert f"`{of}`" in sections[thing.__name__], own
    above = (f"{one.__name__}.{of}" for one in thing.__mro__[1:] if one.__name__ in public)
    return next(found for found in above if found in sections)


@NEEDS_GRIFFE
def test_what_a_class_inherits_from_another_one_on_the_page_is_described_once(references: dict[str, str]) -> None:
    page = references["api.md"]
    assert page.count("Exchange one gradient, of any shape") == 1
    assert "See `Compressor`.\n" not in page
    section = page.partition("\n### TopK\n")[2].partition("\n### ")[0]
    assert "As in `Compressor`: `sums_in_network`, `exchange`" in section
    assert "`density` is the share of values that a rank sends" in section  # what `__init__` says of its arguments


def is_ours(routine: Any) -> bool:
    """Whether a method was written here, and not in Python."""
    return str(getattr(routine, "__module__", "")).startswith("switchsum")


@NEEDS_GRIFFE
def test_pytorch_has_its_sections(references: dict[str, str]) -> None:
    part = references["api.md"].partition("\n## switchsum.torch\n")[2]
    exports = re.search(r"^__all__ = (\[.*?\])", (ROOT / "src/switchsum/torch/__init__.py").read_text(), re.M | re.S)
    assert exports is not None  # read, not imported: torch may not be there
    names = {*ast.literal_eval(exports[1])} - {"hooks"}  # a module, with a part of its own
    assert len(names) > 3
    for name in (*names, "compressed"):
        assert f"\n### {name}\n" in part, name


@NEEDS_GRIFFE
def test_options_say_where_else_they_come_from(references: dict[str, str]) -> None:
    page = references["commands.md"]
    assert "| `--rank` | What runs here: 1, or several ranks, 0-3. Else from RANK. Required. |" in page
    assert "| `--flood-port` | Port that broadcasts go to. Repeatable. |" in page


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
