"""The P4Info of a program: it turns entries and packets with names into P4Runtime's messages with ids, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from switchsum_protocol.errors import UsageError
from switchsum_switch.messages import matches
from switchsum_switch.messages.match_fields import decode_match, encode_match
from switchsum_switch.messages.matches import Exact, Lpm, Range, Ternary
from switchsum_switch.messages.p4runtime import config, decode_uint, encode_uint, v1
from switchsum_switch.messages.suggestions import suggestion

from ..tables.entries import Entry, Group, Match, Replica

_KINDS: Final = config.MatchField.MatchType.Name


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSchema:
    """A key field, an action parameter or a piece of packet metadata."""

    id: int
    name: str
    width_bits: int
    kind: str = ""
    """Match type of a key field: EXACT, LPM, TERNARY, RANGE or OPTIONAL."""


class Fields:
    """Fields of one owner, by name and by id."""

    def __init__(self, owner: str, fields: Iterable[Any]) -> None:
        self._owner = owner
        self.by_name = {}
        for field in fields:
            kind = _KINDS(field.match_type) if field.DESCRIPTOR.name == "MatchField" else ""
            schema = FieldSchema(id=field.id, name=field.name, width_bits=field.bitwidth, kind=kind)
            self.by_name[field.name] = schema
        self.by_id = {field.id: field for field in self.by_name.values()}

    def find(self, name: str) -> FieldSchema:
        """Return a field; raises UsageError if the owner has none of this name."""
        if name not in self.by_name:
            near = suggestion(name, self.by_name)
            raise UsageError(f"{self._owner} has no field {name!r}; {near}there are: {', '.join(self.by_name)}")
        return self.by_name[name]

    def encode(self, name: str, value: int) -> tuple[int, bytes]:
        """Return the id of a field and its value as bytes; raises UsageError if the value does not fit."""
        field = self.find(name)
        if not 0 <= value < 1 << field.width_bits:
            raise UsageError(f"{self._owner}: {name} is {value}, which does not fit {field.width_bits} bits")
        return field.id, encode_uint(value)

    def encode_all(self, values: Mapping[str, int]) -> list[tuple[int, bytes]]:
        """Encode a value for every field, in the order of ids; raises UsageError if one is missing."""
        if missing := self.by_name.keys() - values.keys():
            raise UsageError(f"{self._owner} needs values for {sorted(missing)}")
        return sorted(self.encode(name, value) for name, value in values.items())


class Schema:
    """The tables, actions, counters and packet headers of one program.

    Encoding raises UsageError for a name that the program does not have.  Decoding raises it for an unknown id, which a
    switch that runs the program does not send.
    """

    def __init__(self, p4info: Any) -> None:
        self._tables = {table.preamble.name: table for table in p4info.tables}
        self._keys = {name: Fields(f"table {name}", table.match_fields) for name, table in self._tables.items()}
        self._actions = {action.preamble.name: action for action in p4info.actions}
        self._params = {name: Fields(f"action {name}", action.params) for name, action in self._actions.items()}
        self._counters = {counter.preamble.name: counter.preamble.id for counter in p4info.counters}
        self._counter_sizes = {counter.preamble.name: int(counter.size) for counter in p4info.counters}
        self._registers = {register.preamble.name: register for register in p4info.registers}
        self._packets = {
            header.preamble.name: Fields(header.preamble.name, header.metadata)
            for header in p4info.controller_packet_metadata
        }
        self._table_names = {table.preamble.id: name for name, table in self._tables.items()}
        self._action_names = {action.preamble.id: name for name, action in self._actions.items()}

    @property
    def tables(self) -> list[str]:
        """Full names of all tables."""
        return list(self._tables)

    def register_size(self, name: str) -> int:
        """Return how many cells a register array has."""
        return int(_find(self._registers, name, "register").size)

    def counter_size(self, name: str) -> int:
        """Return how many cells a counter has."""
        return int(_find(self._counter_sizes, name, "counter"))

    def encode_entry(self, entry: Entry) -> Any:
        """Write a p4.v1.TableEntry."""
        table, keys = _find(self._tables, entry.table, "table"), self._keys[entry.table]
        message = v1.TableEntry(
            table_id=table.preamble.id,
            priority=entry.priority,
            metadata=entry.metadata,
            is_default_action=entry.is_default,
        )
        for name, match in entry.match.items():
            message.match.append(_encode_match(keys, name, match))
        # Other match types may be left out; an exact field has no value that matches everything.
        exact = {key.name for key in keys.by_name.values() if key.kind == "EXACT"}
        if not entry.is_default and (missing := exact - entry.match.keys()):
            raise UsageError(f"an entry of table {entry.table} needs values for {sorted(missing)}")
        action = _find(self._actions, entry.action, "action")
        if action.preamble.id not in {reference.id for reference in table.action_refs}:
            raise UsageError(f"table {entry.table} has no action {entry.action}")
        message.action.action.action_id = action.preamble.id
        for number, value in self._params[entry.action].encode_all(entry.params):
            message.action.action.params.add(param_id=number, value=value)
        return message

    def decode_entry(self, message: Any) -> Entry:
        """Read a p4.v1.TableEntry."""
        table = _find(self._table_names, message.table_id, "table")
        action = _find(self._action_names, message.action.action.action_id, "action")
        params = self._params[action].by_id
        return Entry(
            table=table,
            match=dict(_decode_match(self._keys[table], field) for field in message.match),
            action=action,
            params={
                _find(params, param.param_id, "parameter").name: decode_uint(param.value)
                for param in message.action.action.params
            },
            priority=message.priority,
            metadata=message.metadata,
            is_default=message.is_default_action,
        )

    def wildcard(self, table: str, *, is_default: bool = False) -> Any:
        """Write the p4.v1.Entity that reads all entries of a table, or its default action."""
        number = _find(self._tables, table, "table").preamble.id
        return v1.Entity(table_entry=v1.TableEntry(table_id=number, is_default_action=is_default))

    def counter_cells(self, name: str) -> Any:
        """Write the p4.v1.Entity that reads all cells of a counter."""
        return v1.Entity(counter_entry=v1.CounterEntry(counter_id=_find(self._counters, name, "counter")))

    def counter_cell(self, name: str, index: int) -> Any:
        """Write the p4.v1.Entity of one cell of a counter, which holds 0."""
        number = _find(self._counters, name, "counter")
        return v1.Entity(counter_entry=v1.CounterEntry(counter_id=number, index=v1.Index(index=index), data={}))

    def direct_counters(self, table: str) -> Any:
        """Write the p4.v1.Entity that reads the direct counters of all entries of a table."""
        number = _find(self._tables, table, "table").preamble.id
        return v1.Entity(direct_counter_entry=v1.DirectCounterEntry(table_entry=v1.TableEntry(table_id=number)))

    def decode_counted(self, message: Any) -> tuple[str, dict[str, Match]]:
        """Return table and match of the entry that a p4.v1.DirectCounterEntry is of."""
        entry = message.table_entry
        table = _find(self._table_names, entry.table_id, "table")
        return table, dict(_decode_match(self._keys[table], field) for field in entry.match)

    def register_cell(self, name: str, index: int) -> Any:
        """Write the p4.v1.Entity that reads one cell of a register array."""
        number = _find(self._registers, name, "register").preamble.id
        return v1.Entity(register_entry=v1.RegisterEntry(register_id=number, index=v1.Index(index=index)))

    def encode_packet_out(self, payload: bytes, metadata: Mapping[str, int]) -> Any:
        """Write a p4.v1.PacketOut."""
        message = v1.PacketOut(payload=payload)
        for number, value in _find(self._packets, "packet_out", "packet header").encode_all(metadata):
            message.metadata.add(metadata_id=number, value=value)
        return message

    def decode_packet_in(self, message: Any) -> dict[str, int]:
        """Read the metadata of a p4.v1.PacketIn."""
        fields = _find(self._packets, "packet_in", "packet header").by_id
        return {
            _find(fields, item.metadata_id, "packet metadata").name: decode_uint(item.value)
            for item in message.metadata
        }


def encode_group(group: Group) -> Any:
    """Write a p4.v1.Entity."""
    message = v1.MulticastGroupEntry(multicast_group_id=group.group)
    for replica in sorted(group.replicas):
        message.replicas.add(egress_port=replica.port, instance=replica.instance)
    return v1.Entity(packet_replication_engine_entry=v1.PacketReplicationEngineEntry(multicast_group_entry=message))


def decode_group(message: Any) -> Group:
    """Read a p4.v1.MulticastGroupEntry, whose replicas name ports as numbers or, newer, as byte strings."""
    replicas = frozenset(
        Replica(
            port=decode_uint(replica.port) if replica.WhichOneof("port_kind") == "port" else replica.egress_port,
            instance=replica.instance,
        )
        for replica in message.replicas
    )
    return Group(group=message.multicast_group_id, replicas=replicas)


def _find(table: Mapping[Any, Any], name: object, what: str) -> Any:
    if name not in table:
        near = suggestion(name, table) if isinstance(name, str) else ""
        raise UsageError(f"the P4 program has no {what} {name!r}" + (f"; {near.rstrip()}" if near else ""))
    return table[name]


def _encode_match(keys: Fields, name: str, match: Match) -> Any:
    field = keys.find(name)
    given: matches.Match
    match field.kind, match:
        case "EXACT", int(value):
            given = Exact(value)
        case "OPTIONAL", int(value):
            given = Ternary(value, (1 << field.width_bits) - 1)
        case "LPM", Lpm(value, length) if 0 < length <= field.width_bits:
            given = Lpm(value, length)
        case "TERNARY", Ternary(value, mask):
            given = Ternary(value, mask)
        case "RANGE", Range(low, high):
            given = Range(low, high)
        case _:
            raise UsageError(
                f"{name} of {field.width_bits} bits has the match kind {field.kind}, which {match} does not fit"
            )

    def write(value: int) -> bytes:
        return keys.encode(name, value)[1]

    return encode_match(field.id, given, is_optional=field.kind == "OPTIONAL", encode=write, encode_mask=write)


def _decode_match(keys: Fields, message: Any) -> tuple[str, Match]:
    field = _find(keys.by_id, message.field_id, "key field")
    match decode_match(message, field.width_bits):
        case Exact(value):
            return field.name, value
        case Ternary(value, _) if field.kind == "OPTIONAL":
            return field.name, value
        case found:
            return field.name, found
