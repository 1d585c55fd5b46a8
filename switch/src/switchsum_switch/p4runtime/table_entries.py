"""Table entries, direct counters and meters: TableEntry, DirectCounterEntry and DirectMeterEntry.

P4Runtime specification, sections 9.1, 9.4 and 9.5.  Each `write` returns a function that takes the write back, for
atomic batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from switchsum_switch.errors import SwitchsumError
from switchsum_switch.messages.p4runtime import v1

from ..errors import ReadOnly
from ..messages.matches import Match
from ..state.clock import Clock
from ..state.meters import MeterRates
from ..state.tables import Entry
from .refusal import invalid
from .schema import Schema, TableSchema, lookup
from .targets import Undo, drop_set, encode_target, make_entry, undone
from .translate import (
    check_colours,
    decode_action,
    decode_counts,
    decode_key,
    decode_rates,
    encode_action,
    encode_colours,
    encode_counts,
    encode_key,
    encode_rates,
)

INSERT, MODIFY, DELETE = v1.Update.INSERT, v1.Update.MODIFY, v1.Update.DELETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Data of the controller that is stored with an entry; the switch does not look at it."""

    metadata: bytes = b""
    controller_metadata: int = 0
    """The older form of metadata, 64 bits."""


RowPlace = tuple[int, tuple[Match, ...] | None, int]
"""Table id, match and priority; a match of None stands for the default action."""


