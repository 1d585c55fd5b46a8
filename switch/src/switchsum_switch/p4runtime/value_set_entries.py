"""Parser value sets: ValueSetEntry (P4Runtime specification, 9.7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from switchsum_switch.messages.p4runtime import Code, v1

from .refusal import Refused, invalid
from .schema import Schema, lookup
from .table_entries import MODIFY
from .targets import Undo
from .translate import decode_key, encode_key


class ValueSets:
    """The value sets of one program; every method is called under the program's lock."""

    def __init__(self, schema: Schema) -> None:
        self._value_sets = schema.value_sets

    def write(self, kind: int, message: Any) -> Undo:
        """Carry out an update of a ValueSetEntry, which replaces all members."""
        if kind != MODIFY:
            raise invalid("value sets can only be modified")
        schema = lookup("value set", self._value_sets, message.value_set_id)
        if len(message.members) > schema.size:
            raise Refused(Code.RESOURCE_EXHAUSTED, f"value set {schema.name} has {schema.size} members at most")
        members = [decode_key(schema, member.match) for member in message.members]
        value_set = schema.value_set
        old = value_set.members
        value_set.set(members)
        return lambda: value_set.set(old)

    def read(self, query: Any) -> Iterator[Any]:
        """Yield the value sets that a ValueSetEntry selects; id 0 stands for all."""
        wanted = [query.value_set_id] if query.value_set_id else list(self._value_sets)
        for identifier in wanted:
            schema = lookup("value set", self._value_sets, identifier)
            message = v1.ValueSetEntry(value_set_id=identifier)
            for member in schema.value_set.members:
                message.members.add(match=encode_key(schema, member))
            yield message
