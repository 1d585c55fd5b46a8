"""The slowdowns: each changes a line or two of the worker, whose sums stay right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from checks.mutate.mutant import replaced

ENGINE: Final = "host/switchsum_host/engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """A change of some lines in one file."""

    name: str
    path: str
    """The file, from the repository's root."""
    changes: tuple[tuple[str, str], ...]
    """Each text that is replaced, which occurs once in the file, and what replaces it."""

    def apply(self, root: Path) -> None:
        """Change the file below a root; raises ValueError where a text does not occur once."""
        path = root / self.path
        text = path.read_text()
        for before, after in self.changes:
            text = replaced(text, before, after, self.path)
        path.write_text(text)


def _recovery(name: str, *changes: tuple[str, str]) -> Slowdown:
    return Slowdown(name=name, path=f"{ENGINE}/recovery.py", changes=changes)


def _congestion(name: str, *changes: tuple[str, str]) -> Slowdown:
    return Slowdown(name=name, path=f"{ENGINE}/congestion.py", changes=changes)


def _config(name: str, *changes: tuple[str, str]) -> Slowdown:
    return Slowdown(name=name, path=f"{ENGINE}/config.py", changes=changes)


SLOWDOWNS: Final = (
    _recovery("time-outs shorter than a round", ("_MOST_TRIPS: Final = 3.0", "_MOST_TRIPS: Final = 0.3")),
    _config(
        "a first time-out of 20 ms",
        ("probe_initial_s: float = 0.2", "probe_initial_s: float = 0.02"),
        ("probe_max_s: float = 8.0", "probe_max_s: float = 0.25"),
    ),
    _congestion(
        "a window of 8", ("return min(here.limit, float(here.first)) if is_first else here.limit", "return 8.0")
    ),
    _congestion(
        "a window that does not grow", ("    if here.has_started == 0:\n        return 1.0\n", "    return 0.0\n")
    ),
    _congestion(
        "results in order say nothing", ("    if here.in_order >= _FIRST_TIMED:\n", "    if here.in_order < 0:\n")
    ),
    _congestion("the whole window at once", ("others + 1 > _allowed(here, slot)", "others + 1 > here.slots")),
    _config("no loss makes the window smaller", ("loss_cut: float = 0.3", "loss_cut: float = 0.0")),
    _recovery(
        "time-outs that are not doubled",
        ("min(_doubled(core, recovery.timeouts), longest)", "min(_doubled(core, 0), longest)"),
    ),
    _recovery(
        "each repeat as often as results come",
        ("    return pause_s\n", "    return 0.0\n"),
        ("        elif recovery.reorder_s[path] > 0.0:\n", "        elif False:\n"),
    ),
    _recovery("many frames at each time-out", ("_PROBES_AT_ONCE: Final = 2", "_PROBES_AT_ONCE: Final = 64")),
)
