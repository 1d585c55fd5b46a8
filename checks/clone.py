"""Where things are in a clone."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


def import_path(root: Path = ROOT) -> str:
    """Return what PYTHONPATH is where all three distributions are to be imported from a clone, or from a copy of one.

    Example:
        >>> import_path(Path("/copy")).startswith("/copy/src:/copy/host:")
        True

    """
    folders = []
    for distribution in (".", "switch", "lab"):
        build = tomllib.loads((ROOT / distribution / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
        folders += [str(root / distribution / folder) for folder in build["dev-mode-dirs"]]
    return os.pathsep.join([*folders, str(root)])
