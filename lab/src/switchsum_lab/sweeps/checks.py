"""Says before the first run which cells are impossible."""

from __future__ import annotations

from switchsum_lab.sweeps import real, simulated
from switchsum_lab.sweeps.axes import Cell, Impossible


def check(cell: Cell) -> None:
    """Raise Impossible for a cell that cannot be run here."""
    if cell.bytes < 4:
        raise Impossible("bytes", f"an array has at least 4 bytes, not {cell.bytes}")
    if cell.bytes % 4:
        raise Impossible("bytes", f"an array of float32 has a multiple of 4 bytes, not {cell.bytes}")
    (simulated if cell.is_virtual else real).check(cell)


def check_trees(cell: Cell) -> None:
    """Raise Impossible for a cell whose jobs no trees serve; `check` has found nothing wrong with it."""
    if cell.is_virtual:
        simulated.check_trees(cell)
