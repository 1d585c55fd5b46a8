"""Every entity that the server knows: written, read back, refused with the code of the specification."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum.protocol.p4runtime import METHODS, Code, P4RuntimeError, v1
from switchsum.switch.p4runtime import service

from . import p4runtime_rig
from .p4runtime_rig import DEVICE_ID, LONG_S, Client, PartialRead, Rig, config, identifier, update

INSERT, MODIFY, DELETE = v1.Update.INSERT, v1.Update.MODIFY, v1.Update.DELETE
STATIONS, ROUTES, RULES = (identifier("tables", name) for name in ("stations", "routes", "rules"))
FIXED, KEYLESS = identifier("tables", "fixed"), identifier("tables", "keyless")
FORWARD, MULTICAST, DROP, TALLY = (identifier("actions", name) for name in ("forward", "multicast", "drop", "tally"))
MARK, REMEMBER, NO_ACTION = (identifier("actions", name) for name in ("mark", "remember", "NoAction"))
BY_PORT = identifier("counters", "by_port")
WORDS, WIDE, SIGNED = (identifier("registers", name) for name in ("words", "wide", "signed_words"))


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Yield one server for all tests of this module."""
    yield from p4runtime_rig.rig()


@pytest.fixture(scope="module")
def connection(rig: Rig) -> Client:
    return rig.primary()


@pytest.fixture
def client(connection: Client) -> Client:
    """Return the primary of a switch whose program is new."""
    connection.set_config(config=config())
    return connection


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


# Table entries

KINDS = {
    "exact": station(),
    "lpm": route(),
    "lpm of one host": route(b"\x0a\x00\x00\x01", 32),
    "lpm of half the world": route(b"\x80\x00\x00\x00", 1),
    "lpm of everything": v1.TableEntry(table_id=ROUTES, action=action(NO_ACTION)),
    "exact alone": rule(),
    "ternary": rule(ternary(b"\x0f\x00", b"\x0f\xf0")),
    "ternary of zeros": rule(ternary(b"\x00", b"\x01")),
    "range": rule(within(b"\x05", b"\x0f\xff")),
    "range of one": rule(within(b"\x05", b"\x05")),
    "optional": rule(optional(b"\x00")),
    "lpm among others": rule(lpm(b"\x0a\x00\x00\x00", 8)),
    "all": rule(ternary(b"\x01", b"\x01"), within(b"\x00", b"\x01"), optional(b"\xff"), lpm(b"\x80\x00\x00\x00", 1)),
    "notes": station(metadata=b"\x00any bytes\xff", controller_metadata=(1 << 64) - 1),
}


@pytest.mark.parametrize("name", KINDS)
def test_entry_is_read_back_as_it_was_written_and_can_be_deleted(client: Client, name: str) -> None:
    entry = KINDS[name]
    client.insert(table_entry=entry)
    assert entries(client, table_id=entry.table_id) == [entry]
    refused(Code.ALREADY_EXISTS, client, INSERT, table_entry=entry)
    key = v1.TableEntry(table_id=entry.table_id, match=entry.match, priority=entry.priority)
    client.delete(table_entry=key)
    assert entries(client, table_id=entry.table_id) == []
    refused(Code.NOT_FOUND, client, DELETE, table_entry=key)
    refused(Code.NOT_FOUND, client, MODIFY, table_entry=entry)


def test_longer_byte_strings_mean_the_same_and_come_back_short(client: Client) -> None:
    entry = station(act=action(FORWARD, b"\x00\x00\x03"))
    entry.match[0].exact.value = bytes(7) + b"\x01"
    client.insert(table_entry=entry)
    assert entries(client, table_id=STATIONS) == [station()]
    refused(Code.ALREADY_EXISTS, client, INSERT, table_entry=station())


def test_order_of_match_fields_and_parameters_is_free(client: Client) -> None:
    entry = KINDS["all"]
    turned = v1.TableEntry(table_id=RULES, priority=1, action=entry.action)
    turned.match.extend(reversed(entry.match))
    client.insert(table_entry=turned)
    assert entries(client, table_id=RULES) == [entry]
    act = action(REMEMBER, b"\x01", b"\x02")
    act.action.params.reverse()
    client.modify(table_entry=default(KEYLESS, act))
    assert entries(client, table_id=KEYLESS, is_default_action=True) == [
        default(KEYLESS, action(REMEMBER, b"\x01", b"\x02"))
    ]


def number(draw: st.DrawFn, bits: int) -> int:
    return draw(st.integers(0, (1 << bits) - 1))


