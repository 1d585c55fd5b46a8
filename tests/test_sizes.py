"""How large things are: modules and functions."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from .line_counts import lines_of_module, reference_lines, statements

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "protocol",
    "native",
    "connections",
    "switch",
    "controller",
    "host",
    "p4src",
    "src/switchsum",
    "checks",
    "examples",
    "exercises",
    "baselines",
    "mininet",
)
# torch/group.py has a method for each call of a process group.
MOST_LINES_OF_A_MODULE, MOST_LINES_OF_A_FUNCTION, MOST_PARAMETERS = 470, 70, 11  # a job has conditions, costs and times
ONE_IDEA = {
    "src/switchsum/view/symptoms.py": "one function for each symptom of the table of rules",
    "controller/switchsum_controller/jobs/registry.py": "one registry: every way in which a member comes, goes and is told why",
    "host/switchsum_host/api/communicator.py": "the calls that users make: their docstrings are the reference",
    "host/switchsum_host/api/operation_queue.py": "what is under way: handles, and the queue that brings them to their end",
    "host/switchsum_host/api/sparse.py": "one collective, step by step",
    "host/switchsum_host/engine/recovery.py": "what a worker knows of the path, and what it repeats when",
    "host/switchsum_host/engine/state.py": "the engine's records, each field with what it means, are read side by side",
    "lab/src/switchsum_lab/simulation/jobs.py": "a job in virtual time, from its trees and entries to its end",
    "switch/src/switchsum_switch/program/ir.py": "the nodes of the representation, each with what it means, are read side by side",
    "switch/src/switchsum_switch/program/lower/expressions.py": "one recursion over the operands of an expression, with its two ways and its bounds",
    "switch/src/switchsum_switch/state/tables.py": "entries, and all that finds, orders, counts, saves and mirrors them, change together",
}
"""Modules that may have up to `MOST_LINES_OF_ONE_IDEA`, and the one idea that each is."""
MOST_LINES_OF_ONE_IDEA = 700


def modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def lines_of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1 - reference_lines(node)


@functools.cache
def sizes() -> tuple[tuple[str, int, int], ...]:
    """Return what is measured, how large it is and how large it may be, of everything: read once for all tests."""
    return tuple(_sizes())


def _sizes() -> Iterator[tuple[str, int, int]]:
    """Yield what is measured, how large it is and how large it may be: lines, and parameters under a name with ()."""
    for path in modules():
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        yield name, lines_of_module(text), MOST_LINES_OF_ONE_IDEA if name in ONE_IDEA else MOST_LINES_OF_A_MODULE
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}:{node.name}", lines_of_function(node), MOST_LINES_OF_A_FUNCTION
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


def test_only_modules_that_need_it_may_be_larger() -> None:
    large = {name for name, size, _ in sizes() if name in ONE_IDEA and size > MOST_LINES_OF_A_MODULE}
    assert large == ONE_IDEA.keys()
