"""Time-outs in tests grow with a slow machine: none is a bare number of seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMED = ("timeout", "deadline_s")
FIRST = ("settimeout", "result", "join", "communicate")
"""Methods whose first argument is a time-out."""


def bare_time_outs(source: str) -> Iterator[tuple[int, str]]:
    """Return the lines and calls with a time-out of a second and more that is a number."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            given = [keyword.value for keyword in node.keywords if keyword.arg in NAMED]
            if isinstance(node.func, ast.Attribute) and node.func.attr in FIRST:
                given += node.args[:1]
            values = [one.value for one in given if isinstance(one, ast.Constant)]
            if any(isinstance(value, int | float) and value >= 1 for value in values):
                yield node.lineno, ast.unparse(node)


def test_a_bare_number_is_found() -> None:
    source = "run(timeout=5)\nend.settimeout(0.05)\nthread.join(patience(5))\nfuture.result(30)\n','.join(words)"
    assert list(bare_time_outs(source)) == [(1, "run(timeout=5)"), (4, "future.result(30)")]


def test_no_test_waits_for_a_bare_number_of_seconds() -> None:
    found = {path: list(bare_time_outs(path.read_text())) for path in sorted(HERE.rglob("*.py"))}
    assert {str(path.relative_to(HERE)): calls for path, calls in found.items() if calls} == {}
