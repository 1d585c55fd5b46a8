"""Idle timeouts: the entries that no packet has hit for the time that they name (P4Runtime specification, 16.3)."""

from __future__ import annotations

from typing import Any, Final

from .schema import Schema
from .table_entries import RowPlace, TableEntries

SWEEP_US: Final = 100_000
"""All entries are looked at so often, by the switch's clock; BMv2 does it once a second."""


class IdleTimeouts:
    """The entries of one program that time out; it is called under the program's lock."""

    def __init__(self, schema: Schema, entries: TableEntries) -> None:
        self._tables = [table for table in schema.tables.values() if table.ages]
        self._entries = entries
        self._swept_us: int | None = None
        self._reported: dict[RowPlace, int] = {}
        """The entries of which clients were idle, and their last hits before that: they are idle once for each."""

    @property
    def has_tables(self) -> bool:
        """Whether entries may have a timeout."""
        return bool(self._tables)

    def is_due(self, now_us: int) -> bool:
        """Return whether it is time to look at the entries; may be asked without the lock."""
        return self.has_tables and (self._swept_us is None or not 0 <= now_us - self._swept_us < SWEEP_US)

    def due(self, now_us: int) -> list[Any]:
        """Return messages of the entries that have timed out since the last call."""
        self._swept_us = now_us
        idle: dict[RowPlace, int] = {}
        messages = []
        for schema in self._tables:
            for entry in schema.table.entries():
                if not entry.idle_timeout_ns:
                    continue
                place: RowPlace = (schema.identifier, entry.match, entry.priority)
                hit_us = schema.table.last_hit_us(entry, now_us)
                if 1000 * (now_us - hit_us) < entry.idle_timeout_ns:
                    continue
                idle[place] = hit_us
                if self._reported.get(place) != hit_us:
                    messages.append(self._entries.idle_message(schema, entry))
        self._reported = idle
        return messages