def uint(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


@st.composite
def rules(draw: st.DrawFn) -> Any:
    """Draw an entry in its canonical form: don't-care fields left out."""
    matches = []
    if mask := number(draw, 12):
        matches.append(ternary(uint(number(draw, 12) & mask), uint(mask)))
    low, high = sorted((number(draw, 12), number(draw, 12)))
    if (low, high) != (0, 0xFFF):
        matches.append(within(uint(low), uint(high)))
    if draw(st.booleans()):
        matches.append(optional(uint(number(draw, 8))))
    if length := draw(st.integers(0, 32)):
        matches.append(lpm(uint(number(draw, length) << (32 - length)), length))
    priority = draw(st.integers(1, (1 << 31) - 1))
    return rule(*matches, a=uint(number(draw, 8)), priority=priority, metadata=draw(st.binary(max_size=8)))


@given(st.lists(rules(), max_size=12, unique_by=lambda entry: (str(entry.match), entry.priority)))
def test_any_entries_are_read_back(connection: Client, drawn: list[Any]) -> None:
    if old := entries(connection, table_id=RULES):
        connection.write(*(update(DELETE, table_entry=entry) for entry in old))
    connection.write(*(update(INSERT, table_entry=entry) for entry in drawn))
    assert sorted(map(str, entries(connection, table_id=RULES))) == sorted(map(str, drawn))
    for entry in drawn:
        (found,) = entries(connection, table_id=RULES, match=entry.match, priority=entry.priority)
        assert found == entry


BAD_ENTRIES = {
    "no table": (Code.INVALID_ARGUMENT, v1.TableEntry()),
    "unknown table": (Code.INVALID_ARGUMENT, v1.TableEntry(table_id=5)),
    "no action": (Code.INVALID_ARGUMENT, v1.TableEntry(table_id=STATIONS, match=station().match)),
    "empty action": (Code.INVALID_ARGUMENT, station(act=v1.TableAction(action={}))),
    "unset action": (Code.INVALID_ARGUMENT, v1.TableEntry(table_id=STATIONS, match=station().match, action={})),
    "action of another table": (Code.INVALID_ARGUMENT, station(act=action(MARK, b"\x01"))),
    "member": (Code.INVALID_ARGUMENT, station(act=v1.TableAction(action_profile_member_id=1))),
    "default-only action": (Code.PERMISSION_DENIED, station(act=action(DROP))),
    "missing parameter": (Code.INVALID_ARGUMENT, station(act=action(FORWARD))),
    "extra parameter": (Code.INVALID_ARGUMENT, station(act=action(FORWARD, b"\x01", b"\x02"))),
    "empty parameter": (Code.OUT_OF_RANGE, station(act=action(FORWARD, b""))),
    "wide parameter": (Code.OUT_OF_RANGE, station(act=action(FORWARD, b"\x02\x00"))),
    "is_const": (Code.INVALID_ARGUMENT, station(is_const=True)),
    "priority without need": (Code.INVALID_ARGUMENT, station(priority=1)),
    "no priority": (Code.INVALID_ARGUMENT, rule(priority=0)),
    "negative priority": (Code.INVALID_ARGUMENT, rule(priority=-1)),
    "idle timeout": (Code.INVALID_ARGUMENT, station(idle_timeout_ns=1)),
    "time since last hit": (Code.INVALID_ARGUMENT, station(time_since_last_hit={})),
    "meter": (Code.INVALID_ARGUMENT, station(meter_config={})),
    "meter counters": (Code.INVALID_ARGUMENT, station(meter_counter_data={})),
    "counter where none is": (Code.INVALID_ARGUMENT, rule(counter_data={})),
    "negative count": (Code.INVALID_ARGUMENT, station(counter_data={"packet_count": -1})),
    "key of a keyless table": (Code.INVALID_ARGUMENT, v1.TableEntry(table_id=KEYLESS, action=action(NO_ACTION))),
    "no exact field": (Code.INVALID_ARGUMENT, rule(a=None)),
    "empty value": (Code.OUT_OF_RANGE, rule(a=b"")),
    "wide value": (Code.OUT_OF_RANGE, rule(a=b"\x01\x00")),
    "field twice": (Code.INVALID_ARGUMENT, rule(optional(b"\x01"), optional(b"\x02"))),
    "unknown field": (Code.INVALID_ARGUMENT, rule(optional(b"\x01", field=6))),
    "field without match": (Code.INVALID_ARGUMENT, rule(v1.FieldMatch(field_id=2))),
    "other kind": (Code.INVALID_ARGUMENT, rule(ternary(b"\x01", b"\x01", field=4))),
    "ternary that matches everything": (Code.INVALID_ARGUMENT, rule(ternary(b"\x00", b"\x00"))),
    "ternary beyond its mask": (Code.INVALID_ARGUMENT, rule(ternary(b"\x03", b"\x01"))),
    "ternary without mask": (Code.OUT_OF_RANGE, rule(ternary(b"\x01", b""))),
    "wide mask": (Code.OUT_OF_RANGE, rule(ternary(b"\x01", b"\x1f\xff"))),
    "empty range": (Code.INVALID_ARGUMENT, rule(within(b"\x02", b"\x01"))),
    "range of everything": (Code.INVALID_ARGUMENT, rule(within(b"\x00", b"\x0f\xff"))),
    "wide range": (Code.OUT_OF_RANGE, rule(within(b"\x00", b"\x10\x00"))),
    "prefix of length 0": (Code.INVALID_ARGUMENT, rule(lpm(b"\x00", 0))),
    "prefix too long": (Code.INVALID_ARGUMENT, rule(lpm(b"\x00", 33))),
    "negative prefix": (Code.INVALID_ARGUMENT, rule(lpm(b"\x00", -1))),
    "bits beyond the prefix": (Code.INVALID_ARGUMENT, rule(lpm(b"\x01", 31))),
    "default": (Code.INVALID_ARGUMENT, default(STATIONS, action(FORWARD, b"\x01"))),
    "const table": (Code.PERMISSION_DENIED, v1.TableEntry(table_id=FIXED, action=action(NO_ACTION))),
}


@pytest.mark.parametrize("name", BAD_ENTRIES)
def test_bad_entry_is_refused(client: Client, name: str) -> None:
    code, entry = BAD_ENTRIES[name]
    refused(code, client, INSERT, table_entry=entry)


def test_full_table_is_full(client: Client) -> None:
    for count in range(4):
        client.insert(table_entry=station(count))
    refused(Code.RESOURCE_EXHAUSTED, client, INSERT, table_entry=station(4))
    client.delete(table_entry=station(2))
    client.insert(table_entry=station(4))


def test_modify_changes_action_and_notes(client: Client) -> None:
    client.insert(table_entry=station(metadata=b"first"))
    changed = station(act=action(MULTICAST, b"\x02"), metadata=b"second", controller_metadata=2)
    client.modify(table_entry=changed)
    assert entries(client, table_id=STATIONS) == [changed]
    unchanged = station(metadata=b"third")
    unchanged.ClearField("action")
    client.modify(table_entry=unchanged)
    (entry,) = entries(client, table_id=STATIONS)
    assert (entry.action, entry.metadata, entry.controller_metadata) == (changed.action, b"third", 0)


def test_delete_looks_at_the_key_alone(client: Client) -> None:
    client.insert(table_entry=station())
    client.delete(table_entry=station(act=action(MARK), metadata=b"x", idle_timeout_ns=5, meter_config={}))
    assert entries(client, table_id=STATIONS) == []


def test_notes_do_not_outlive_their_entry(client: Client) -> None:
    client.insert(table_entry=station(metadata=b"old"))
    client.delete(table_entry=station())
    client.insert(table_entry=station())
    assert entries(client, table_id=STATIONS) == [station()]


# Default entries


def test_default_action_is_changed_and_reset(client: Client) -> None:
    original = default(STATIONS, action(DROP))
    assert entries(client, table_id=STATIONS, is_default_action=True) == [original]
    changed = default(STATIONS, action(FORWARD, b"\x07"), metadata=b"mine")
    client.modify(table_entry=changed)
    assert entries(client, table_id=STATIONS, is_default_action=True) == [changed]
    client.modify(table_entry=default(STATIONS))
    assert entries(client, table_id=STATIONS, is_default_action=True) == [original]


def test_default_action_from_the_program_has_its_parameters(client: Client) -> None:
    assert entries(client, table_id=KEYLESS, is_default_action=True) == [
        default(KEYLESS, action(REMEMBER, b"\x07", b"\xff\xfe"))
    ]


@pytest.mark.parametrize("counters", [False, True])
def test_a_table_that_only_ever_runs_one_action_is_there_to_be_read(connection: Client, counters: bool) -> None:
    """Without key and with a const default action it needs no look-up, but P4Info has it all the same."""
    program, p4info = json.loads(p4runtime_rig.PROGRAM.read_text()), type(p4runtime_rig.P4INFO)()
    p4info.CopyFrom(p4runtime_rig.P4INFO)
    tables = [table for pipeline in program["pipelines"] for table in pipeline["tables"]]
    keyless = next(table for table in tables if table["name"] == "TestIngress.keyless")
    keyless["default_entry"] |= {"action_const": True, "action_entry_const": True}
    keyless["with_counters"] = counters
    if counters:
        p4info.direct_counters.add(preamble={"id": 1, "name": "counts"}, direct_table_id=KEYLESS).spec.unit = 2
    connection.set_config(config=config(p4info=p4info, p4_device_config=json.dumps(program).encode()))
    remember = action(REMEMBER, b"\x07", b"\xff\xfe")
    assert entries(connection, table_id=KEYLESS, is_default_action=True) == [default(KEYLESS, remember, is_const=True)]
    assert entries(connection, table_id=KEYLESS) == []
    refused(Code.PERMISSION_DENIED, connection, MODIFY, table_entry=default(KEYLESS, action(NO_ACTION)))


@pytest.mark.parametrize(
    ("code", "kind", "entry"),
    [
        (Code.INVALID_ARGUMENT, INSERT, default(STATIONS, action(DROP))),
        (Code.INVALID_ARGUMENT, DELETE, default(STATIONS)),
        (Code.INVALID_ARGUMENT, MODIFY, default(STATIONS, action(DROP), priority=1)),
        (Code.INVALID_ARGUMENT, MODIFY, default(STATIONS, action(DROP), match=station().match)),
        (Code.INVALID_ARGUMENT, MODIFY, default(STATIONS, action(MARK, b"\x01"))),
        (Code.INVALID_ARGUMENT, MODIFY, default(STATIONS, action(DROP), idle_timeout_ns=1)),
        (Code.INVALID_ARGUMENT, MODIFY, default(RULES, action(NO_ACTION), counter_data={})),
        (Code.PERMISSION_DENIED, MODIFY, default(STATIONS, action(TALLY, b"\x01"))),
        (Code.PERMISSION_DENIED, MODIFY, default(RULES, action(NO_ACTION))),
        (Code.PERMISSION_DENIED, MODIFY, default(RULES)),
    ],
)
def test_bad_default_entry_is_refused(client: Client, code: Code, kind: int, entry: Any) -> None:
    refused(code, client, kind, table_entry=entry)


def test_const_default_says_so(client: Client) -> None:
    (entry,) = entries(client, table_id=RULES, is_default_action=True)
    assert entry.is_const


# Const tables


def fixed(number_: int = 1, **fields: Any) -> Any:
    entry = v1.TableEntry(table_id=FIXED, **fields)
    entry.match.add(field_id=1).exact.value = bytes([number_])
    return entry


def test_const_entries_are_read(client: Client) -> None:
    assert entries(client, table_id=FIXED) == [
        fixed(1, action=action(TALLY, b"\x01"), is_const=True),
        fixed(2, action=action(TALLY, b"\x02"), is_const=True),
    ]


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        (INSERT, fixed(3, action=action(TALLY, b"\x01"))),
        (DELETE, fixed(1)),
        (DELETE, fixed(3)),
        (MODIFY, fixed(1, action=action(TALLY, b"\x01"))),
        (MODIFY, fixed(1, metadata=b"mine")),
    ],
)
def test_const_entries_cannot_be_changed(client: Client, kind: int, entry: Any) -> None:
    refused(Code.PERMISSION_DENIED, client, kind, table_entry=entry)


