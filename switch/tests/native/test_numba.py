"""What the compiler takes of numba's inside is what it was when that was written: for each new release of numba."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from switchsum_switch.kernels.compiler import LEFT_OUT

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
# What each method that is left out takes and calls, in numba 0.61 to 0.68: it hands code to the engine of this process,
# and nothing else.  One that does more must not be left out.
DOES: dict[str, tuple[list[str], set[str]]] = {
    "_add_module": (["self", "module"], {"add_module"}),
    "set_env": (["self", "env_name", "env"], {"get_global_value_address", "from_address", "c_void_p", "id"}),
    "_finalize_specific": (["self"], {"_scan_and_fix_unresolved_refs", "record_legacy", "finalize_object"}),
}
RENAMED = {"record": "record_legacy"}  # how numba 0.61 calls what notes its own times


def calls(function: Any) -> set[str]:
    """Return the names of all that a function calls."""
    called = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            called.add(RENAMED.get(name, name))
    return called


@pytest.mark.parametrize(("owner", "name"), LEFT_OUT, ids=[f"{owner.__name__}.{name}" for owner, name in LEFT_OUT])
def test_what_is_left_out_of_numba_does_what_it_did(owner: Any, name: str) -> None:
    method = vars(owner)[name]  # its own: one that is inherited would be replaced for others, too
    assert (list(inspect.signature(method).parameters), calls(method)) == DOES[name]


def test_what_is_left_out_is_as_it_was_after_compiling() -> None:
    from switchsum_switch.kernels import compiler

    before = [vars(owner)[name] for owner, name in LEFT_OUT]
    compiler.outlined(lambda: 7, (), "int")
    assert [vars(owner)[name] for owner, name in LEFT_OUT] == before


def test_only_versions_of_numba_that_were_looked_at_are_allowed() -> None:
    [wanted] = [name for name in tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"] if "numba" in name]
    found = re.fullmatch(r"numba>=(\d+)\.(\d+),<(\d+)\.(\d+)", wanted)
    assert found is not None
    *least, major, minor = map(int, found.groups())
    here = [int(part) for part in version("numba").split(".")[:2]]
    assert least <= here < [major, minor]