class TableEntries:
    """The tables of one program; every method is called under the program's lock."""

    def __init__(self, schema: Schema, clock: Clock) -> None:
        self._tables = schema.tables
        self._clock = clock
        self._notes: dict[RowPlace, Note] = {}

    def write(self, kind: int, message: Any) -> Undo:
        """Carry out an update of a TableEntry."""
        schema = lookup("table", self._tables, message.table_id)
        if message.is_const:
            raise invalid("is_const is the switch's to set")
        if message.is_default_action:
            return self._write_default(kind, schema, message)
        if schema.const and kind != MODIFY:
            raise ReadOnly(f"the entries of table {schema.name} are const")
        key, priority = _key(schema, message.match), message.priority
        if (priority < 1) if schema.table.prioritised else priority:
            need = "above 0" if schema.table.prioritised else "0, for the table has no priorities"
            raise invalid(f"the priority of an entry of table {schema.name} is {need}, not {message.priority}")
        if kind == DELETE:
            return self._delete(schema, key, message.priority)
        _check_resources(schema, message)
        if kind == INSERT:
            return self._insert(schema, key, message)
        return self._modify(schema, key, message)

    def read(self, query: Any) -> Iterator[Any]:
        """Yield the table entries that a TableEntry selects (section 9.1.6)."""
        for schema in self._selected(query):
            _check_idle(schema, query)
            for entry in self._matching(schema, query):
                message = self._encode(schema, entry)
                if query.HasField("time_since_last_hit") and entry:
                    now_us = self._clock.now_us()
                    message.time_since_last_hit.elapsed_ns = 1000 * (now_us - schema.table.last_hit_us(entry, now_us))
                if query.HasField("counter_data") and schema.table.spec.has_counters:
                    message.counter_data.CopyFrom(encode_counts(*schema.table.direct_counter(entry)))
                if query.HasField("meter_config") and entry and schema.table.meter:
                    _put_rates(message.meter_config, schema.table.direct_meter(entry))
                if query.HasField("meter_counter_data") and entry and schema.table.meter:
                    message.meter_counter_data.CopyFrom(encode_colours(*schema.table.meter_cell(entry)))
                if _passes(message, query):
                    yield message

    def write_counter(self, kind: int, message: Any) -> Undo:
        """Carry out an update of a DirectCounterEntry."""
        if kind != MODIFY:
            raise invalid("direct counters can only be modified; they come and go with their entries")
        query = message.table_entry
        schema = lookup("table", self._tables, query.table_id)
        _require_counter(schema)
        entry = self._one(schema, query)
        if not message.HasField("data"):
            return _nothing
        return _set_counts(schema, entry, message.data)

    def read_counter(self, query: Any) -> Iterator[Any]:
        """Yield the direct counters that a DirectCounterEntry selects; without a match, those of whole tables."""
        wanted = query.table_entry
        for schema in self._selected(wanted):
            if wanted.table_id:
                _require_counter(schema)
            elif not schema.table.spec.has_counters:
                continue
            entries = [self._one(schema, wanted)] if wanted.match else self._matching(schema, wanted)
            for entry in entries:
                message = v1.DirectCounterEntry(table_entry=self._encode(schema, entry))
                message.data.CopyFrom(encode_counts(*schema.table.direct_counter(entry)))
                yield message

    def write_meter(self, kind: int, message: Any) -> Undo:
        """Carry out an update of a DirectMeterEntry; without a config the entry is always green."""
        if kind != MODIFY:
            raise invalid("direct meters can only be modified; they come and go with their entries")
        query = message.table_entry
        schema = lookup("table", self._tables, query.table_id)
        _require_meter(schema, query)
        check_colours(message.counter_data)
        entry = schema.table.get(_key(schema, query.match), query.priority)
        return _set_meter(schema, entry, message, "config", "counter_data")

    def read_meter(self, query: Any) -> Iterator[Any]:
        """Yield the direct meters that a DirectMeterEntry selects; without a match, those of whole tables."""
        wanted = query.table_entry
        for schema in self._selected(wanted):
            if wanted.table_id:
                _require_meter(schema, wanted)
            elif schema.table.meter is None:
                continue
            entries = [self._one(schema, wanted)] if wanted.match else self._matching(schema, wanted)
            for entry in filter(None, entries):
                message = v1.DirectMeterEntry(table_entry=self._encode(schema, entry))
                _put_rates(message.config, schema.table.direct_meter(entry))
                if query.HasField("counter_data"):
                    message.counter_data.CopyFrom(encode_colours(*schema.table.meter_cell(entry)))
                yield message

    def idle_message(self, schema: TableSchema, entry: Entry) -> Any:
        """Return what clients are told of an entry that has timed out: all of it but its action."""
        message = self._encode(schema, entry)
        message.ClearField("action")
        return message

    def _insert(self, schema: TableSchema, key: tuple[Match, ...], message: Any) -> Undo:
        if not message.HasField("action"):
            raise invalid("a new entry needs an action")
        table, priority = schema.table, message.priority
        # Everything that can be refused is decoded before the insert, except that meters check their rates themselves.
        counts = decode_counts(message.counter_data) if message.HasField("counter_data") else None
        entry, drop = make_entry(schema, key, priority, message.idle_timeout_ns, message.action)
        try:
            table.insert(entry)
        except BaseException:
            drop()
            raise
        if message.HasField("meter_config"):
            try:
                table.set_direct_meter(entry, decode_rates(message.meter_config, schema.meter_kind))
            except SwitchsumError:
                table.delete(key, priority)
                drop()
                raise
        if counts is not None:
            table.set_direct_counter(entry, *counts)
        restore_note = self._note((schema.identifier, key, priority), message)

        def undo() -> None:
            restore_note()
            table.delete(key, priority)
            drop()

        return undo

    def _modify(self, schema: TableSchema, key: tuple[Match, ...], message: Any) -> Undo:
        old = schema.table.get(key, message.priority)
        if old.is_const and (message.HasField("action") or message.metadata or message.controller_metadata):
            raise ReadOnly(f"this entry of table {schema.name} is const")
        undo: list[Undo] = []
        if message.HasField("action"):
            decode_counts(message.counter_data)
            if schema.table.meter:
                undo.append(_set_meter(schema, old, message, "meter_config", "meter_counter_data"))
            new, drop = make_entry(schema, old.match, old.priority, message.idle_timeout_ns, message.action)
            with undone(drop):
                schema.table.modify(new)
            again = drop_set(schema, old)
            undo += [drop, lambda: schema.table.modify(old), again]
        elif schema.ages and message.idle_timeout_ns != old.idle_timeout_ns:
            schema.table.modify(replace(old, idle_timeout_ns=message.idle_timeout_ns))
            undo.append(lambda: schema.table.modify(old))
        if message.HasField("counter_data"):
            undo.append(_set_counts(schema, old, message.counter_data))
        undo.append(self._note((schema.identifier, key, message.priority), message))
        return lambda: [step() for step in reversed(undo)]

    def _delete(self, schema: TableSchema, key: tuple[Match, ...], priority: int) -> Undo:
        table = schema.table
        old = table.get(key, priority)
        if old.is_const:
            raise ReadOnly(f"this entry of table {schema.name} is const")
        # The entry's counts and rates end with it; they are kept here in case that the write is taken back.
        counts = table.direct_counter(old) if table.spec.has_counters else None
        cell = _meter_words(schema, old).copy() if table.meter else None
        age = table.delete(key, priority)
        again = drop_set(schema, old)
        restore_note = self._note((schema.identifier, key, priority), Note())

        def undo() -> None:
            again()
            table.insert(old, age)
            if counts is not None:
                table.set_direct_counter(old, *counts)
            if cell is not None:
                _meter_words(schema, old)[:] = cell
            restore_note()

        return undo

    def _write_default(self, kind: int, schema: TableSchema, message: Any) -> Undo:
        if kind != MODIFY:
            raise invalid(f"the default action of table {schema.name} is always there; it can only be modified")
        if message.match or message.priority:
            raise invalid("the default action has no match and no priority")
        _check_resources(schema, message)
        table = schema.table
        counts = decode_counts(message.counter_data)
        old, old_counts = table.default, table.direct_counter() if table.spec.has_counters else None
        place = (schema.identifier, None, 0)
        if message.HasField("action"):
            table.set_default(*decode_action(schema, message.action, as_default=True))
            restore_note = self._note(place, message)
        else:
            table.reset_default()
            restore_note = self._note(place, Note())
        if old_counts is not None and (message.HasField("counter_data") or not message.HasField("action")):
            table.set_direct_counter(None, *counts)

        def undo() -> None:
            table.set_default(*old)
            if old_counts is not None:
                table.set_direct_counter(None, *old_counts)
            restore_note()

        return undo

    def _note(self, place: RowPlace, source: Any) -> Undo:
        """Store the metadata of `source`, a TableEntry or a Note; return a function that restores the old."""
        if not self._notes and not source.metadata and not source.controller_metadata:
            return _nothing
        old = self._notes.get(place)
        new = Note(metadata=source.metadata, controller_metadata=source.controller_metadata)
        self._put_note(place, new)
        return lambda: self._put_note(place, old)

    def _put_note(self, place: RowPlace, note: Note | None) -> None:
        if note is None or note == Note():
            self._notes.pop(place, None)
        else:
            self._notes[place] = note

    def _selected(self, query: Any) -> list[TableSchema]:
        if query.table_id:
            return [lookup("table", self._tables, query.table_id)]
        if query.match or query.priority or query.HasField("action") or query.metadata or query.controller_metadata:
            raise invalid("a read of all tables takes no other filter")
        return list(self._tables.values())

    def _matching(self, schema: TableSchema, query: Any) -> list[Entry | None]:
        """Return the entries with the query's match and priority, if it has them; None is the default action."""
        if query.is_default_action:
            if query.match or query.priority:
                raise invalid("the default action has no match and no priority")
            return [None]
        key = _key(schema, query.match) if query.match else None
        return [
            entry
            for entry in schema.table.entries()
            if key in (None, entry.match) and query.priority in (0, entry.priority)
        ]

    def _one(self, schema: TableSchema, query: Any) -> Entry | None:
        """Return the one entry that a message names; None is the default action."""
        if query.is_default_action:
            return self._matching(schema, query)[0]
        return schema.table.get(_key(schema, query.match), query.priority)

    def _encode(self, schema: TableSchema, entry: Entry | None) -> Any:
        table = schema.table
        if entry is None:
            place: RowPlace = (schema.identifier, None, 0)
            message = v1.TableEntry(is_default_action=True, is_const=table.spec.const_default)
            action = encode_action(schema, *table.default)
        else:
            place = (schema.identifier, entry.match, entry.priority)
            message = v1.TableEntry(match=encode_key(schema, entry.match), priority=entry.priority)
            message.is_const, message.idle_timeout_ns = entry.is_const, entry.idle_timeout_ns
            action = encode_target(schema, entry)
        message.table_id = schema.identifier
        if action is not None:
            message.action.CopyFrom(action)
        note = self._notes.get(place, Note())
        message.metadata, message.controller_metadata = note.metadata, note.controller_metadata
        return message