def test_default_of_a_const_table_can_be_changed(client: Client) -> None:
    client.modify(table_entry=default(FIXED, action(NO_ACTION), metadata=b"x"))
    assert entries(client, table_id=FIXED, is_default_action=True)[0].metadata == b"x"


# Reading tables


@pytest.fixture
def filled(client: Client) -> Client:
    client.write(
        update(INSERT, table_entry=station(1, metadata=b"m", controller_metadata=5)),
        update(INSERT, table_entry=station(2, act=action(MULTICAST, b"\x01"))),
        update(INSERT, table_entry=rule(priority=3)),
        update(INSERT, table_entry=rule(priority=4)),
        update(INSERT, table_entry=rule(a=b"\x02", priority=4)),
    )
    return client


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({}, 7),
        ({"is_default_action": True}, 5),
        ({"table_id": RULES}, 3),
        ({"table_id": ROUTES}, 0),
        ({"table_id": RULES, "priority": 4}, 2),
        ({"table_id": RULES, "priority": 9}, 0),
        ({"table_id": RULES, "match": rule().match}, 2),
        ({"table_id": RULES, "match": rule().match, "priority": 4}, 1),
        ({"table_id": RULES, "match": rule(a=b"\x09").match}, 0),
        ({"table_id": STATIONS, "action": action(MULTICAST)}, 1),
        ({"table_id": STATIONS, "metadata": b"m"}, 1),
        ({"table_id": STATIONS, "metadata": b"n"}, 0),
        ({"table_id": STATIONS, "controller_metadata": 5}, 1),
        ({"table_id": STATIONS, "controller_metadata": 6}, 0),
        ({"table_id": STATIONS, "is_default_action": True}, 1),
        ({"table_id": STATIONS, "is_default_action": True, "metadata": b"m"}, 0),
    ],
)
def test_queries_select(filled: Client, query: dict[str, Any], count: int) -> None:
    assert len(entries(filled, **query)) == count


