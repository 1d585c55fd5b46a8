"""Lines and tables of cells and how they went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from .cells import Cell
from .running import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A cell, and how it went."""

    name: str
    cell: Cell
    outcome: Outcome


def line(row: Row) -> str:
    """Return a cell in a line: how it went first, then what it is."""
    found = row.outcome
    how = found.error or f"share {found.share:.3f}"
    return (
        f"{row.name:12} {row.cell.kind:12} {how}, repeats {found.repeats:.3f}, {found.took_s:.4g} s of "
        f"{found.bound_s:.4g}, {found.recovery:.2f} time-outs  {row.cell.text}"
    )


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table by kind."""
    titles = "kind, cells, failed, below 0.8, below 0.95, least share, median share, median repeats, most repeats"
    yield f"| {titles.replace(', ', ' | ')} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for kind in [*sorted({row.cell.kind for row in rows}), ""]:
        here = [row.outcome for row in rows if kind in ("", row.cell.kind)]
        ended = [one for one in here if not one.error]
        if not ended:
            yield f"| {kind or 'all'} | {len(here)} | {len(here)} | - | - | - | - | - | - |"
            continue
        shares, repeats = [one.share for one in ended], [one.repeats for one in ended]
        yield (
            f"| {kind or 'all'} | {len(here)} | {len(here) - len(ended)} | {sum(x < 0.8 for x in shares)} | "
            f"{sum(x < 0.95 for x in shares)} | {min(shares):.2f} | {median(shares):.2f} | {median(repeats):.3f} | "
            f"{max(repeats):.2f} |"
        )
