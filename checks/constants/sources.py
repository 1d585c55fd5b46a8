"""The constants of the worker's recovery, and modules that are imported with one of them changed.

A changed constant is changed in the source, before the module is run.  So names that other modules import from it,
values that are computed of it, and compiled code all have the new value.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from checks.clone import ROOT

ENGINE: Final = "switchsum_host.engine"
FOLDER: Final = ROOT / "host" / "switchsum_host" / "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number that is named at the top of a module."""

    module: str
    """With its package."""
    symbol: str
    value: str
    """As it is written."""

    @property
    def name(self) -> str:
        """Its module's last word, and what it is called there."""
        return f"{self.module.rpartition('.')[2]}.{self.symbol}"


def constants() -> dict[str, Constant]:
    """Return the constants of policies, and those of what asks them, by their names."""
    found = {}
    for path in [*sorted((FOLDER / "policies").glob("*.py")), FOLDER / "recovery.py", FOLDER / "congestion.py"]:
        module = ".".join([ENGINE, *path.relative_to(FOLDER).with_suffix("").parts])
        for node in numbers_in(ast.parse(path.read_text())):
            assert isinstance(node.target, ast.Name)
            assert node.value is not None
            one = Constant(module=module, symbol=node.target.id, value=ast.unparse(node.value))
            found[one.name] = one
    return found


def numbers_in(tree: ast.Module) -> Iterator[ast.AnnAssign]:
    """Yield the statements that name a number, which may be computed of numbers: `_GAIN: Final = 1 / 8`."""
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign) or ast.unparse(node.annotation) != "Final" or node.value is None:
            continue
        if all(_is_arithmetic(part) for part in ast.walk(node.value)):
            yield node


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    return isinstance(node, ast.UnaryOp | ast.BinOp | ast.operator | ast.unaryop)


def changed(text: str, symbol: str, value: str, path: str) -> CodeType:
    """Compile a module's text with another value of a constant; raises ValueError where it does not have it."""
    tree = ast.parse(text)
    named = [node for node in numbers_in(tree) if isinstance(node.target, ast.Name) and node.target.id == symbol]
    if len(named) != 1:
        raise ValueError(f"{path} names {len(named)} numbers {symbol}")
    named[0].value = ast.parse(value, mode="eval").body
    code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    return code


class _Loader(SourceFileLoader):
    """Runs a module's changed source."""

    def __init__(self, spec: ModuleSpec, constant: Constant, value: str) -> None:
        super().__init__(spec.name, str(spec.origin))
        self._constant, self._value = constant, value

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source anew: what is beside it as bytecode has the old value."""
        return changed(Path(self.path).read_text(), self._constant.symbol, self._value, self.path)


class _Finder(MetaPathFinder):
    """Finds one module, whose source is to be changed."""

    def __init__(self, constant: Constant, value: str) -> None:
        self._constant, self._value = constant, value

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's place with a loader that changes it; None for other modules."""
        if fullname != self._constant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _Loader(spec, self._constant, self._value)
        return spec


def change(constant: Constant, value: str) -> None:
    """Give a constant another value in this process; raises ImportError where its module is imported already."""
    if constant.module in sys.modules:
        raise ImportError(f"{constant.module} has been imported", name=constant.module)
    sys.meta_path.insert(0, _Finder(constant, value))