@pytest.mark.parametrize(
    "query",
    [
        {"table_id": 5},
        {"priority": 4},
        {"metadata": b"m"},
        {"match": rule().match},
        {"table_id": RULES, "match": [ternary(b"\x01", b"\x01")]},
        {"table_id": RULES, "is_default_action": True, "priority": 1},
        {"table_id": RULES, "time_since_last_hit": {}},
    ],
)
def test_bad_queries_are_refused(filled: Client, query: dict[str, Any]) -> None:
    with pytest.raises(PartialRead) as error:
        entries(filled, **query)
    (failure,) = error.value.error.failures
    assert failure.code is Code.INVALID_ARGUMENT


def test_read_answers_what_it_can(filled: Client) -> None:
    queries = [{"table_id": STATIONS}, {"table_id": 5}, {"table_id": RULES}]
    with pytest.raises(PartialRead) as error:
        filled.read(*(v1.Entity(table_entry=query) for query in queries), v1.Entity())
    assert error.value.error.code is Code.UNKNOWN
    assert [(failure.index, failure.code) for failure in error.value.error.failures] == [
        (1, Code.INVALID_ARGUMENT),
        (3, Code.INVALID_ARGUMENT),
    ]
    assert len(error.value.found) == 5


# Direct counters


def counts(packets: int, size: int) -> Any:
    return v1.CounterData(packet_count=packets, byte_count=size)


