"""Digests: DigestEntry, and the lists and acknowledgements of the stream (P4Runtime specification, 9.8 and 16.2).

A digest is sent once its DigestEntry has been inserted.  Records that wait are one list: it is sent when it has
`max_list_size` records or when its first record has waited for `max_timeout_ns`.  A record that was sent is not sent
again before its list is acknowledged or `ack_timeout_ns` has passed; with a time-out of 0 every record is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from switchsum.protocol.p4runtime import Code, v1

from ..digests import CAPACITY
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
    held: dict[_Record, int | None] = field(default_factory=dict)
    """The records that are not sent again, and when that ends; None: they wait to be sent."""
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
            for record in one.unacknowledged.pop(message.list_id, []):
                one.held.pop(record, None)

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
                    lists.append(_made(schema, one, now_ns, timestamp_ns))
            if one is not None and one.waiting and now_ns - one.since_ns >= one.config.max_timeout_ns:
                lists.append(_made(schema, one, now_ns, timestamp_ns))
        return lists


def _is_new(one: _Enabled, record: _Record) -> bool:
    """Return whether a record is to be sent, and hold others that are equal."""
    if not one.config.ack_timeout_ns:
        return True
    if record in one.held:
        return False
    one.held[record] = None
    return True


def _forget(one: _Enabled, now_ns: int) -> None:
    """Forget the records whose acknowledgement has not come in time."""
    for record in [record for record, until in one.held.items() if until is not None and until <= now_ns]:
        del one.held[record]
    for number, records in list(one.unacknowledged.items()):
        if not any(record in one.held for record in records):
            del one.unacknowledged[number]


def _made(schema: DigestSchema, one: _Enabled, now_ns: int, timestamp_ns: int) -> Any:
    """Return the list of the records that wait."""
    records, one.waiting = one.waiting, []
    one.lists += 1
    message = v1.DigestList(digest_id=schema.identifier, list_id=one.lists, timestamp=timestamp_ns)
    message.data.extend(schema.encode(record) for record in records)
    if one.config.ack_timeout_ns:
        one.unacknowledged[one.lists] = records
        one.held.update(dict.fromkeys(records, now_ns + one.config.ack_timeout_ns))
    return message
