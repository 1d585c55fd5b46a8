"""How many lines code has, without the docstrings that are the reference of calls: they may be as long as needed."""

from __future__ import annotations

import ast
import re

SECTION = re.compile(r"^(?:Args|Returns|Raises|Example|Note):$", re.MULTILINE)


def reference_lines(node: ast.AST) -> int:
    """Return the lines of the docstrings in a piece of code that have sections: arguments, errors, an example."""
    total = 0
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and SECTION.search(
            ast.get_docstring(one) or ""
        ):
            total += (one.body[0].end_lineno or 0) - one.body[0].lineno + 1
    return total


def lines_of_module(text: str) -> int:
    """Return the lines of a module that count."""
    return text.count("\n") - reference_lines(ast.parse(text))