def test_direct_counter_of_an_entry(rig: Rig, client: Client) -> None:
    client.insert(table_entry=station(1, counter_data=counts(3, 100)))
    client.insert(table_entry=station(2))
    assert not entries(client, table_id=STATIONS)[0].HasField("counter_data")
    read = {entry.match[0].exact.value: entry.counter_data for entry in entries(client, counter_data={})[:2]}
    assert read == {b"\x01": counts(3, 100), b"\x02": counts(0, 0)}
    assert not any(entry.HasField("counter_data") for entry in entries(client, table_id=FIXED, counter_data={}))

    client.modify(table_entry=station(1))
    query = {"table_entry": {"table_id": STATIONS, "match": station(1).match}}
    assert client.read_one(direct_counter_entry=query).data == counts(3, 100)
    client.modify(table_entry=station(1, counter_data=counts(4, 4)))
    assert client.read_one(direct_counter_entry=query).data == counts(4, 4)
    client.modify(direct_counter_entry={**query, "data": counts(5, 6)})
    client.modify(direct_counter_entry=query)
    found = client.read_one(direct_counter_entry=query)
    assert (found.data, found.table_entry.match) == (counts(5, 6), station(1).match)


def test_direct_counters_of_whole_tables(client: Client) -> None:
    client.insert(table_entry=station(1, counter_data=counts(1, 2)))
    client.insert(table_entry=station(2, counter_data=counts(3, 4)))
    for query in ({}, {"table_entry": {"table_id": STATIONS}}):
        found = client.read_all(direct_counter_entry=query)
        assert [entry.data for entry in found] == [counts(1, 2), counts(3, 4)]


def test_direct_counter_of_the_default_action(client: Client) -> None:
    client.modify(table_entry=default(STATIONS, action(DROP), counter_data=counts(1, 2)))
    query = {"table_entry": default(STATIONS)}
    assert client.read_one(direct_counter_entry=query).data == counts(1, 2)
    client.modify(table_entry=default(STATIONS, action(DROP)))
    client.modify(direct_counter_entry={**query, "data": counts(3, 4)})
    (entry,) = entries(client, table_id=STATIONS, is_default_action=True, counter_data={})
    assert entry.counter_data == counts(3, 4)
    client.modify(table_entry=default(STATIONS))
    assert client.read_one(direct_counter_entry=query).data == counts(0, 0)


@pytest.mark.parametrize(
    ("code", "kind", "entry"),
    [
        (Code.INVALID_ARGUMENT, INSERT, {"table_entry": station(1)}),
        (Code.INVALID_ARGUMENT, DELETE, {"table_entry": station(1)}),
        (Code.INVALID_ARGUMENT, MODIFY, {}),
        (Code.INVALID_ARGUMENT, MODIFY, {"table_entry": fixed(), "data": counts(0, 0)}),
        (Code.INVALID_ARGUMENT, MODIFY, {"table_entry": station(1), "data": counts(-1, 0)}),
        (Code.NOT_FOUND, MODIFY, {"table_entry": station(2), "data": counts(0, 0)}),
    ],
)
def test_bad_direct_counter_is_refused(client: Client, code: Code, kind: int, entry: dict[str, Any]) -> None:
    client.insert(table_entry=station(1))
    refused(code, client, kind, direct_counter_entry=entry)


@pytest.mark.parametrize(("code", "entry"), [(Code.NOT_FOUND, station(2)), (Code.INVALID_ARGUMENT, fixed())])
def test_direct_counter_that_is_not_there_is_refused(client: Client, code: Code, entry: Any) -> None:
    with pytest.raises(PartialRead) as error:
        client.read_one(direct_counter_entry={"table_entry": entry})
    assert error.value.error.failures[0].code is code


# Indexed counters and registers


def test_counter_cells(client: Client) -> None:
    client.modify(counter_entry={"counter_id": BY_PORT, "index": {"index": 3}, "data": counts(5, 6)})
    client.modify(counter_entry={"counter_id": BY_PORT, "index": {"index": 3}})
    one = client.read_one(counter_entry={"counter_id": BY_PORT, "index": {"index": 3}})
    assert one == v1.CounterEntry(counter_id=BY_PORT, index={"index": 3}, data=counts(5, 6))
    for query in ({}, {"counter_id": BY_PORT}):
        found = client.read_all(counter_entry=query)
        assert [(entry.index.index, entry.data) for entry in found] == [
            (index, counts(5, 6) if index == 3 else counts(0, 0)) for index in range(8)
        ]
    client.modify(counter_entry={"counter_id": BY_PORT, "data": counts(7, 8)})
    assert {str(entry.data) for entry in client.read_all(counter_entry={})} == {str(counts(7, 8))}


REGISTER_VALUES = [
    (WORDS, b"\x00"),
    (WORDS, b"\x80\x00\x00\x01"),
    (WIDE, b"\x01" + bytes(31)),
    (WIDE, b"\xff" * 32),
    (SIGNED, b"\x00"),
    (SIGNED, b"\x7f"),
    (SIGNED, b"\x00\x80"),
    (SIGNED, b"\x80"),
    (SIGNED, b"\xff\x7f"),
    (SIGNED, b"\xff"),
    (SIGNED, b"\x7f\xff"),
    (SIGNED, b"\x80\x00"),
]


