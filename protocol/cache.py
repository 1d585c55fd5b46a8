"""Where compiled code is kept between runs: a directory of the user's own that nobody else can write to."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "SWITCHSUM_CACHE_DIR"
"""Environment variable that names the directory, in place of `$XDG_CACHE_HOME/switchsum` or `~/.cache/switchsum`."""


def cache_directory(*parts: str) -> Path | None:
    """Make and return the directory `parts` below the cache; None when none can be written safely.

    The temporary directory serves where the home cannot be written.  What lies in the cache is run as code, so a
    directory that belongs to another user, or that others may write to, is never taken.
    """
    for root in _candidates():
        directory = root.joinpath(*parts)
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(root):
                continue
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=directory).close()
        except (OSError, RuntimeError):  # read-only, full, or a user without a home
            continue
        return directory
    return None


def _candidates() -> list[Path]:
    fallback = Path(tempfile.gettempdir(), f"switchsum-cache-{os.geteuid()}")
    if chosen := os.environ.get(CACHE_VARIABLE):
        return [Path(chosen), fallback]
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(xdg) if os.path.isabs(xdg) else Path(os.path.expanduser("~"), ".cache")
    return [home / "switchsum", fallback]


def _is_private(directory: Path) -> bool:
    status = directory.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
