"""Object code on disk, so that a program is compiled once for each machine.

The name of a file is a digest of everything that the code depends on: the sources that make it, LLVM and the CPU, the
options, and the program's IR.  So a file is never out of date: what changes has another name.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from switchsum_switch.kernels import cache as files
from switchsum_switch.kernels.cache import Store
from switchsum_switch.kernels.machinecode import fingerprint

from ..program import ir

MAX_FILES: Final = 32
"""Most programs that are kept; one more removes the program that was not used for the longest time."""
_SUFFIX: Final = ".object"
_HAVE_A_SAY: Final = ("codegen", "execution", "program", "program/lower", "program/passes", "queues", "state")
"""Folders whose modules determine the code: they emit it, or decide what may be left out."""


def key_of(program: ir.Program, *, debug: bool) -> str:
    """Return a name for the code of a program; two programs with the same name have the same code."""
    digest = hashlib.sha256()
    for part in (_sources_digest(), fingerprint(), str(debug), repr(program)):
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


def load(store: Store | None, key: str) -> bytes | None:
    """Return the code that is stored under a key; None if there is none or it is damaged."""
    return None if store is None else store.load(key + _SUFFIX)


def keep(store: Store | None, key: str, code: bytes) -> None:
    """Store code under a key, and remove the files that were not used for the longest time."""
    if store is not None and files.keep(store, key + _SUFFIX, code):
        files.prune(store, _SUFFIX, MAX_FILES)


def sources() -> list[Path]:
    """Return the modules that determine the code."""
    folder = Path(__file__).parents[1]
    return sorted(path for part in _HAVE_A_SAY for path in (folder / part).glob("*.py"))


@cache
def _sources_digest() -> str:
    digest = hashlib.sha256()
    for path in sources():
        name = f"{path.parent.name}/{path.name}"
        digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