@pytest.mark.parametrize(("register", "value"), REGISTER_VALUES)
def test_register_cell(client: Client, register: int, value: bytes) -> None:
    entry = v1.RegisterEntry(register_id=register, index={"index": 2}, data={"bitstring": value})
    client.modify(register_entry=entry)
    assert client.read_one(register_entry={"register_id": register, "index": {"index": 2}}) == entry
    others = [cell for cell in client.read_all(register_entry={"register_id": register}) if cell.index.index != 2]
    assert {cell.data.bitstring for cell in others} == {b"\x00"}


def test_signed_register_is_twos_complement_in_the_switch(rig: Rig, client: Client) -> None:
    client.modify(register_entry={"register_id": SIGNED, "index": {}, "data": {"bitstring": b"\xfe"}})
    assert rig.pipeline.registers["TestIngress.signed_words"].read(0) == 0xFFFE


def test_all_cells_of_a_register(client: Client) -> None:
    client.modify(register_entry={"register_id": WORDS, "data": {"bitstring": b"\x07"}})
    cells = client.read_all(register_entry={"register_id": WORDS})
    assert [(cell.index.index, cell.data.bitstring) for cell in cells] == [(index, b"\x07") for index in range(16)]
    assert len(client.read_all(register_entry={})) == 16 + 4 + 4


ARRAYS = {"counter_entry": ("counter_id", BY_PORT, 8), "register_entry": ("register_id", WORDS, 16)}
DATA = {"counter_entry": counts(1, 1), "register_entry": v1.P4Data(bitstring=b"\x01")}


@pytest.mark.parametrize("entity", ARRAYS)
def test_bad_index_or_id_is_refused(client: Client, entity: str) -> None:
    name, number_, size = ARRAYS[entity]
    data: dict[str, Any] = {"data": DATA[entity]}
    refused(Code.INVALID_ARGUMENT, client, INSERT, **{entity: {name: number_, **data}})
    refused(Code.INVALID_ARGUMENT, client, DELETE, **{entity: {name: number_, **data}})
    refused(Code.INVALID_ARGUMENT, client, MODIFY, **{entity: data})
    refused(Code.INVALID_ARGUMENT, client, MODIFY, **{entity: {name: 5, **data}})
    bad: list[tuple[Code, dict[str, Any]]] = [
        (Code.OUT_OF_RANGE, {name: number_, "index": {"index": size}}),
        (Code.INVALID_ARGUMENT, {name: number_, "index": {"index": -1}}),
        (Code.INVALID_ARGUMENT, {name: 5}),
        (Code.INVALID_ARGUMENT, {"index": {}}),
    ]
    for code, query in bad:
        refused(code, client, MODIFY, **{entity: {**query, **data}})
        with pytest.raises(PartialRead) as error:
            client.read_one(**{entity: query})
        assert error.value.error.failures[0].code is code


@pytest.mark.parametrize(
    ("code", "register", "data"),
    [
        (Code.INVALID_ARGUMENT, WORDS, None),
        (Code.INVALID_ARGUMENT, WORDS, {"bool": True}),
        (Code.OUT_OF_RANGE, WORDS, {"bitstring": b""}),
        (Code.OUT_OF_RANGE, WORDS, {"bitstring": b"\x01\x00\x00\x00\x00"}),
        (Code.OUT_OF_RANGE, SIGNED, {"bitstring": b""}),
        (Code.OUT_OF_RANGE, SIGNED, {"bitstring": b"\x00\x80\x00"}),
        (Code.OUT_OF_RANGE, SIGNED, {"bitstring": b"\xff\x7f\xff"}),
    ],
)
def test_bad_register_value_is_refused(client: Client, code: Code, register: int, data: Any) -> None:
    refused(code, client, MODIFY, register_entry={"register_id": register, "index": {}, "data": data})


def test_negative_count_is_refused(client: Client) -> None:
    refused(Code.INVALID_ARGUMENT, client, MODIFY, counter_entry={"counter_id": BY_PORT, "data": counts(0, -1)})


# Replication


def group(number_: int = 1, *replicas: Any, **fields: Any) -> dict[str, Any]:
    entry = {"multicast_group_id": number_, "replicas": replicas, **fields}
    return {"packet_replication_engine_entry": {"multicast_group_entry": entry}}


def session(number_: int = 1, *replicas: Any, **fields: Any) -> dict[str, Any]:
    entry = {"session_id": number_, "replicas": replicas, **fields}
    return {"packet_replication_engine_entry": {"clone_session_entry": entry}}


ONE: dict[str, Any] = {"port": b"\x01", "instance": 0}
TWO = {"port": b"\x01\xff", "instance": 65535}
OLD = {"egress_port": 3, "instance": 2}


