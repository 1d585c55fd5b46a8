"""The rows of a table as native code reads them, kept up to date while the control plane changes the table.

A hash table with linear probing finds them: slots of 32 bits that hold the number of a row, or 0 if the slot is free,
and a tag for each slot.  At most a quarter of the slots are in use.  If a key field is not exact, slots hold the first
rows of chains, and there is a list of the tuples (`tuple_space.py`), with their order or a filter (`filters.py`).
They are brought up to date before the next batch, not after each change: controllers often write many entries at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..messages.matches import MatchKind
from ..state.profiles import MOST_CHOICES
from ..state.tables import NO_ACTION, Combined, Entry, Table
from ..state.tuple_space import Rank, RowPosition
from .filters import TupleFilter
from .keys import hash_key, tag_of
from .layout import (
    ALIGN,
    BEST_OFFSET,
    CHOICE_OFFSET,
    CHOICES,
    COUNTS,
    FILTER,
    FILTER_WORDS,
    HITS,
    MASK_OFFSET,
    METERS,
    NEXT_OFFSET,
    ORDER,
    RANDOM_BIT,
    RANK_OFFSET,
    ROWS,
    SEED_OFFSET,
    SINGLE_OFFSET,
    SLOTS,
    SLOTS_MASK,
    TAGS,
    TUPLE_MASK_OFFSET,
    TUPLES,
    TUPLES_COUNT,
    RowLayout,
    words,
)

_FIRST_SLOTS = 256
_FIRST_RANK = 1 << 63
"""Added to the first part of a rank, which is not positive."""
_NO_RANK = (1 << 128) - 1
"""Worse than any rank."""


class TableRows:
    """The native copy of one table (a `Mirror`)."""

    def __init__(self, table: Table, context: npt.NDArray[np.uint64], stale: set[TableRows]) -> None:
        """Follow `table`.  `context`: its words of the context, which are filled in; `stale`: tables to refresh."""
        spec = table.spec
        self._table = table
        self._context = context
        self._stale = stale
        self._layout = RowLayout(spec)
        layout = self._layout
        # What each entry needs, in the form in which it is quickest: controllers write many at once.
        self._stride, self._value_offset, self._exact = layout.stride, layout.value_offset, layout.exact
        self._key_bits, self._key_bytes = layout.key_bits, layout.key_bits // 8
        self._range_bytes = [8 * words(key.width) for key in spec.keys if key.kind is MatchKind.RANGE]
        self._actions = {
            action.name: (
                index,
                [(layout.param_offset(index, at), 8 * words(param.width)) for at, param in enumerate(action.params)],
            )
            for index, action in enumerate(spec.actions)
        }
        """Number of each action, and offset and bytes of each of its parameters."""
        # Row 0 is the default action.  A table without a key has no other row.
        capacity = spec.size if spec.keys else 0
        # Behind the entries' rows: a row that does nothing, for empty groups, and a row for each member of the profile.
        members = 0 if table.profile is None else 1 + table.profile.size
        self._nothing = capacity + 1
        self._rows = _aligned_rows(capacity + 1 + members, self._layout.stride)
        self._bytes = memoryview(self._rows.data).cast("B")
        self._hashes = memoryview(np.zeros(capacity + 1, np.uint64).data)
        """Of the keys, by row."""
        self._choices = np.zeros((MOST_CHOICES if members else 0, 2), np.uint64)
        self._lists: dict[int, npt.NDArray[np.uint32]] = {}
        if members:
            self._put_action(self._nothing, NO_ACTION, ())
        # There are never more tuples than entries.
        tuples = 0 if self._layout.exact else capacity
        self._tuples = _aligned_rows(tuples, self._layout.tuple_stride)
        self._best = self._tuples[:, BEST_OFFSET : BEST_OFFSET + 16].view(np.uint64)
        self._order = np.zeros(tuples, np.uint32)
        self._most = 0
        # New values of entries, by the number of their tuple; without a filter, tuples that have changed.
        self._changed: dict[int, list[int]] = {}
        self._filter = TupleFilter(table.space, max(1, self._key_bytes)) if self._layout.filtered else None
        context[ROWS] = self._rows.ctypes.data
        self._make_slots(min(_FIRST_SLOTS, 4 << capacity.bit_length()))
        context[TUPLES], context[ORDER] = self._tuples.ctypes.data, self._order.ctypes.data
        context[TUPLES_COUNT] = 0
        self._show_filter()
        context[COUNTS], context[HITS] = table.counts.ctypes.data, table.hits_us.ctypes.data
        context[CHOICES] = self._choices.ctypes.data
        context[METERS] = table.meter.cells.ctypes.data if table.meter else 0
        table.attach(self)

    def put(self, row: int, entry: Entry, key: Combined) -> None:
        """Write an entry to a row; it is new there, or only its action has changed."""
        profile = self._table.profile
        self._put_action(row, entry.action, entry.params)
        if entry.via is not None and profile is not None:
            self._write(row, CHOICE_OFFSET, profile.number_of(entry.via), 4)
        self._put_key(row, key)
        if self._exact:
            self._occupy(row, row)

    def remove(self, row: int, entry: Entry) -> None:
        """Remove the entry of a row."""
        if self._exact:
            self._free(self._probe(row))

    def link(self, row: int, rank: Rank, place: RowPosition) -> None:
        """Let lookups find a row that was written."""
        start = row * self._stride + RANK_OFFSET
        self._bytes[start : start + 20] = (_encoded(rank) | place.after << 128).to_bytes(20, "little")
        if place.before:
            self._write(place.before, NEXT_OFFSET, row, 4)
        else:
            self._occupy(row, place.after)
        values = self._changed.setdefault(place.tuple_number, [])
        if self._filter is not None:
            values.append(self._number(row, self._value_offset))
        self._stale.add(self)

    def unlink(self, row: int, place: RowPosition) -> None:
        """Let lookups find a row no more."""
        if place.before:
            self._write(place.before, NEXT_OFFSET, place.after, 4)
        elif place.after:
            self._slots[self._probe(row)] = place.after
        else:
            self._free(self._probe(row))
        self._changed.setdefault(place.tuple_number, [])
        self._stale.add(self)

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        """Write the default action."""
        self._put_action(0, action, params)

    def put_member(self, slot: int, action: str, params: tuple[int, ...]) -> None:
        """Write the action of a member of the table's action profile."""
        self._put_action(self._nothing + 1 + slot, action, params)

    def put_choice(self, number: int, slots: Sequence[int], *, at_random: bool) -> None:
        """Write the rows of the members between which a choice chooses."""
        rows = [self._nothing + 1 + slot for slot in slots] or [self._nothing]
        self._lists[number] = np.array(rows, np.uint32)
        self._choices[number] = self._lists[number].ctypes.data, at_random << RANDOM_BIT | len(rows)

    def refresh(self) -> None:
        """Write the tuples that have changed, and their order or filter; called before the next batch."""
        for number in self._changed:
            self._put_tuple(number)
        if self._filter is None:
            self._put_order()
        else:
            self._filter.update(self._changed)
            self._show_filter()
        self._changed.clear()

    def _show_filter(self) -> None:
        if self._filter is not None:
            self._context[FILTER], self._context[FILTER_WORDS] = self._filter.address, self._filter.words

    def _put_order(self) -> None:
        self._most = max(self._most, *(number + 1 for number in self._changed))
        low, high = self._best[: self._most, 0], self._best[: self._most, 1]
        order = np.lexsort((low, high))
        self._order[: len(order)] = order
        # Tuples without entries come last.
        self._context[TUPLES_COUNT] = np.count_nonzero(high != _NO_RANK >> 64)

    def _put_tuple(self, number: int) -> None:
        space, layout = self._table.space, self._layout
        found, size = space.numbered(number), layout.key_bits // 8
        if found is None:
            self._put_in_tuple(number, BEST_OFFSET, _NO_RANK, 16)
            return
        self._put_in_tuple(number, BEST_OFFSET, _encoded(found.best(space.ranks)), 16)
        self._put_in_tuple(number, SEED_OFFSET, hash_key(found.mask, layout.key_bits), 8)
        self._put_in_tuple(number, TUPLE_MASK_OFFSET, found.mask, size)
        single = 0
        if len(found.chains) == 1:
            ((value, ((_, _, single), *_)),) = found.chains.items()
            self._put_in_tuple(number, TUPLE_MASK_OFFSET + size, value, size)
        self._put_in_tuple(number, SINGLE_OFFSET, single, 4)

    def _put_in_tuple(self, number: int, offset: int, value: int, size: int) -> None:
        self._tuples[number, offset : offset + size] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)

    def _put_action(self, row: int, name: str, params: tuple[int, ...]) -> None:
        action, places = self._actions[name]
        self._write(row, 0, action, 4)
        for value, (offset, size) in zip(params, places, strict=True):
            self._write(row, offset, value, size)

    def _put_key(self, row: int, key: Combined) -> None:
        value, mask, ranges = key
        bits, size = self._key_bits, self._key_bytes
        if self._exact:
            self._write(row, self._value_offset, value, size)
            self._hashes[row] = hash_key(value, bits)
            return
        self._write(row, MASK_OFFSET, mask | value << bits, 2 * size)
        self._hashes[row] = hash_key(value, bits, _seed_of(mask, bits))
        offset = self._layout.range_offset
        for size, (low, high) in zip(self._range_bytes, ranges, strict=True):
            self._write(row, offset, low, size)
            self._write(row, offset + size, high, size)
            offset += 2 * size

    def _write(self, row: int, offset: int, value: int, size: int) -> None:
        start = row * self._stride + offset
        self._bytes[start : start + size] = value.to_bytes(size, "little")

    def _number(self, row: int, offset: int) -> int:
        start = row * self._stride + offset
        return int.from_bytes(self._bytes[start : start + self._key_bytes], "little")

    def _occupy(self, row: int, after: int) -> None:
        """Write a row to the slot of `after`, which has the same key, or to a free one."""
        state = self._hashes[row]
        slot = self._search(state, after)
        self._occupied += not self._slots[slot]
        self._slots[slot], self._tags[slot] = row, tag_of(state)
        if 4 * self._occupied > len(self._slots):
            rows = [one for one in self._slots.tolist() if one]
            self._make_slots(4 * len(self._slots))
            for one in rows:
                self._occupy(one, 0)

    def _make_slots(self, count: int) -> None:
        """Make free slots: few at first, so that those of many switches fit a processor's cache."""
        slots, tags = np.zeros(count, np.uint32), np.zeros(count, np.uint8)
        # Python reads a cell of these in a third of the time that an array takes.
        self._slots, self._tags = memoryview(slots.data), memoryview(tags.data)
        self._slots_mask, self._occupied = count - 1, 0
        self._context[SLOTS], self._context[TAGS] = slots.ctypes.data, tags.ctypes.data
        self._context[SLOTS_MASK] = self._slots_mask

    def _probe(self, row: int) -> int:
        """Return the slot that holds a row."""
        return self._search(self._hashes[row], row)

    def _search(self, state: int, wanted: int) -> int:
        """Return the slot that holds a row with that hash; if none does, the free slot for it."""
        slots, mask = self._slots, self._slots_mask
        slot = state & mask
        while (found := slots[slot]) and found != wanted:
            slot = (slot + 1) & mask
        return slot

    def _free(self, free: int) -> None:
        """Free a slot, and close the gap (Knuth, volume 3, section 6.4, algorithm R)."""
        mask, following = self._slots_mask, free
        while True:
            following = (following + 1) & mask
            moved = self._slots[following]
            if not moved:
                break
            if (following - self._hashes[moved]) & mask >= (following - free) & mask:
                self._slots[free], self._tags[free] = moved, self._tags[following]
                free = following
        self._slots[free] = self._tags[free] = 0
        self._occupied -= 1


@lru_cache(maxsize=1 << 12)
def _seed_of(mask: int, bits: int) -> int:
    """Return what the hashes of the keys of a tuple begin with."""
    return hash_key(mask, bits)


def _encoded(rank: Rank) -> int:
    """Return a rank as one unsigned number: of two, the smaller one wins."""
    return _FIRST_RANK + rank[0] << 64 | rank[1]


def _aligned_rows(count: int, stride: int) -> npt.NDArray[np.uint8]:
    """Return zeroed rows of which the first begins a cache line."""
    memory = np.zeros(count * stride + ALIGN, np.uint8)
    start = -memory.ctypes.data % ALIGN
    return memory[start : start + count * stride].reshape(count, stride)
