"""How many lines code has, without the docstrings that are a reference: they may be as long as needed.

These are docstrings of calls that have sections, and those of packages that list their files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

FILES = re.compile(r"^\| files? \||^\| folder or file \|", re.MULTILINE)
"""The head of a package's list of files."""
SECTION = re.compile(r"^(?:Args|Returns|Raises|Example|Note):$", re.MULTILINE)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a piece of code and all statements in it: `ast.walk` spends four fifths of its time on expressions."""
    yield node
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        for one in getattr(node, part, ()):
            yield from statements(one)


def reference_lines(node: ast.AST) -> int:
    """Return the lines of the docstrings in a piece of code that have sections: arguments, errors, an example."""
    total = 0
    for one in statements(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and SECTION.search(
            ast.get_docstring(one) or ""
        ):
            total += (one.body[0].end_lineno or 0) - one.body[0].lineno + 1
    return total


def lines_of_module(text: str) -> int:
    """Return the lines of a module that count."""
    tree = ast.parse(text)
    is_listing = FILES.search(ast.get_docstring(tree) or "")
    listing = (tree.body[0].end_lineno or 0) - tree.body[0].lineno + 1 if is_listing else 0
    return text.count("\n") - reference_lines(tree) - listing
