"""Finds the row of a key in a table of which a key field is not exact: tuple space search.

Entries that compare the same bits stand together: they are a *tuple* (Srinivasan, Suri, Varghese: "Packet
Classification using Tuple Space Search", SIGCOMM 1999).  A dictionary finds the entries of a tuple by the bits that
they compare, so a lookup costs one step for each mask, not one for each entry.  An LPM table has at most one tuple for
each prefix length.

The tuples are tried in the order of their best entries; the search ends when no later tuple can have a better entry.
Entries of equal mask and value differ in priority or in ranges: they are a *chain*, best first.

Native code searches in the same way (`codegen/lookups.py`).
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Rank = tuple[int, int, int]
"""Minus priority or prefix length, age, row: the smallest rank wins."""
Ranges = tuple[tuple[int, int], ...]
"""Low and high of each key field that is a range."""

_SPARE: Final = 16
"""Ranks of removed entries that a heap may hold beyond as many as there are entries."""


class RowPosition(NamedTuple):
    """Where a row stands."""

    tuple_number: int
    before: int
    """The row before it in its chain; 0: it is the first."""
    after: int
    """The row behind it; 0: it is the last."""


@dataclass(slots=True)
class Tuple:
    """The entries that compare the bits of one mask."""

    mask: int
    number: int
    """Stays the same as long as the tuple has entries."""
    chains: dict[int, list[Rank]] = field(default_factory=dict)
    """Ranks of the entries, best first, by the value of the compared bits."""
    size: int = 0
    """Number of entries."""
    _heap: list[Rank] = field(default_factory=list)
    """All ranks, and some of removed entries."""

    def add(self, value: int, rank: Rank) -> RowPosition:
        """Add an entry."""
        heapq.heappush(self._heap, rank)
        self.size += 1
        chain = self.chains.get(value)
        if chain is None:  # as of nearly all entries
            self.chains[value] = [rank]
            return RowPosition(self.number, 0, 0)
        position = bisect.bisect_left(chain, rank)
        chain.insert(position, rank)
        return self._place(chain, position)

    def remove(self, value: int, rank: Rank) -> RowPosition:
        """Remove an entry, and return where it was."""
        chain = self.chains[value]
        position = bisect.bisect_left(chain, rank)
        place = self._place(chain, position)
        del chain[position]
        if not chain:
            del self.chains[value]
        self.size -= 1
        if len(self._heap) > 2 * self.size + _SPARE:
            self._heap = [rank for chain in self.chains.values() for rank in chain]
            heapq.heapify(self._heap)
        return place

    def best(self, ranks: dict[int, Rank]) -> Rank:
        """Return the best rank; `ranks`: those of all entries, by row."""
        heap = self._heap
        while ranks.get(heap[0][2]) != heap[0]:
            heapq.heappop(heap)
        return heap[0]

    def _place(self, chain: list[Rank], position: int) -> RowPosition:
        before = chain[position - 1][2] if position else 0
        after = chain[position + 1][2] if position + 1 < len(chain) else 0
        return RowPosition(self.number, before, after)


class TupleSpace:
    """The entries of one table, by tuple."""

    def __init__(self) -> None:
        self.ranks: dict[int, Rank] = {}
        """Ranks by row."""
        self._keys: dict[int, tuple[int, int]] = {}
        self._ranges: dict[int, Ranges] = {}
        self._tuples: dict[int, Tuple] = {}
        self._numbered: list[Tuple | None] = []
        self._free: list[int] = []
        self._order: list[tuple[Rank, Tuple]] | None = None

    def __len__(self) -> int:
        """Return the number of tuples, which is that of steps that a lookup may take."""
        return len(self._tuples)

    def add(self, rank: Rank, value: int, mask: int, ranges: Ranges) -> RowPosition:
        """Add an entry whose row is free, and return where it stands."""
        row = rank[2]
        found = self._tuples.get(mask)
        if found is None:
            number = self._free.pop() if self._free else len(self._numbered)
            found = self._tuples[mask] = Tuple(mask, number)
            self._numbered[number : number + 1] = [found]
        self.ranks[row], self._keys[row] = rank, (value, mask)
        if ranges:
            self._ranges[row] = ranges
        self._order = None
        return found.add(value, rank)

    def remove(self, row: int) -> RowPosition:
        """Remove the entry of a row, and return where it stood."""
        value, mask = self._keys.pop(row)
        rank, one = self.ranks.pop(row), self._tuples[mask]
        self._ranges.pop(row, None)
        place = one.remove(value, rank)
        if not one.size:
            del self._tuples[mask]
            self._numbered[one.number] = None
            self._free.append(one.number)
        self._order = None
        return place

    def lookup(self, key: int, ranged: tuple[int, ...]) -> int:
        """Return the row that matches; 0 if none does.

        `key`: all fields but ranges, side by side; `ranged`: the fields that are compared with ranges.
        """
        if self._order is None:
            self._order = sorted((one.best(self.ranks), one) for one in self._tuples.values())
        found: Rank | None = None
        for best, one in self._order:
            if found is not None and found < best:
                break
            for rank in one.chains.get(key & one.mask, ()):
                if found is not None and found < rank:
                    break
                if not ranged or self._inside(rank[2], ranged):
                    found = rank
                    break
        return found[2] if found else 0

    def numbered(self, number: int) -> Tuple | None:
        """Return the tuple of a number; None if it has no entries any more."""
        return self._numbered[number]

    def tuples(self) -> Iterable[Tuple]:
        """Return the tuples that have entries."""
        return self._tuples.values()

    def places(self) -> Iterator[tuple[int, RowPosition]]:
        """Yield the rows, each with its place when those after it are not yet there."""
        for one in self._tuples.values():
            for chain in one.chains.values():
                before = 0
                for _, _, row in chain:
                    yield row, RowPosition(one.number, before, 0)
                    before = row

    def _inside(self, row: int, ranged: tuple[int, ...]) -> bool:
        return all(low <= value <= high for value, (low, high) in zip(ranged, self._ranges[row], strict=True))
