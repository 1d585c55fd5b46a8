"""The slowdowns: each changes a line or two of the worker, whose sums stay right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from checks.mutate.mutant import replaced

ENGINE: Final = "host/switchsum_host/engine"
LINKS: Final = "host/switchsum_host/links"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """A change of some lines in one file."""

    name: str
    path: str
    """The file, from the repository's root."""
    changes: tuple[tuple[str, str], ...]
    """Each text that is replaced, which occurs once in the file, and what replaces it."""

    @property
    def module(self) -> str:
        """The module that it changes."""
        return ".".join(Path(self.path).with_suffix("").parts[1:])

    def apply(self, root: Path) -> None:
        """Change the file below a root; raises ValueError where a text does not occur once."""
        path = root / self.path
        text = path.read_text()
        for before, after in self.changes:
            text = replaced(text, before, after, self.path)
        path.write_text(text)


def _in(module: str, name: str, *changes: tuple[str, str]) -> Slowdown:
    return Slowdown(name=name, path=f"{ENGINE}/{module}.py", changes=changes)


SLOWDOWNS: Final = (
    _in("policies/timer", "time-outs shorter than a round", ("_MOST_TRIPS: Final = 3.0", "_MOST_TRIPS: Final = 0.3")),
    _in(
        "config",
        "a first time-out of 20 ms",
        ("probe_initial_s: float = 0.2", "probe_initial_s: float = 0.02"),
        ("probe_max_s: float = 8.0", "probe_max_s: float = 0.25"),
    ),
    _in(
        "policies/window",
        "a window of 8",
        ("min(window.limit, float(window.first)) if window.is_open == 0 and has_lanes else window.limit", "8.0"),
    ),
    _in(
        "policies/window",
        "a window that does not grow",
        ("    if window.has_started == 0:\n        return 1.0\n", "    return 0.0\n"),
    ),
    _in(
        "policies/round_trips",
        "results in order say nothing",
        ("    if trips.in_order >= FEW_TIMED:\n", "    if trips.in_order < 0:\n"),
    ),
    _in(
        "congestion",
        "the whole window at once",
        ("others + 1 > allowed(here.window, slot.block != NO_BLOCK)", "others + 1 > here.slots"),
    ),
    _in("config", "no loss makes the window smaller", ("loss_cut: float = 0.3", "loss_cut: float = 0.0")),
    _in(
        "policies/timer",
        "time-outs that are not doubled",
        ("min(doubled_s(timer, timer.backoffs), longest)", "min(doubled_s(timer, 0), longest)"),
    ),
    _in(
        "policies/losses",
        "each repeat as often as results come",
        ("    return wait_s\n", "    return 0.0\n"),
        ("if order.reorder_s > 0.0 else -np.inf", "if False else -np.inf"),
    ),
    _in(
        "policies/timer",
        "many frames at each time-out",
        ("_PROBES_AT_ONCE: Final = 2", "_PROBES_AT_ONCE: Final = 64"),
    ),
    Slowdown(
        name="a lost wake-up",
        path=f"{LINKS}/shm.py",
        changes=(("    if asleep:\n        ring_bell(own.switch_bell)\n", ""),),
    ),
    Slowdown(
        name="an extra copy",
        path="host/switchsum_host/api/communicator.py",
        changes=(
            (
                "        self._allreduce(array, how, block, stays=True).wait()\n",
                "        values = array.copy()\n"
                "        self._allreduce(values, how, block, stays=True).wait()\n"
                "        array[...] = values\n",
            ),
        ),
    ),
    Slowdown(
        name="a batch of one",
        path=f"{LINKS}/packet.py",
        changes=(("addresses, lengths, own.longest)", "addresses[:1], lengths[:1], own.longest)"),),
    ),
)
