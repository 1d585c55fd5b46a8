"""Lay the mapped top-level folders out as one package under build/typing, where mypy can find them.

The import system maps `switchsum.switch` to `switch/` and so on; mypy cannot run import hooks and wants a tree.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TYPING = ROOT / "build" / "typing"


def wanted_links() -> dict[Path, Path]:
    """Return link -> target: the root package's files one by one, each mapped folder as a whole."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        mapping: dict[str, str] = tomllib.load(file)["tool"]["setuptools"]["package-dir"]
    links = {}
    for package, folder in mapping.items():
        place, source = TYPING.joinpath(*package.split(".")), ROOT / folder
        if "." in package:
            links[place] = source
        else:
            links.update({place / child.name: child for child in source.iterdir() if child.name != "__pycache__"})
    return links


def main() -> None:
    """Bring the tree of links up to date, leaving those that are right in place for a mypy that may be running."""
    links = {link: os.path.relpath(target, link.parent) for link, target in wanted_links().items()}
    for path in TYPING.rglob("*") if TYPING.exists() else ():
        if path.is_symlink() and (path not in links or os.readlink(path) != links[path]):
            path.unlink()
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target)


if __name__ == "__main__":
    main()
