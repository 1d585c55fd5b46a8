"""Messages for entities of the test program, and how a refusal is checked."""

from __future__ import annotations

from typing import Any

import pytest

from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, v1

from .p4runtime_rig import Client, identifier, update

INSERT, MODIFY, DELETE = v1.Update.INSERT, v1.Update.MODIFY, v1.Update.DELETE
STATIONS, ROUTES, RULES = (identifier("tables", name) for name in ("stations", "routes", "rules"))
FIXED, KEYLESS = identifier("tables", "fixed"), identifier("tables", "keyless")
FORWARD, MULTICAST, DROP, TALLY = (identifier("actions", name) for name in ("forward", "multicast", "drop", "tally"))
MARK, REMEMBER, NO_ACTION = (identifier("actions", name) for name in ("mark", "remember", "NoAction"))
BY_PORT = identifier("counters", "by_port")
WORDS, WIDE, SIGNED = (identifier("registers", name) for name in ("words", "wide", "signed_words"))


def action(number: int, *params: bytes) -> Any:
    message = v1.TableAction()
    message.action.action_id = number
    for index, value in enumerate(params):
        message.action.params.add(param_id=index + 1, value=value)
    return message


def station(number: int = 1, act: Any = None, **fields: Any) -> Any:
    """Return an entry of the exact table, which counts."""
    entry = v1.TableEntry(table_id=STATIONS, action=act or action(FORWARD, b"\x03"), **fields)
    entry.match.add(field_id=1).exact.value = bytes([number])
    return entry


def route(value: bytes = b"\x0a\x00\x00\x00", length: int = 8, act: Any = None) -> Any:
    """Return an entry of the LPM table."""
    entry = v1.TableEntry(table_id=ROUTES, action=act or action(MARK, b"\x01"))
    entry.match.add(field_id=1).lpm.MergeFrom(v1.FieldMatch.LPM(value=value, prefix_len=length))
    return entry


def rule(*matches: Any, a: bytes | None = b"\x01", priority: int = 1, **fields: Any) -> Any:
    """Return an entry of the table with all kinds, exact match included."""
    entry = v1.TableEntry(table_id=RULES, action=action(MARK, b"\x01"), priority=priority, **fields)
    if a is not None:
        entry.match.add(field_id=1).exact.value = a
    entry.match.extend(matches)
    return entry


def ternary(value: bytes, mask: bytes, field: int = 2) -> Any:
    return v1.FieldMatch(field_id=field, ternary={"value": value, "mask": mask})


def within(low: bytes, high: bytes, field: int = 3) -> Any:
    return v1.FieldMatch(field_id=field, range={"low": low, "high": high})


def optional(value: bytes, field: int = 4) -> Any:
    return v1.FieldMatch(field_id=field, optional={"value": value})


def lpm(value: bytes, length: int, field: int = 5) -> Any:
    return v1.FieldMatch(field_id=field, lpm={"value": value, "prefix_len": length})


def default(table: int, act: Any = None, **fields: Any) -> Any:
    return v1.TableEntry(table_id=table, action=act, is_default_action=True, **fields)


def entries(client: Client, **query: Any) -> list[Any]:
    return client.read_all(table_entry=query)


def everything(client: Client) -> list[Any]:
    """Return all that the switch keeps, direct counters too, in an order of its own."""
    queries: list[dict[str, Any]] = [
        {"table_entry": {"counter_data": {}}},
        {"table_entry": {"counter_data": {}, "is_default_action": True}},
        {"counter_entry": {}},
        {"register_entry": {}},
        {"packet_replication_engine_entry": {"multicast_group_entry": {}}},
        {"packet_replication_engine_entry": {"clone_session_entry": {}}},
    ]
    return sorted(client.read(*(v1.Entity(**query) for query in queries)), key=str)


def refused(code: Code, client: Client, kind: int, **entity: Any) -> str:
    """Write one update that is to be refused, changing nothing, and return why."""
    before = everything(client)
    with pytest.raises(P4RuntimeError) as error:
        client.write(update(kind, **entity))
    (failure,) = error.value.failures
    assert (error.value.code, failure.code) == (Code.UNKNOWN, code), failure
    assert failure.message
    assert everything(client) == before
    return failure.message


def fixed(number_: int = 1, **fields: Any) -> Any:
    entry = v1.TableEntry(table_id=FIXED, **fields)
    entry.match.add(field_id=1).exact.value = bytes([number_])
    return entry


def counts(packets: int, size: int) -> Any:
    return v1.CounterData(packet_count=packets, byte_count=size)


def group(number_: int = 1, *replicas: Any, **fields: Any) -> dict[str, Any]:
    entry = {"multicast_group_id": number_, "replicas": replicas, **fields}
    return {"packet_replication_engine_entry": {"multicast_group_entry": entry}}


def session(number_: int = 1, *replicas: Any, **fields: Any) -> dict[str, Any]:
    entry = {"session_id": number_, "replicas": replicas, **fields}
    return {"packet_replication_engine_entry": {"clone_session_entry": entry}}


ONE: dict[str, Any] = {"port": b"\x01", "instance": 0}
TWO = {"port": b"\x01\xff", "instance": 65535}
OLD = {"egress_port": 3, "instance": 2}
