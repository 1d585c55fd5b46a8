"""Which files of the product take private names of other files, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOTS = ("src", "host", "controller", "protocol", "exercises", "switch/src", "lab/src")
"""The folders that an editable install puts on Python's path."""
FOREIGN = {"_C", "_indices", "_values"}
"""Private names of PyTorch's, which classes of ours may also have."""


@cache
def files() -> Mapping[str, Path]:
    """Return the product's modules by name; a package goes by its own name."""
    found = {}
    for root in ROOTS:
        for path in sorted((ROOT / root).rglob("*.py")):
            names = path.relative_to(ROOT / root).with_suffix("").parts
            found[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return found


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return the source of each module of the product, parsed."""
    return {name: ast.parse(path.read_text()) for name, path in files().items()}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def bound_here(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the private names that a module itself gives something: methods, attributes, fields, variables."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return {name for name in found if is_private(name)}


def private_of_others(nodes: Sequence[ast.AST], every: set[str]) -> set[str]:
    """Return the private names that a module takes from others.

    It imports them, or reads an attribute of that name which it never binds itself and which another module of the
    product (`every`: all private names that are bound anywhere) does.
    """
    own = bound_here(nodes)
    theirs = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for alias in node.names
        if not f"{getattr(node, 'module', alias.name)}".startswith("switchsum")
    }
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("switchsum")):
            found |= {alias.name for alias in node.names if is_private(alias.name)}
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            if isinstance(node.value, ast.Name) and node.value.id in theirs:
                continue  # os._exit
            found |= {node.attr} & every - FOREIGN
    return found


def taken() -> set[tuple[str, str]]:
    """Return each module of the product with a private name that it takes from another."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Attribute, ast.Name, ast.arg, ast.Import)
    nodes = {
        name: [node for node in ast.walk(tree) if isinstance(node, (*kinds, ast.ImportFrom))]
        for name, tree in trees().items()
    }
    every = set().union(*map(bound_here, nodes.values()))
    return {(name, one) for name, found in nodes.items() for one in private_of_others(found, every)}
