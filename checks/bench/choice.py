"""Which cells of a table are measured: the command line narrows it down, so that a table can be made in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RUNS = 7
"""Of so few pairs the smallest and the largest ratio hold the median with a confidence of 98 %."""


NARROWING = ("workers", "sizes", "lanes", "rates", "peers", "public", "runs")
"""Fields of `Choice`; each part says in its `TAKES` which of them it looks at, and others are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Empty: as many as the part measures by itself."""

    workers: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    """Bytes."""
    lanes: tuple[int, ...] = ()
    rates: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    """Keys of `switchsum_lab.sweeps.peers.PEERS`."""
    public: tuple[Path, ...] = ()
    """Folders of compiled public programs; empty: those of our own alone."""
    runs: int = RUNS


def size_name(size: int) -> str:
    """Write a number of bytes as it appears in names of records."""
    for unit, name in ((1_000_000, "MB"), (1_000, "kB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"
