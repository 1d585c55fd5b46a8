"""Entries of tables: written, read back, refused with the code of the specification."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import switchsum_switch
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.p4runtime import Code, v1
from switchsum_switch.p4runtime.entities import Entities

from . import p4runtime_rig
from .p4runtime_entities import (
    DELETE,
    DROP,
    FIXED,
    FORWARD,
    INSERT,
    KEYLESS,
    MARK,
    MODIFY,
    MULTICAST,
    NO_ACTION,
    REMEMBER,
    ROUTES,
    RULES,
    STATIONS,
    TALLY,
    action,
    default,
    entries,
    fixed,
    lpm,
    optional,
    refused,
    route,
    rule,
    station,
    ternary,
    within,
)
from .p4runtime_rig import PROGRAM, Client, PartialRead, config, update

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


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda number: route(b"\x0a\x00" + number.to_bytes(2, "big"), 32), 38),
        (lambda number: rule(ternary(bytes([number]), b"\xff")), 42),
    ],
    ids=["lpm", "ternary"],
)
def test_an_entry_costs_few_calls(make: Any, most: int) -> None:
    """What an entry costs is its calls of our functions: a clock says little on a busy machine.

    Those of protobuf do not count: its oldest release that we take is Python, the newest is C.
    """
    ours = str(Path(switchsum_switch.__file__).parent)
    target = Entities(config(), Pipeline.load(PROGRAM.read_bytes(), engine="interpreter").state)
    updates = [update(INSERT, table_entry=make(number)) for number in range(1, 9)]
    calls = 0

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(ours)

    sys.setprofile(count)
    try:
        outcomes = target.write(updates, v1.WriteRequest.CONTINUE_ON_ERROR)
    finally:
        sys.setprofile(None)
    assert [outcome.code for outcome in outcomes] == [Code.OK] * len(updates)
    assert calls / len(updates) <= most
