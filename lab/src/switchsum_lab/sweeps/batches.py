"""In which order cells run: batches whose jobs stay warm together, so that no job starts anew in each repetition."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.real import MOST_RANKS, Setting


def batches(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cut the cells of a sweep into batches, each of which runs all its repetitions before the next one begins.

    Virtual cells are one batch, for they start nothing.  Real cells of the same links and number of workers are
    neighbours, since it is their protocols that are compared.
    """
    groups: dict[Hashable, dict[Setting, list[Cell]]] = {}
    for cell in cells:
        if not cell.is_virtual:
            links = cell.links, cell.workers, cell.topology, cell.rate_mbit, cell.mtu
            groups.setdefault(links, {}).setdefault(Setting.of(cell), []).append(cell)
    made, ranks = [[cell for cell in cells if cell.is_virtual], list[Cell]()], 0
    for group in groups.values():
        is_split = ranks + sum(setting.workers for setting in group) > MOST_RANKS
        for number, (setting, own) in enumerate(group.items()):
            if (is_split and number == 0) or ranks + setting.workers > MOST_RANKS:
                made.append([])
                ranks = 0
            made[-1] += own
            ranks += setting.workers
    return [batch for batch in made if batch]