def _key(schema: TableSchema, matches: Any) -> tuple[Match, ...]:
    """Read the fields of a match, without the bits that the program masks away."""
    return schema.table.compared(decode_key(schema, matches))


def _check_resources(schema: TableSchema, message: Any) -> None:
    if message.HasField("meter_config"):
        _require_meter(schema, message)
    if message.HasField("meter_counter_data"):
        _require_meter(schema, message)
        check_colours(message.meter_counter_data)
    if message.HasField("counter_data"):
        _require_counter(schema)
    if message.HasField("time_since_last_hit"):
        raise invalid("time_since_last_hit is the switch's to set")
    _check_idle(schema, message)


def _check_idle(schema: TableSchema, message: Any) -> None:
    if message.idle_timeout_ns or message.HasField("time_since_last_hit"):
        if not schema.ages or message.is_default_action:
            raise invalid(f"table {schema.name} has no idle timeout")
        if message.idle_timeout_ns < 0:
            raise invalid("an idle timeout is not negative")


def _require_meter(schema: TableSchema, message: Any) -> None:
    if schema.table.meter is None:
        raise invalid(f"table {schema.name} has no direct meter")
    if message.is_default_action:
        raise invalid("the default action has no meter")


def _set_meter(schema: TableSchema, entry: Entry, message: Any, rates: str, counts: str) -> Undo:
    """Configure an entry's meter by a field of a message, and clear its counts if another field is there."""
    words = _meter_words(schema, entry)
    old = words.copy()
    new = decode_rates(getattr(message, rates), schema.meter_kind) if message.HasField(rates) else None
    schema.table.set_direct_meter(entry, new)
    if message.HasField(counts):
        meter, row = schema.table.meter_cell(entry)
        meter.clear_counts(row)

    def undo() -> None:
        _meter_words(schema, entry)[:] = old

    return undo


