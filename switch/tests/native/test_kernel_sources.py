"""What kernels are made of: nothing that needs numba's own memory, which their machine code does without."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.kernels.plain import PLAIN

ROOT = Path(__file__).parents[3]
FOLDERS = ("switch/src", "host", "src", "lab/src")
DECORATORS = {"kernel", "inner", "Outlined"}
SCALARS = {"int", "float", "bool", "Scalar", "None", ""}
COLLECTIONS = (ast.List, ast.ListComp, ast.Set, ast.SetComp, ast.Dict, ast.DictComp)


def kernels_of(path: Path) -> list[ast.FunctionDef]:
    """Return the functions of a file that are compiled."""
    text = path.read_text()
    if not any(f"@{name}" in text for name in DECORATORS):
        return []
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return [one for one in found if {_name(decorator) for decorator in one.decorator_list} & DECORATORS]


def _name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def arrays_of(function: ast.FunctionDef, arrays_come_from: set[str]) -> set[str]:
    """Return the names of a function that stand for arrays, as far as annotations and calls tell."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    names = {one.arg for one in arguments if one.annotation and ast.unparse(one.annotation) not in SCALARS}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for one, value in pairs:
                if isinstance(one, ast.Name) and isinstance(value, ast.Call) and _name(value) in arrays_come_from:
                    names.add(one.id)
    return names


def faults(path: Path) -> Iterator[str]:
    """Say where kernels of a file make lists and the like, or take elements of an array by an array."""
    found = kernels_of(path)
    ours = {one.name for one in found if one.returns and ast.unparse(one.returns) not in SCALARS}
    for function in found:
        arrays = arrays_of(function, ours | {"empty", "zeros", "full", "ones", "arange", "array"})
        for statement in function.body:
            for node in ast.walk(statement):
                place = f"{path.name}:{getattr(node, 'lineno', 0)} {function.name}"
                if isinstance(node, COLLECTIONS):
                    yield f"{place}: {ast.unparse(node)}"
                if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id in arrays:
                    yield f"{place}: {ast.unparse(node)}"


def test_no_kernel_needs_the_memory_of_numba() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert sum(len(kernels_of(path)) for path in paths) > 60
    assert [fault for path in paths for fault in faults(path)] == []


def test_what_a_kernel_may_not_do_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(
        "@inner\ndef order(names: Names) -> Indices:\n    return np.empty(len(names), np.int32)\n"
        "@Outlined\ndef send(names: Names, one: int) -> int:\n    by = order(names)\n"
        "    many = [one]\n    return names[by][one]\n"
    )
    assert list(faults(path)) == ["wrong.py:7 send: [one]", "wrong.py:8 send: names[by]"]


@pytest.mark.skipif(PLAIN, reason="nothing is compiled")
def test_a_users_kernel_with_a_list_is_refused_with_the_reason() -> None:
    @kernel
    def total(values: npt.NDArray[np.float64]) -> int:
        kept = []
        for value in values:
            if value > 0:
                kept.append(value)
        return len(kept)

    with pytest.raises(TypeError, match=r"stub uses NRT_\w+.*np.empty"):
        total(np.ones(3))
