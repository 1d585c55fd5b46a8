"""The slots of the switch: which job gets which of them, and with which number an incarnation begins.

Slots outlive jobs.  A cell of the switch still has the number, the bitmap and the lanes of the last round that an
earlier job ran in it.  Suppose a new incarnation began with a number that is not newer.  The switch would take its
contributions for stale ones.  Or it would take them for repeats of a complete round, and answer with an old result.

So the controller reads both versions (cells) of each slot before an incarnation gets the slots.  `plan_numbers` chooses
a first number that is newer than all of them.  Numbers are serial numbers modulo 2**32 (RFC 1982): "newer" is defined
only for two numbers less than 2**31 apart.  After years of use the cells' numbers may be spread wider than that.  Then
no number is newer than all, and the cells that would be in the way are cleared.

Example: the cells have the numbers 41 (version 1), 40 (version 0) and 17.  The incarnation begins with 42.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from switchsum_protocol import serial


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SlotRange:
    """Consecutive slots of the switch."""

    first: int
    """Number of the first slot, from 0, over the whole switch."""
    count: int
    """Number of slots, at least 1."""

    @property
    def end(self) -> int:
        """Number behind that of the last slot."""
        return self.first + self.count

    def indices(self) -> range:
        """Return the numbers of the slots."""
        return range(self.first, self.end)


def first_fit(taken: Iterable[SlotRange], count: int, total: int) -> SlotRange | None:
    """Return the lowest `count` consecutive slots, of `total`, that are in no taken range; None if there are none."""
    first = 0
    for other in sorted(taken):
        if other.first - first >= count:
            break
        first = max(first, other.end)
    return SlotRange(first=first, count=count) if first + count <= total else None


def longest_free(taken: Iterable[SlotRange], total: int) -> int:
    """Return how many consecutive slots, of `total`, are in no taken range at most."""
    longest = first = 0
    for other in sorted(taken):
        longest = max(longest, other.first - first)
        first = max(first, other.end)
    return max(longest, total - first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One version of one slot, as the switch's registers have it."""

    slot: int
    """Number of the slot on the switch."""
    version: int
    """0 or 1."""
    number: int
    """Number of the last round that used the cell."""
    seen: int
    """Bitmap of contributors; 0: the cell was never used, and `number` has no meaning."""
    flags: int = 0
    block: int = 0
    next_block: int = 0
    holder: int = 0
    """Number of the job that holds the slot, where it is shared; 0: none."""


FRESH_NUMBER = 1
"""First number for slots that were never used; any number would do."""


def plan_numbers(cells: Iterable[Cell]) -> tuple[int, list[Cell]]:
    """Return the first number with which the slots of these cells may be used, and the cells to clear before that.

    The number is newer than the newest number of a cell.  Serial numbers wrap, so cells whose numbers are half the
    circle apart have no common successor.  Cells that would take the first number for an old one are cleared.
    """
    used = [cell for cell in cells if cell.seen]
    if not used:
        return FRESH_NUMBER, []
    start = serial.advance(serial.newest([cell.number for cell in used]))
    # The first round in a cell has the first number or the one after it, whichever has the cell's version.
    opening = {serial.version(number): number for number in (start, serial.advance(start))}
    return start, [
        cell
        for cell in used
        if opening[cell.version] == cell.number or serial.is_older(opening[cell.version], cell.number)
    ]
