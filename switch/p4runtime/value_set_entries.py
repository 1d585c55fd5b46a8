"""Parser value sets: ValueSetEntry (P4Runtime specification, 9.7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from switchsum.protocol.p4runtime import Code, v1

from ..tables import Exact, Match, MatchKind, Ternary
from ..value_sets import ValueSetMember
from .refusal import Refused, invalid
from .schema import Schema, ValueSetSchema, lookup
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
        members = [_decode(schema, member) for member in message.members]
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
                message.members.add(match=encode_key(schema, _encode(schema, member)))
            yield message


def _decode(schema: ValueSetSchema, message: Any) -> ValueSetMember:
    member = []
    for field, match in zip(schema.fields, decode_key(schema, message.match), strict=True):
        if isinstance(match, Ternary):
            member.append(match)
        else:
            assert isinstance(match, Exact)
            member.append(Ternary(match.value, (1 << field.width) - 1))
    return tuple(member)


def _encode(schema: ValueSetSchema, member: ValueSetMember) -> list[Match]:
    return [
        Exact(match.value) if field.kind is MatchKind.EXACT else match
        for field, match in zip(schema.fields, member, strict=True)
    ]
