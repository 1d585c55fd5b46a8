"""Slots of the switch: which job gets which, and from which number on a job may use them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from switchsum.protocol import serial


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SlotRange:
    """Consecutive slots of the switch."""

    first: int
    """Absolute index, from 0."""
    count: int
    """At least 1."""

    @property
    def end(self) -> int:
        """Index behind the last slot."""
        return self.first + self.count

    def indices(self) -> range:
        """Return the absolute indices."""
        return range(self.first, self.end)


def first_fit(taken: Iterable[SlotRange], count: int, total: int) -> SlotRange | None:
    """Return the lowest `count` slots in a row that lie in no taken range, of `total`; None when there are none."""
    first = 0
    for other in sorted(taken):
        if other.first - first >= count:
            break
        first = max(first, other.end)
    return SlotRange(first=first, count=count) if first + count <= total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One version of one slot as the switch's registers have it."""

    slot: int
    """Absolute index."""
    version: int
    """0 or 1."""
    number: int
    """The round that the cell belongs to."""
    seen: int
    """Bitmap of contributors; 0: never used, and then `number` means nothing."""
    flags: int = 0
    block: int = 0
    next_block: int = 0


FRESH_NUMBER = 1
"""Where slots that were never used start; any number would do."""


def plan_numbers(cells: Iterable[Cell]) -> tuple[int, list[Cell]]:
    """Return a number from which on all the cells' slots may be used, and the cells to be cleared before that.

    The number lies beyond everything that the cells have seen.  Serial numbers wrap, so cells whose numbers lie more
    than half the circle apart have no common successor: those that would take the start for an old number are cleared.
    """
    used = [cell for cell in cells if cell.seen]
    if not used:
        return FRESH_NUMBER, []
    start = serial.advance(serial.newest([cell.number for cell in used]))
    # A cell meets the start or the number after it, whichever has its version.
    opening = {serial.version(number): number for number in (start, serial.advance(start))}
    return start, [
        cell
        for cell in used
        if opening[cell.version] == cell.number or serial.is_older(opening[cell.version], cell.number)
    ]