@pytest.mark.parametrize("make", [group, session])
@pytest.mark.parametrize("replicas", [(), (ONE,), (ONE, TWO), (OLD,)])
def test_group_or_session_is_read_back_as_it_was_written(client: Client, make: Any, replicas: Any) -> None:
    entity = make(5, *replicas)
    client.insert(**entity)
    for query in (make(5), make(0)):
        assert v1.Entity(**entity) in client.read(v1.Entity(**query))
    refused(Code.ALREADY_EXISTS, client, INSERT, **entity)
    other = make(5, {"port": b"\x09", "instance": 9})
    client.modify(**other)
    assert client.read(v1.Entity(**make(5))) == [v1.Entity(**other)]
    client.delete(**make(5))
    assert client.read(v1.Entity(**make(0))) == []
    refused(Code.NOT_FOUND, client, DELETE, **make(5))
    refused(Code.NOT_FOUND, client, MODIFY, **entity)
    with pytest.raises(PartialRead) as error:
        client.read(v1.Entity(**make(5)))
    assert error.value.error.failures[0].code is Code.NOT_FOUND


def test_groups_reach_the_switch_in_order(rig: Rig, client: Client) -> None:
    client.insert(**group(9, TWO, ONE, OLD))
    client.insert(**session(9, TWO, ONE, packet_length_bytes=128))
    wanted = [(511, 65535), (1, 0), (3, 2)]
    assert [(replica.port, replica.instance) for replica in rig.pipeline.multicast.get(9)] == wanted
    stored = rig.pipeline.clones.get(9)
    assert [(replica.port, replica.instance) for replica in stored.replicas] == wanted[:2]
    assert stored.length_limit == 128
    assert client.read(v1.Entity(**session(9)))[0] == v1.Entity(**session(9, TWO, ONE, packet_length_bytes=128))


def test_metadata_of_a_group_is_kept(client: Client) -> None:
    entity = group(5, ONE, metadata=b"job 7")
    client.insert(**entity)
    assert client.read(v1.Entity(**group(0))) == [v1.Entity(**entity)]
    client.modify(**group(5, ONE))
    assert client.read(v1.Entity(**group(0))) == [v1.Entity(**group(5, ONE))]


@pytest.mark.parametrize("make", [group, session])
@pytest.mark.parametrize(
    ("code", "number_", "replicas"),
    [
        (Code.INVALID_ARGUMENT, 0, [ONE]),
        (Code.INVALID_ARGUMENT, 1 << 16, [ONE]),
        (Code.INVALID_ARGUMENT, 1, [ONE, ONE]),
        (Code.INVALID_ARGUMENT, 1, [{"instance": 1}]),
        (Code.INVALID_ARGUMENT, 1, [{"egress_port": 512}]),
        (Code.INVALID_ARGUMENT, 1, [{"port": b"\x01", "instance": 65536}]),
        (Code.OUT_OF_RANGE, 1, [{"port": b"\x02\x00"}]),
        (Code.OUT_OF_RANGE, 1, [{"port": b""}]),
    ],
)
def test_bad_group_or_session_is_refused(client: Client, make: Any, code: Code, number_: int, replicas: Any) -> None:
    refused(code, client, INSERT, **make(number_, *replicas))


@pytest.mark.parametrize("field", [{"class_of_service": 1}, {"packet_length_bytes": -1}])
def test_bad_session_is_refused(client: Client, field: dict[str, int]) -> None:
    refused(Code.INVALID_ARGUMENT, client, INSERT, **session(1, ONE, **field))


def test_backup_replicas_are_refused(client: Client) -> None:
    if "backup_replicas" not in v1.Replica.DESCRIPTOR.fields_by_name:
        pytest.skip("the installed P4Runtime messages have no backup replicas")
    replica = {"port": b"\x01", "backup_replicas": [{"port": b"\x02"}]}
    refused(Code.UNIMPLEMENTED, client, INSERT, **group(1, replica))


def test_engine_entry_without_type_is_refused(client: Client) -> None:
    refused(Code.INVALID_ARGUMENT, client, INSERT, packet_replication_engine_entry={})


# Batches


@pytest.mark.parametrize("entity", ["action_profile_member", "action_profile_group", "digest_entry"])
def test_unsupported_entities_say_so(client: Client, entity: str) -> None:
    refused(Code.UNIMPLEMENTED, client, MODIFY, **{entity: {}})


def test_digests_are_not_read(client: Client) -> None:
    with pytest.raises(PartialRead) as error:
        client.read(v1.Entity(digest_entry={}))
    assert error.value.error.failures[0].code is Code.UNIMPLEMENTED


@pytest.mark.parametrize("entity", ["action_profile_member", "action_profile_group"])
def test_all_members_of_no_action_profile_are_none(client: Client, entity: str) -> None:
    """BMv2 answers so, and clients that clear a switch (finsy) ask first what there is."""
    assert client.read(v1.Entity(**{entity: {}})) == []
    with pytest.raises(PartialRead) as error:
        client.read(v1.Entity(**{entity: {"action_profile_id": 285212673}}))
    assert error.value.error.failures[0].code is Code.INVALID_ARGUMENT


def test_update_without_type_or_entity_is_refused(client: Client) -> None:
    refused(Code.INVALID_ARGUMENT, client, v1.Update.UNSPECIFIED, table_entry=station())
    refused(Code.INVALID_ARGUMENT, client, INSERT)


