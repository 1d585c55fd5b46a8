"""The product's import graph, read from the source: which file imports which, and whose private names it takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOREIGN = {"_C", "_indices", "_values"}
"""Private names of PyTorch's, which classes of ours may also have."""
PARTS = ("protocol", "native", "switch", "controller", "host", "p4src", "exercises", "baselines", "src/switchsum")


@cache
def files() -> Mapping[str, Path]:
    """Return the product's modules by name; a package goes by its own name."""
    found = {}
    for part in PARTS:
        base = ROOT / "src" if part.startswith("src/") else ROOT
        for path in sorted((ROOT / part).rglob("*.py")):  # does not follow src/switchsum's links to the floors
            names = path.relative_to(base).with_suffix("").parts
            names = names if base.name == "src" else ("switchsum", *names)
            found[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return found


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return the source of each module of the product, parsed."""
    return {name: ast.parse(path.read_text()) for name, path in files().items()}


def absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Return the absolute name of what a `from ... import` imports from."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    kept = parts[: len(parts) - node.level + is_package]
    return ".".join([*kept, *((node.module,) if node.module else ())])


def imports(tree: ast.Module, module: str, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the known modules that a module imports, anywhere in it, for types alone too."""
    is_package = known[module].name == "__init__.py" if module in known else False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, module, is_package)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                target = name if name in known else base
                if target in known and target != module:
                    yield target


def graph() -> dict[str, set[str]]:
    """Return what each module of the product imports of the product."""
    return {name: set(imports(tree, name, files())) for name, tree in trees().items()}


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other: strongly connected parts (Tarjan, SIAM J. Comput. 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(part) > 1:
                found.append(sorted(part))

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return sorted(found)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def bound_here(tree: ast.Module) -> set[str]:
    """Return the private names that a module itself gives something: methods, attributes, fields, variables."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return {name for name in found if is_private(name)}


def private_of_others(tree: ast.Module, module: str, every: set[str]) -> set[str]:
    """Return the private names that a module takes from others.

    It imports them, or reads an attribute of that name which it never binds itself and which another module of the
    product (`every`: all private names that are bound anywhere) does.
    """
    own = bound_here(tree)
    theirs = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for alias in node.names
        if not f"{getattr(node, 'module', alias.name)}".startswith("switchsum")
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("switchsum")):
            found |= {alias.name for alias in node.names if is_private(alias.name)}
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            if isinstance(node.value, ast.Name) and node.value.id in theirs:
                continue  # os._exit
            found |= {node.attr} & every - FOREIGN
    return found


def taken() -> set[tuple[str, str]]:
    """Return each module of the product with a private name that it takes from another."""
    every = set().union(*(bound_here(tree) for tree in trees().values()))
    return {(name, one) for name, tree in trees().items() for one in private_of_others(tree, name, every)}
