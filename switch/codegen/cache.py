"""Object code on disk, so that a program is compiled once for each machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from switchsum.switch import ir
from switchsum.switch.codegen.machine import fingerprint

MAX_FILES: Final = 32
"""Programs that are kept; the one that was not used for longest goes first."""
_DIGEST_BYTES: Final = 32
_SUFFIX: Final = ".object"
_HAVE_A_SAY: Final = ("", "codegen", "lower", "passes")
"""Folders whose modules make code, or tell those that do what they may leave out."""


def key_of(program: ir.Program, *, debug: bool, shard: int | None = None) -> str:
    """Return a name for the code of a program: the same only where the code would be."""
    digest = hashlib.sha256()
    for part in (_sources_digest(), fingerprint(), f"{debug} {shard}", repr(program)):
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


class ObjectCache:
    """A directory of object files; whatever is wrong with it, programs are only compiled again."""

    def __init__(self, directory: Path | None) -> None:
        """Keep files in `directory`; None keeps nothing."""
        self._directory = directory

    def load(self, key: str) -> bytes | None:
        """Return the code stored under a key, None where there is none or it is damaged."""
        if self._directory is None:
            return None
        path = self._directory / (key + _SUFFIX)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, code = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return code if hashlib.sha256(code).digest() == digest else None

    def store(self, key: str, code: bytes) -> None:
        """Keep code under a key; readers see all of it or nothing."""
        if self._directory is None:
            return
        try:
            with tempfile.NamedTemporaryFile(dir=self._directory, prefix=".", delete=False) as file:
                try:
                    file.write(hashlib.sha256(code).digest() + code)
                    file.close()
                    os.replace(file.name, self._directory / (key + _SUFFIX))
                except OSError:
                    os.unlink(file.name)
                    raise
            self._prune(self._directory)
        except OSError:
            return

    def _prune(self, directory: Path) -> None:
        used = {path: path.stat().st_mtime_ns for path in directory.glob("*" + _SUFFIX)}
        for path in sorted(used, key=used.__getitem__)[:-MAX_FILES]:
            path.unlink(missing_ok=True)


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