def _meter_words(schema: TableSchema, entry: Entry) -> npt.NDArray[np.uint64]:
    """Return the words of an entry's meter, in place."""
    meter, row = schema.table.meter_cell(entry)
    words: npt.NDArray[np.uint64] = meter.cells[row]
    return words


def _put_rates(message: Any, rates: MeterRates | None) -> None:
    if rates is not None:
        message.CopyFrom(encode_rates(rates))


def _require_counter(schema: TableSchema) -> None:
    if not schema.table.spec.has_counters:
        raise invalid(f"table {schema.name} has no direct counter")


def _set_counts(schema: TableSchema, entry: Entry | None, data: Any) -> Undo:
    counts, old = decode_counts(data), schema.table.direct_counter(entry)
    schema.table.set_direct_counter(entry, *counts)
    return lambda: schema.table.set_direct_counter(entry, *old)


def _passes(message: Any, query: Any) -> bool:
    """Return whether an entry has the action and the metadata that a query asks for."""
    if query.HasField("action") and message.action.action.action_id != query.action.action.action_id:
        return False
    if query.metadata and message.metadata != query.metadata:
        return False
    return not query.controller_metadata or bool(message.controller_metadata == query.controller_metadata)


def _nothing() -> None:
    """Undo a write that has changed nothing."""
