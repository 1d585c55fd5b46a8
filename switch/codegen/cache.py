"""Object code on disk, so that a program is compiled once for each machine."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from switchsum.protocol.cache import Store
from switchsum.switch import ir
from switchsum.switch.codegen.machine import fingerprint

MAX_FILES: Final = 32
"""Programs that are kept; the one that was not used for longest goes first."""
_SUFFIX: Final = ".object"
_HAVE_A_SAY: Final = ("", "codegen", "lower", "passes")
"""Folders whose modules make code, or tell those that do what they may leave out."""


def key_of(program: ir.Program, *, debug: bool, shard: int | None = None) -> str:
    """Return a name for the code of a program: the same only where the code would be."""
    digest = hashlib.sha256()
    for part in (_sources_digest(), fingerprint(), f"{debug} {shard}", repr(program)):
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


def load(store: Store | None, key: str) -> bytes | None:
    """Return the code stored under a key, None where there is none or it is damaged."""
    return None if store is None else store.load(key + _SUFFIX)


def keep(store: Store | None, key: str, code: bytes) -> None:
    """Keep code under a key, in place of what was not used for longest."""
    if store is not None and store.store(key + _SUFFIX, code):
        store.prune(_SUFFIX, MAX_FILES)


def sources() -> list[Path]:
    """Return all modules that have a say in the code."""
    folder = Path(__file__).parents[1]
    return sorted(path for part in _HAVE_A_SAY for path in (folder / part).glob("*.py"))


@cache
def _sources_digest() -> str:
    digest = hashlib.sha256()
    for path in sources():
        name = f"{path.parent.name}/{path.name}"
        digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
