"""Our own packages: in which kernels may be written, and whose enumerations are plain integers to them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SWITCH: Final = ("switchsum_switch",)
_ALLREDUCE: Final = ("switchsum_protocol", "switchsum_host", "switchsum_controller", "switchsum_exercises", "switchsum")
_LAB: Final = ("switchsum_lab",)
_DISTRIBUTIONS: Final = (_SWITCH, _ALLREDUCE, _LAB)
"""Packages that are installed together, or not at all."""
_OURS: Final = frozenset(name for packages in _DISTRIBUTIONS for name in packages)
_WITH_KERNELS: Final = ("switchsum_protocol", "switchsum_switch", "switchsum_host", "switchsum_lab")
"""Packages in which kernels are written, and those whose constants and functions these use."""


def is_ours(module: str) -> bool:
    """Return whether a module of this dotted name belongs to one of our packages."""
    return module.partition(".")[0] in _OURS


def folders_with_kernels() -> Iterator[tuple[str, Path]]:
    """Yield each package with kernels that is installed here, and its folder.

    Raises ImportError where a package is missing although others of its distribution are there: a digest without it
    would let kernels of yesterday's code run.
    """
    for packages in _DISTRIBUTIONS:
        specs = {name: importlib.util.find_spec(name) for name in packages}
        if not any(specs.values()):
            continue
        for name, spec in specs.items():
            if spec is None:
                raise ImportError(f"{name} is missing, though others of its distribution are installed", name=name)
            if name in _WITH_KERNELS:
                yield from ((name, Path(folder)) for folder in spec.submodule_search_locations or ())