def test_failed_updates_do_not_stop_the_others(client: Client) -> None:
    updates = [update(INSERT, table_entry=station(count % 3)) for count in range(5)]
    with pytest.raises(P4RuntimeError) as error:
        client.write(*updates)
    assert error.value.code is Code.UNKNOWN
    assert [(failure.index, failure.code, failure.update) for failure in error.value.failures] == [
        (3, Code.ALREADY_EXISTS, updates[3]),
        (4, Code.ALREADY_EXISTS, updates[4]),
    ]
    assert len(entries(client, table_id=STATIONS)) == 3


def test_long_failing_batch_reports_on_every_update(client: Client) -> None:
    client.insert(table_entry=station())
    with pytest.raises(P4RuntimeError) as error:
        client.write(*[update(INSERT, table_entry=station())] * 3000)
    assert len(error.value.failures) == 3000


def test_empty_batch_succeeds(client: Client) -> None:
    client.write()


CHANGES = [
    update(INSERT, table_entry=station(9, metadata=b"new", counter_data=counts(9, 9))),
    update(MODIFY, table_entry=station(1, act=action(MULTICAST, b"\x05"), metadata=b"", counter_data=counts(7, 7))),
    update(DELETE, table_entry=station(2)),
    update(MODIFY, table_entry=default(STATIONS, action(FORWARD, b"\x01"), metadata=b"d")),
    update(MODIFY, table_entry=default(STATIONS)),
    update(INSERT, table_entry=rule(optional(b"\x07"))),
    update(DELETE, table_entry=rule(priority=5)),
    update(MODIFY, direct_counter_entry={"table_entry": station(1), "data": counts(1, 1)}),
    update(MODIFY, counter_entry={"counter_id": BY_PORT, "index": {"index": 1}, "data": counts(2, 2)}),
    update(MODIFY, counter_entry={"counter_id": BY_PORT, "data": counts(3, 3)}),
    update(MODIFY, register_entry={"register_id": WIDE, "index": {"index": 1}, "data": {"bitstring": b"\x05"}}),
    update(MODIFY, register_entry={"register_id": WORDS, "data": {"bitstring": b"\x06"}}),
    update(INSERT, **group(8, OLD)),
    update(MODIFY, **group(1, TWO, metadata=b"other")),
    update(DELETE, **group(1)),
    update(INSERT, **session(8, OLD)),
    update(MODIFY, **session(1, TWO)),
    update(DELETE, **session(1)),
]
START = [
    update(INSERT, table_entry=station(1, metadata=b"one", counter_data=counts(1, 10))),
    update(INSERT, table_entry=station(2, metadata=b"two", counter_data=counts(2, 20))),
    update(INSERT, table_entry=rule(priority=5)),
    update(MODIFY, table_entry=default(STATIONS, action(DROP), metadata=b"default", counter_data=counts(4, 4))),
    update(MODIFY, counter_entry={"counter_id": BY_PORT, "index": {"index": 2}, "data": counts(5, 5)}),
    update(MODIFY, register_entry={"register_id": WORDS, "index": {"index": 3}, "data": {"bitstring": b"\x09"}}),
    update(INSERT, **group(1, ONE, metadata=b"group")),
    update(INSERT, **session(1, ONE, packet_length_bytes=64)),
]
IMPOSSIBLE = update(DELETE, table_entry=station(200))


@pytest.mark.parametrize("atomicity", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
@given(data=st.data())
def test_atomic_batch_is_all_or_nothing(connection: Client, atomicity: str, data: st.DataObject) -> None:
    connection.set_config(config=config())
    connection.write(*START)
    before = everything(connection)
    # Some orders fail at an update of their own (a group that is deleted already): that is a failure as good as any.
    batch = data.draw(st.permutations(CHANGES))[: data.draw(st.integers(0, len(CHANGES)))]
    with pytest.raises(P4RuntimeError) as error:
        connection.write(*batch, IMPOSSIBLE, atomicity=atomicity)
    codes = [failure.code for failure in error.value.failures]
    assert len(codes) == len(batch) + 1
    assert sum(code is not Code.ABORTED for code in codes) == 1
    assert everything(connection) == before


@pytest.mark.parametrize("atomicity", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
def test_atomic_batch_that_succeeds_stays(client: Client, atomicity: str) -> None:
    client.write(*START)
    once = [change for change in CHANGES if change.type != DELETE]
    client.write(*once, atomicity=atomicity)
    atomic = everything(client)
    client.set_config(config=config())
    client.write(*START)
    client.write(*once)
    assert everything(client) == atomic


def test_large_answer_comes_in_parts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RESPONSE_BYTES", 100)
    method = METHODS["Read"]
    call = client.channel.unary_stream(method.path, method.request.SerializeToString, method.response.FromString)
    request = v1.ReadRequest(device_id=DEVICE_ID, entities=[v1.Entity(register_entry={"register_id": WORDS})])
    answers = list(call(request, timeout=LONG_S))
    assert len(answers) >= 3
    assert all(100 < answer.ByteSize() < 150 for answer in answers[:-1])
    cells = [entity.register_entry.index.index for answer in answers for entity in answer.entities]
    assert cells == list(range(16))
