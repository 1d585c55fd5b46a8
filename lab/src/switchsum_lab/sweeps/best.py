"""The best value of an axis: each protocol with the window, or whatever a sweep tries, that serves it best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.results import Run


def best(runs: Iterable[Run], axis: str) -> list[Run]:
    """Return the runs of the best cells.

    Args:
        runs: Runs that have ended well.
        axis: A field of cells.  Of cells that differ in it alone, the one with the least median time is the best; of
            several with the same median, the first one.

    Returns:
        The runs of the best cells, in their order.

    Example:
        >>> best([], "slots")
        []

    """
    taken: dict[Cell, list[Run]] = {}
    for run in runs:
        taken.setdefault(run.cell, []).append(run)
    found: dict[Cell, tuple[float, Sequence[Run]]] = {}
    for cell, own in taken.items():
        ms = median(run.outcome.ms for run in own if run.outcome is not None)
        group = replace(cell, **{axis: getattr(Cell(), axis)})
        if group not in found or ms < found[group][0]:
            found[group] = ms, own
    return [run for _, own in found.values() for run in own]
