"""What the compiler takes of numba's inside is what it was when that was written: for each new release of numba."""

from __future__ import annotations

import ast
import gc
import inspect
import re
import textwrap
import tomllib
from contextlib import nullcontext
from enum import EnumMeta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError
from numba.extending import typeof_impl

from switchsum_switch.kernels import compiler
from switchsum_switch.kernels.compiler import LEFT_OUT
from switchsum_switch.ports.base import PortCounter

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


@pytest.mark.parametrize("fails", [False, True])
def test_numba_is_as_it_was_after_compiling(fails: bool) -> None:
    def state() -> list[Any]:
        return [gc.isenabled(), typeof_impl.dispatch(EnumMeta), *(vars(owner)[name] for owner, name in LEFT_OUT)]

    before = state()
    with pytest.raises(TypingError) if fails else nullcontext():
        compiler.outlined(lambda: int(PortCounter.TX_BYTES) + (undefined if fails else 0), (), "int")  # type: ignore[name-defined]  # noqa: F821
    assert state() == before


def test_an_enumeration_of_ours_is_a_number_in_our_kernels_alone() -> None:
    _, code = compiler.outlined(lambda: PortCounter.TX_BYTES + np.int8(0), (), "int")
    assert code
    assert type(numba.typeof(PortCounter)) is numba.core.types.IntEnumClass  # others' code has numba's own types


def test_only_versions_of_numba_that_were_looked_at_are_allowed() -> None:
    [wanted] = [name for name in tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"] if "numba" in name]
    found = re.fullmatch(r"numba>=(\d+)\.(\d+),<(\d+)\.(\d+)", wanted)
    assert found is not None
    *least, major, minor = map(int, found.groups())
    here = [int(part) for part in version("numba").split(".")[:2]]
    assert least <= here < [major, minor]
