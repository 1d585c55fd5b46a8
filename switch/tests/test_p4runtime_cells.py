"""Counters and registers: written, read back, refused with the code of the specification."""

from __future__ import annotations

from typing import Any

import pytest

from switchsum_switch.messages.p4runtime import Code, v1

from .p4runtime_entities import (
    BY_PORT,
    DELETE,
    DROP,
    FIXED,
    INSERT,
    MODIFY,
    SIGNED,
    STATIONS,
    WIDE,
    WORDS,
    action,
    counts,
    default,
    entries,
    fixed,
    refused,
    station,
)
from .p4runtime_rig import Client, PartialRead, Rig

# Direct counters


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
