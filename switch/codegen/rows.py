"""The rows of a table as native code reads them, kept up to date while the control plane changes the table.

The index of a table whose key fields are all exact is a hash table with linear probing: slots of 32 bits that hold the
number of a row, or 0 if the slot is free.  At most half of the slots are in use.  The index of any other table is the
list of its rows in the order in which a lookup tries them; it is written anew before the next batch, not after each
change, since a controller often writes many entries at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..profiles import MOST_CHOICES
from ..tables import NO_ACTION, Entry, Exact, Lpm, Match, Range, Table, Ternary
from .layout import CHOICE_OFFSET, CHOICES, COUNTS, INDEX, INDEX_SIZE, METERS, ROWS, RowLayout, words
from .lookups import hash_key

KEY_OFFSET = 8
"""Offset of a row's key, behind the action.  In a table with a field that is not exact the key begins with the mask."""


class TableRows:
    """The native copy of one table (a `Mirror`)."""

    def __init__(self, table: Table, context: npt.NDArray[np.uint64], stale: set[TableRows]) -> None:
        """Follow `table`.  `context`: its words of the context, which are filled in; `stale`: tables to refresh."""
        spec = table.spec
        self._table = table
        self._context = context
        self._stale = stale
        self._layout = RowLayout(spec)
        self._actions = {action.name: index for index, action in enumerate(spec.actions)}
        # Row 0 is the default action.  A table without a key has no other row.
        capacity = spec.size if spec.keys else 0
        # Behind the entries' rows: one that does nothing, for empty groups, and one for each member of the profile.
        members = 0 if table.profile is None else 1 + table.profile.size
        self._nothing = capacity + 1
        self._rows = np.zeros((capacity + 1 + members, self._layout.stride), np.uint8)
        self._choices = np.zeros((MOST_CHOICES if members else 0, 2), np.uint64)
        self._lists: dict[int, npt.NDArray[np.uint32]] = {}
        if members:
            self._put_action(self._nothing, NO_ACTION, ())
        self._index = np.zeros(2 << capacity.bit_length() if self._layout.exact else capacity, np.uint32)
        context[ROWS] = self._rows.ctypes.data
        context[INDEX] = self._index.ctypes.data
        context[INDEX_SIZE] = len(self._index) - 1 if self._layout.exact else 0
        context[COUNTS] = table.counts.ctypes.data
        context[CHOICES] = self._choices.ctypes.data
        context[METERS] = table.meter.cells.ctypes.data if table.meter else 0
        table.attach(self)

    def put(self, row: int, entry: Entry) -> None:
        """Write an entry to a row; it is new there, or only its action has changed."""
        profile = self._table.profile
        self._put_action(row, entry.action, entry.params)
        if entry.via is not None and profile is not None:
            self._write(row, CHOICE_OFFSET, profile.number_of(entry.via), 4)
        self._put_key(row, entry.match)
        if self._layout.exact:
            self._index[self._probe(row)] = row

    def remove(self, row: int, entry: Entry) -> None:
        """Remove the entry of a row."""
        if not self._layout.exact:
            return  # `refresh` writes an order without it
        mask = len(self._index) - 1
        free = following = self._probe(row)
        while True:  # close the gap (Knuth, volume 3, section 6.4, algorithm R)
            following = (following + 1) & mask
            moved = int(self._index[following])
            if not moved:
                break
            if (following - self._home(moved)) & mask >= (following - free) & mask:
                self._index[free] = moved
                free = following
        self._index[free] = 0

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        """Write the default action."""
        self._put_action(0, action, params)

    def put_member(self, slot: int, action: str, params: tuple[int, ...]) -> None:
        """Write the action of a member of the table's action profile."""
        self._put_action(self._nothing + 1 + slot, action, params)

    def put_choice(self, number: int, slots: Sequence[int]) -> None:
        """Write the rows of the members between which a choice chooses."""
        rows = [self._nothing + 1 + slot for slot in slots] or [self._nothing]
        self._lists[number] = np.array(rows, np.uint32)
        self._choices[number] = self._lists[number].ctypes.data, len(rows)

    def reordered(self) -> None:
        """Note that the order in which rows are tried has changed."""
        self._stale.add(self)

    def refresh(self) -> None:
        """Write the order in which rows are tried; called before the next batch."""
        if not self._layout.exact:
            rows = self._table.ranked_rows()
            self._index[: len(rows)] = rows
            self._context[INDEX_SIZE] = len(rows)

    def _put_action(self, row: int, name: str, params: tuple[int, ...]) -> None:
        action = self._actions[name]
        self._write(row, 0, action, 4)
        for index, (value, param) in enumerate(zip(params, self._layout.spec.actions[action].params, strict=True)):
            self._write(row, self._layout.param_offset(action, index), value, 8 * words(param.width))

    def _put_key(self, row: int, match: tuple[Match, ...]) -> None:
        layout = self._layout
        # The first field is the highest part of the number, as `Lookup.find` puts it together.
        value = mask = 0
        offset = layout.range_offset
        for field, key in zip(match, layout.spec.keys, strict=True):
            if isinstance(field, Range):
                size = 8 * words(key.width)
                self._write(row, offset, field.low, size)
                self._write(row, offset + size, field.high, size)
                offset += 2 * size
            else:
                value = value << key.width | field.value
                mask = mask << key.width | _mask_of(field, key.width)
        self._write(row, layout.value_offset, value, layout.key_bits // 8)
        if not layout.exact:
            self._write(row, KEY_OFFSET, mask, layout.key_bits // 8)

    def _write(self, row: int, offset: int, value: int, size: int) -> None:
        self._rows[row, offset : offset + size] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)

    def _home(self, row: int) -> int:
        """Return the slot that a row's key hashes to."""
        start, bits = self._layout.value_offset, self._layout.key_bits
        key = int.from_bytes(self._rows[row, start : start + bits // 8].tobytes(), "little")
        return hash_key(key, bits) & (len(self._index) - 1)

    def _probe(self, row: int) -> int:
        """Return the slot of a row, or the free slot for it."""
        slot = self._home(row)
        while self._index[slot] not in (0, row):
            slot = (slot + 1) & (len(self._index) - 1)
        return slot


def _mask_of(match: Exact | Lpm | Ternary, width: int) -> int:
    """Return the bits of a key field that a match compares."""
    full = (1 << width) - 1
    match match:
        case Lpm(_, length):
            return full ^ (full >> length)
        case Ternary(_, mask):
            return mask
    return full
