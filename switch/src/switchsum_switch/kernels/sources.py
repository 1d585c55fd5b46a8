"""A digest of everything that kernels are made of."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import sys
from functools import cache
from typing import Final

from .packages import folders_with_kernels

_USES_KERNELS: Final = re.compile(
    r"^(?:from|import) (?:numba|(?:switchsum_switch\.|\.+)(?:kernels\.)?(?:decorators|outlined|intrinsics))\b",
    re.MULTILINE,
)
_IMPORT: Final = re.compile(
    r"^from (\.+[\w.]*|switchsum[\w.]*) import (?:\(([^)]*)\)|(.*))|^import (switchsum[\w.]*)", re.MULTILINE
)


@cache
def source_digest() -> str:
    """Return a digest of the files that hold kernels and of all of ours that they import, and of the compilers."""
    sources = module_sources()
    wanted = {name for name, (_, text) in sources.items() if _USES_KERNELS.search(text)}
    reached: set[str] = set()
    while wanted:
        name = wanted.pop()
        reached.add(name)
        wanted |= imports(*sources[name]) & sources.keys() - reached
    compilers = (f"{name} {importlib.metadata.version(name)}" for name in ("numba", "llvmlite", "numpy"))
    digest = hashlib.sha256(f"{sys.version} {' '.join(compilers)}".encode())
    for name in sorted(reached):
        _, text = sources[name]
        digest.update(f"{name} {len(text)} {text}".encode())
    return digest.hexdigest()[:20]


def module_sources() -> dict[str, tuple[str, str]]:
    """Read every module of the packages that may hold kernels: its dotted name -> its package and its text."""
    sources = {}
    for package, folder in folders_with_kernels():
        for path in folder.rglob("*.py"):
            name = ".".join([package, *path.relative_to(folder).with_suffix("").parts])
            text = path.read_text(encoding="utf-8")
            sources[name.removesuffix(".__init__")] = (name.rpartition(".")[0], text)
    return sources


def imports(package: str, text: str) -> set[str]:
    """Return the dotted names of ours that a module of `package` imports at its top level: modules, names in them."""
    names = set()
    for written, lines, line, plain in _IMPORT.findall(re.sub(r"#.*", "", text)):
        module = importlib.util.resolve_name(written, package) if written else ""
        names.add(module or plain)
        names |= {f"{module}.{name.split()[0]}" for name in (lines or line).split(",") if name.strip()}
    return names
