"""The constants of the worker's recovery, and its modules with each read of a constant turned into one of memory.

Functions are changed in their source, before the module is run.  So the constants that other modules import, and those
that are computed of others, follow as well, and compiled code reads the value that there is when it runs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from checks.clone import ROOT

ENGINE: Final = "switchsum_host.engine"
FOLDER: Final = ROOT / "host" / "switchsum_host" / "engine"
_KNOBS: Final = "checks.constants.knobs"
_READERS: Final = {"real": "_changed_real", "integer": "_changed_integer"}
"""Functions of `knobs`, and what they are called in changed modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number that is named at the top of a module."""

    module: str
    """With its package."""
    symbol: str
    value: str
    """As it is written."""
    place: int
    """Its place among all constants."""

    @property
    def name(self) -> str:
        """Its module's last word, and what it is called there."""
        return f"{self.module.rpartition('.')[2]}.{self.symbol}"

    @property
    def number(self) -> float:
        """Its value."""
        found: float = eval(compile(self.value, self.name, "eval"), {"__builtins__": {}})
        return found


def modules() -> dict[str, Path]:
    """Return policies and what asks them, by their names with the package."""
    paths = [*sorted((FOLDER / "policies").glob("*.py")), FOLDER / "recovery.py", FOLDER / "congestion.py"]
    return {".".join([ENGINE, *path.relative_to(FOLDER).with_suffix("").parts]): path for path in paths}


def constants() -> dict[str, Constant]:
    """Return the constants of policies, and those of what asks them, by their names."""
    found: dict[str, Constant] = {}
    for module, path in modules().items():
        for symbol, value in named_in(ast.parse(path.read_text())):
            if _is_number(value):
                one = Constant(module=module, symbol=symbol, value=ast.unparse(value), place=len(found))
                found[one.name] = one
    return found


def named_in(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield what is named at the top of a module, with its value: `_GAIN: Final = 1 / 8`."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "Final" and node.value is not None:
            assert isinstance(node.target, ast.Name)
            yield node.target.id, node.value


def _is_number(value: ast.expr) -> bool:
    """Tell whether a value is a number, or is computed of numbers alone."""
    return all(
        isinstance(part.value, int | float)
        if isinstance(part, ast.Constant)
        else isinstance(part, ast.UnaryOp | ast.BinOp | ast.operator | ast.unaryop)
        for part in ast.walk(value)
    )


def changed(text: str, module: str, known: Mapping[str, Constant]) -> ast.Module:
    """Return a module's text with functions that read its constants, and those it imports, from memory."""
    tree = ast.parse(text)
    of_module: dict[str, dict[str, Constant]] = {}
    for one in known.values():
        of_module.setdefault(one.module, {})[one.symbol] = one
    reads: dict[str, ast.expr] = {name: _read(one) for name, one in of_module.get(module, {}).items()}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            written = "." * node.level + (node.module or "")
            source = resolve_name(written, module.rpartition(".")[0]) if node.level else written
            for alias in node.names:
                name = alias.asname or alias.name
                if alias.name in of_module.get(source, {}):
                    reads[name] = _read(of_module[source][alias.name])
                for symbol, one in of_module.get(f"{source}.{alias.name}", {}).items():
                    reads[f"{name}.{symbol}"] = _read(one)
    for name, value in named_in(tree):  # computed of others
        if name not in reads and any(isinstance(part, ast.Name) and part.id in reads for part in ast.walk(value)):
            reads[name] = _Reads(reads).visit(deepcopy(value))
    tree.body = [_Reads(reads).visit(node) if isinstance(node, ast.FunctionDef) else node for node in tree.body]
    imported = ", ".join(f"{reader} as {name}" for reader, name in _READERS.items())
    after = next(place for place, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom)) + 1
    tree.body[after:after] = ast.parse(f"from {_KNOBS} import {imported}").body
    return ast.fix_missing_locations(tree)


def _read(one: Constant) -> ast.expr:
    reader = _READERS["real" if isinstance(one.number, float) else "integer"]
    return ast.parse(f"{reader}({one.place})", mode="eval").body


class _Reads(ast.NodeTransformer):
    """Puts what reads a constant in the place of its name."""

    def __init__(self, reads: Mapping[str, ast.expr]) -> None:
        self._reads = reads

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Exchange a name."""
        return deepcopy(self._reads.get(node.id, node)) if isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Exchange the name of another module's constant."""
        found = self._reads.get(ast.unparse(node))
        return self.generic_visit(node) if found is None else deepcopy(found)


class _Loader(SourceFileLoader):
    """Runs a module's changed source."""

    def __init__(self, spec: ModuleSpec, known: Mapping[str, Constant]) -> None:
        super().__init__(spec.name, str(spec.origin))
        self._known = known

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source anew: what is beside it as bytecode is not changed."""
        tree = changed(Path(self.path).read_text(), fullname, self._known)
        code: CodeType = compile(tree, self.path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    """Finds the modules whose source is to be changed."""

    def __init__(self, known: Mapping[str, Constant]) -> None:
        self._known = known
        self._modules = {*modules()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a module's place with a loader that changes it; None for other modules."""
        if fullname not in self._modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and not spec.submodule_search_locations:
            spec.loader = _Loader(spec, self._known)
        return spec


def install() -> None:
    """Have the engine's recovery read its constants from memory; raises ImportError where it is imported already."""
    if others := sorted(modules().keys() & sys.modules.keys()):
        raise ImportError(f"{', '.join(others)} have been imported", name=others[0])
    known = constants()
    sys.meta_path.insert(0, _Finder(known))
    for one in known.values():
        put(one, one.number)


def put(one: Constant, value: float) -> None:
    """Give a constant a value, from now on."""
    from checks.constants.knobs import INTEGERS, REALS

    (REALS if isinstance(one.number, float) else INTEGERS)[one.place] = value
