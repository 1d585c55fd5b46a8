"""Memory of this process: what it holds, and the most that it has held since the count began anew."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_MOST_ANEW: Final = "5"
"""Sets the most to what is held now (man 5 proc_pid_clear_refs)."""


def held_bytes() -> int:
    """Return how many bytes the process holds now."""
    return _read("VmRSS")


def most_bytes() -> int:
    """Return the most bytes that the process has held since `count_anew`."""
    return _read("VmHWM")


def count_anew() -> bool:
    """Forget how many bytes the process has held so far; False: the kernel does not let it."""
    try:
        _CLEAR.write_text(_MOST_ANEW)
    except OSError:
        return False
    return True


def _read(name: str) -> int:
    found = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(found.split()[1])
