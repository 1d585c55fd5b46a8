"""A digest of everything that kernels are made of."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("switchsum.protocol", "switchsum.host", "switchsum.switch")
"""Where kernels are written."""
_USES_KERNELS: Final = re.compile(r"^(?:from|import) (?:numba|switchsum\.protocol\.kernels)\b", re.MULTILINE)
_IMPORT: Final = re.compile(
    r"^from (switchsum[\w.]*) import (?:\(([^)]*)\)|(.*))|^import (switchsum[\w.]*)", re.MULTILINE
)


@cache
def source_digest() -> str:
    """Return a digest of the files that hold kernels and of all of ours that they import, and of the compilers."""
    sources = module_sources()
    wanted = {name for name, text in sources.items() if _USES_KERNELS.search(text)}
    reached: set[str] = set()
    while wanted:
        name = wanted.pop()
        reached.add(name)
        wanted |= imports(sources[name]) & sources.keys() - reached
    compilers = (f"{name} {importlib.metadata.version(name)}" for name in ("numba", "llvmlite", "numpy"))
    digest = hashlib.sha256(f"{sys.version} {' '.join(compilers)}".encode())
    for name in sorted(reached):
        digest.update(f"{name} {len(sources[name])} {sources[name]}".encode())
    return digest.hexdigest()[:20]


def module_sources() -> dict[str, str]:
    """Read every module of the packages that may hold kernels, by its dotted name."""
    sources = {}
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in Path(folder).rglob("*.py"):
                inner = ".".join(path.relative_to(folder).with_suffix("").parts)
                sources[f"{package}.{inner}".removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return sources


def imports(text: str) -> set[str]:
    """Return the dotted names of ours that a module imports at its top level, modules and names in them alike."""
    names = set()
    for module, lines, line, plain in _IMPORT.findall(re.sub(r"#.*", "", text)):
        names.add(module or plain)
        names |= {f"{module}.{name.split()[0]}" for name in (lines or line).split(",") if name.strip()}
    return names
