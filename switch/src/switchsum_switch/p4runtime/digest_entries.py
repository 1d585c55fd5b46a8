"""Digests: DigestEntry, and the lists and acknowledgements of the stream (P4Runtime specification, 9.8 and 16.2).

A digest is sent once its DigestEntry has been inserted.  Records that wait are one list: it is sent when it has
`max_list_size` records or when its first record has waited for `max_timeout_ns`.  A record that was sent is not sent
again before its list is acknowledged or its time is over; with an `ack_timeout_ns` of 0 every record is sent.

As in PI, the library behind BMv2's server, a list is looked at every `ack_timeout_ns`, and forgotten the second time.
So its records are held for one to two time-outs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from switchsum_switch.messages.p4runtime import Code, v1

from ..state.digests import CAPACITY
from .refusal import Refused, invalid
from .schema import DigestSchema, Schema, lookup
from .table_entries import DELETE, INSERT, MODIFY
from .targets import Undo

MOST_RECORDS: Final = CAPACITY
"""Most records of a list, whatever the client's config says."""

_Record = tuple[int, ...]


@dataclass(slots=True)
class _Enabled:
    """A digest that is sent, and the records that were not acknowledged yet."""

    config: Any
    waiting: list[_Record] = field(default_factory=list)
    since_ns: int = 0
    """When the first of these records came."""
    held: set[_Record] = field(default_factory=set)
    """The records that are not sent again, and those that wait to be sent."""
    look_ns: int | None = None
    """When the lists that were sent are looked at next."""
    seen: set[int] = field(default_factory=set)
    """The lists that have been looked at once."""
    unacknowledged: dict[int, list[_Record]] = field(default_factory=dict)
    """The records of each list that was sent, by its number."""
    lists: int = 0
    """How many lists were sent."""


class DigestEntries:
    """The digests of one program; every method is called under the program's lock."""

    def __init__(self, schema: Schema) -> None:
        self._schemas = schema.digests
        self._enabled: dict[int, _Enabled] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether `due` may have anything to do; may be asked without the lock."""
        return bool(self._enabled) and (
            any(schema.digest.waiting for schema in self._schemas.values())
            or any(one.waiting or one.held for one in list(self._enabled.values()))
        )

    def write(self, kind: int, message: Any) -> Undo:
        """Carry out an update of a DigestEntry."""
        schema = lookup("digest", self._schemas, message.digest_id)
        identifier, old = schema.identifier, self._enabled.get(schema.identifier)
        if kind == INSERT and old is not None:
            raise Refused(Code.ALREADY_EXISTS, f"the digest {schema.name} has an entry")
        if kind != INSERT and old is None:
            raise Refused(Code.NOT_FOUND, f"the digest {schema.name} has no entry")
        if kind == DELETE:
            del self._enabled[identifier]
        else:
            config = message.config
            if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
                raise invalid("the times and the size of a digest's lists are not negative")
            if kind == INSERT:
                schema.digest.take()  # what came before is nobody's
            made = v1.DigestEntry.Config()
            made.CopyFrom(config)
            self._enabled[identifier] = _Enabled(made)
            if kind == MODIFY and old is not None:
                self._enabled[identifier].lists = old.lists

        def undo() -> None:
            if old is None:
                self._enabled.pop(identifier, None)
            else:
                self._enabled[identifier] = old

        return undo

    def read(self, query: Any) -> Iterator[Any]:
        """Yield the digest entries that a DigestEntry selects; id 0 stands for all."""
        if query.digest_id:
            lookup("digest", self._schemas, query.digest_id)
        for identifier, one in self._enabled.items():
            if query.digest_id in (0, identifier):
                yield v1.DigestEntry(digest_id=identifier, config=one.config)

    def acknowledge(self, message: Any) -> None:
        """Take a DigestListAck; raises Refused for a digest that P4Info does not have."""
        schema = lookup("digest", self._schemas, message.digest_id)
        one = self._enabled.get(schema.identifier)
        if one is not None:
            one.held.difference_update(one.unacknowledged.pop(message.list_id, []))

    def due(self, now_ns: int, timestamp_ns: int) -> list[Any]:
        """Return the lists that are to be sent now; `timestamp_ns` is the same time in nanoseconds since 1970."""
        lists = []
        for schema in self._schemas.values():
            one = self._enabled.get(schema.identifier)
            if one is not None:
                _forget(one, now_ns)
            for record in schema.digest.take() if schema.digest.waiting else ():
                if one is None or not _is_new(one, record):
                    continue
                if not one.waiting:
                    one.since_ns = now_ns
                one.waiting.append(record)
                if len(one.waiting) >= (one.config.max_list_size or MOST_RECORDS):
                    lists.append(_made(schema, one, timestamp_ns))
            if one is not None and one.waiting and now_ns - one.since_ns >= one.config.max_timeout_ns:
                lists.append(_made(schema, one, timestamp_ns))
        return lists


def _is_new(one: _Enabled, record: _Record) -> bool:
    """Return whether a record is to be sent, and hold others that are equal."""
    if not one.config.ack_timeout_ns:
        return True
    if record in one.held:
        return False
    one.held.add(record)
    return True


def _forget(one: _Enabled, now_ns: int) -> None:
    """Look at the lists that were sent, if it is time, and forget those that have been looked at before."""
    period = one.config.ack_timeout_ns
    if not period:
        return
    if one.look_ns is None:
        one.look_ns = now_ns + period
    if now_ns < one.look_ns:
        return
    looks = 1 + (now_ns - one.look_ns) // period
    one.look_ns += looks * period
    for _ in range(min(looks, 2)):
        for number in one.seen & one.unacknowledged.keys():
            one.held.difference_update(one.unacknowledged.pop(number))
        one.seen = set(one.unacknowledged)


def _made(schema: DigestSchema, one: _Enabled, timestamp_ns: int) -> Any:
    """Return the list of the records that wait."""
    records, one.waiting = one.waiting, []
    one.lists += 1
    message = v1.DigestList(digest_id=schema.identifier, list_id=one.lists, timestamp=timestamp_ns)
    message.data.extend(schema.encode(record) for record in records)
    if one.config.ack_timeout_ns:
        one.unacknowledged[one.lists] = records
    return message
