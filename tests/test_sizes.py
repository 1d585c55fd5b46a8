"""How large things are: modules and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "protocol",
    "native",
    "switch",
    "controller",
    "host",
    "p4src",
    "src/switchsum",
    "checks",
    "examples",
    "exercises",
    "mininet",
)
MOST_LINES_OF_A_MODULE, MOST_LINES_OF_A_FUNCTION, MOST_PARAMETERS = 450, 60, 10
MOST_LINES_OF_AN_ALLREDUCE = 4_000
"""Of all that CONTRIBUTING.md names under "An afternoon's reading"."""


def modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def sizes() -> Iterator[tuple[str, int, int]]:
    """Yield what is measured, how large it is and how large it may be: lines, and parameters under a name with ()."""
    for path in modules():
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        yield name, text.count("\n"), MOST_LINES_OF_A_MODULE
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1, MOST_LINES_OF_A_FUNCTION
                given = node.args
                yield (
                    f"{name}:{node.name}()",
                    len([*given.posonlyargs, *given.args, *given.kwonlyargs]),
                    MOST_PARAMETERS,
                )


def test_modules_and_functions_are_small() -> None:
    assert len(modules()) > 300
    too_large = [(name, size) for name, size, most in sizes() if size > most]
    assert too_large == []


def readings() -> Iterator[tuple[list[Path], int]]:
    """Yield the files of each point of the list in CONTRIBUTING.md, and how many lines it says that they have."""
    _, section = (ROOT / "CONTRIBUTING.md").read_text().split("## An afternoon's reading", 1)
    points = re.findall(r"^\d\. (.*?) \(([\d,]+) lines\)", section.split("\n## ")[0], re.MULTILINE | re.DOTALL)
    for text, lines in points:
        files: list[Path] = []
        for name in re.findall(r"[\w./-]+\.(?:md|p4|py)", text):
            files.append(ROOT / name if "/" in name else files[-1].parent / name)
        yield files, int(lines.replace(",", ""))


def test_what_an_allreduce_needs_can_be_read_in_an_afternoon() -> None:
    total = 0
    for files, stated in readings():
        lines = sum(file.read_text().count("\n") for file in files)
        assert abs(lines - stated) <= 0.02 * stated, files
        total += lines
    assert MOST_LINES_OF_AN_ALLREDUCE / 2 < total <= MOST_LINES_OF_AN_ALLREDUCE
