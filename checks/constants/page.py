"""The table of docs/recovery.md: each constant, and the networks that do not hold their bounds without it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from checks.bench import ages
from checks.clone import ROOT
from checks.constants.neutral import ELSEWHERE, FIXED
from checks.constants.sources import constants
from checks.rough import short
from checks.rough.cells import Cell

KEPT: Final = Path(__file__).with_name("results.json")
PAGE: Final = ROOT / "docs" / "recovery.md"
BEGIN, END = "<!-- constants: python -m checks.constants --publish -->", "<!-- end of constants -->"
NO_END: Final = 1e6
"""From that on, a value means that there is no limit."""
SHOWN: Final = 4
"""Most networks that a row names."""

Rows = dict[str, dict[str, Any]]


def kept() -> Rows:
    """Return what was found, by constant."""
    rows: Rows = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return rows


def keep(found: Rows) -> None:
    """Add to what was found."""
    KEPT.write_text(json.dumps(kept() | found, indent=1, sort_keys=True) + "\n")


def table(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of both tables, for the constants that there are now."""
    named: dict[str, None] = {}
    yield "| constant | value | other values, and networks that fall with them |"
    yield "|---|---|---|"
    for name, one in constants().items():
        if name in FIXED:
            yield f"| `{name}` | {one.value} | {FIXED[name]} |"
        elif name in rows and rows[name]["value"] == one.value:
            says = "; ".join([*_tries(rows[name]["tries"], named), *filter(None, [ELSEWHERE.get(name)])])
            yield f"| `{name}` | {one.value} | {says} |"
        else:
            yield f"| `{name}` | {one.value} | not tried yet |"
    yield ""
    yield "| network | what it is |"
    yield "|---|---|"
    for cell in short.CELLS:
        if cell in named:
            yield f"| {cell} | {words(short.CELLS[cell])} |"


def _tries(tries: Mapping[str, Mapping[str, Any]], named: dict[str, None]) -> Iterator[str]:
    """Yield each value that was tried with what fell."""
    for value, found in tries.items():
        falls = [cell for cell in found["falls"] if cell in short.CELLS]
        named.update(dict.fromkeys(falls[:SHOWN]))
        more = f" and {len(falls) - SHOWN} more" if len(falls) > SHOWN else ""
        says = ", ".join(falls[:SHOWN]) + more if falls else f"none ({found['moved']} go another way)"
        yield f"{'no end' if float(value) >= NO_END else value}: {says}"


def words(cell: Cell) -> str:
    """Say what a network is.

    Example:
        >>> words(Cell(kind="queue", rate_bps=1e8, queue_bytes=4456, slots=64))
        'queue: star of 4 hosts, 100 Mbit/s, trip 0.1 ms, 64 slots, queues of 4 frames'

    """
    hosts = f"{cell.jobs} jobs of {cell.hosts} hosts" if cell.jobs > 1 else f"{cell.hosts} hosts"
    is_fast = cell.rate_bps >= 1e9
    rate = f"{cell.rate_bps / 1e9:.4g} Gbit/s" if is_fast else f"{cell.rate_bps / 1e6:.4g} Mbit/s"
    says = [f"{cell.kind}: {cell.shape} of {hosts}", rate]
    says += [f"hosts {cell.host_times:g} times as fast"] * (cell.host_times != 1)
    says += [f"others {cell.slow_times:g} times as fast"] * (cell.slow_times != 1)
    says += [f"trip {1e3 * cell.trip_s:.3g} ms"]
    says += [f"one host {1e3 * cell.far_s:.3g} ms further away"] * (cell.far_s > 0)
    says += [f"{cell.slots} slots"]
    says += ["MTU 9,000"] * (cell.lanes > 256)
    if cell.queue_bytes is not None:
        says.append(f"queues of {cell.queue_bytes / cell.frame_bytes:.0f} frames")
    if cell.mark_bytes is not None:
        says.append(f"marks from {cell.mark_bytes / cell.frame_bytes:.0f} frames on")
    says += [f"buckets of {cell.bucket_bytes / 1024:.0f} KiB"] * (cell.bucket_bytes > 0)
    says += [f"loss {100 * cell.loss:.3g} %"] * (cell.loss > 0)
    says += [f"{100 * cell.late:.3g} % of frames late by up to {1e3 * cell.late_by_s:.3g} ms"] * (cell.late > 0)
    says += [f"{100 * cell.twice:.3g} % of frames come twice"] * (cell.twice > 0)
    says += [f"batches of {1e3 * cell.batch_s:.3g} ms"] * (cell.batch_s > 0)
    says += [f"{cell.shared_slots} slots shared"] * (cell.shared_slots is not None)
    says += [cell.numbers] * (cell.numbers != "float32")
    says += [f"{100 * cell.density:.3g} % of blocks"] * (cell.density < 1)
    for one in cell.troubles:
        times = f" at {one.factor:g} times its rate" * (one.factor > 0)
        says.append(f"{one.what} {one.lasts_s:.3g} s{times}")
    return ", ".join(says)


def publish() -> None:
    """Write the tables."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{between()}{END}{rest.split(END)[1]}")
    ages.mark()


def between() -> str:
    """Return what the page has between its marks."""
    return "\n\n" + "\n".join(table(kept())) + "\n\n"
