"""Roles with configs: what they may write, read and hear."""

from __future__ import annotations

from typing import Any

import pytest

from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, v1
from switchsum_switch.p4runtime.refusal import Refused
from switchsum_switch.p4runtime.roles import MESSAGE as CONFIG
from switchsum_switch.p4runtime.roles import RoleConfig, decode_role_config

from . import p4runtime_rig
from .p4runtime_entities import BY_PORT, INSERT, ONE, RULES, STATIONS, group, rule, station
from .p4runtime_rig import Client, PartialRead, Rig, config, update

rig = pytest.fixture(p4runtime_rig.rig)
primary = pytest.fixture(p4runtime_rig.primary)
TYPE = "type.googleapis.com/stratum.P4RoleConfig"
DIGEST = 77


def packed(**fields: Any) -> Any:
    """Return a role that has such a config."""
    role = v1.Role()
    role.config.type_url, role.config.value = TYPE, CONFIG(**fields).SerializeToString()
    return role


def member(rig: Rig, name: str, **fields: Any) -> Client:
    client = rig.client(1, name)
    assert client.arbitrate(role=packed(**fields)) == (1, Code.OK)
    return client


def codes(client: Client, *updates: Any) -> list[Code]:
    try:
        client.write(*updates)
    except P4RuntimeError as error:
        failed = {failure.index: failure.code for failure in error.failures}
        return [failed.get(index, Code.OK) for index in range(len(updates))]
    return [Code.OK] * len(updates)


def test_a_role_writes_and_reads_its_own_and_what_it_shares(rig: Rig, primary: Client) -> None:
    tables = member(rig, "tables", exclusive_p4_ids=[STATIONS], shared_p4_ids=[BY_PORT])
    counters = member(rig, "counters", shared_p4_ids=[BY_PORT, RULES])
    inserts = [
        update(INSERT, **entity) for entity in ({"table_entry": station(1)}, {"table_entry": rule()}, group(1, ONE))
    ]
    assert codes(tables, *inserts) == [Code.OK, Code.PERMISSION_DENIED, Code.OK]
    assert codes(counters, *inserts) == [Code.PERMISSION_DENIED, Code.OK, Code.ALREADY_EXISTS]
    cell = update(v1.Update.MODIFY, counter_entry={"counter_id": BY_PORT, "data": {"packet_count": 1}})
    direct = update(v1.Update.MODIFY, direct_counter_entry={"table_entry": station(1), "data": {"packet_count": 1}})
    assert codes(tables, cell, direct) == [Code.OK] * 2
    assert codes(counters, cell, direct) == [Code.OK, Code.PERMISSION_DENIED]
    with pytest.raises(P4RuntimeError):  # an atomic batch is refused as a whole
        tables.write(update(INSERT, table_entry=station(2)), inserts[1], atomicity="ROLLBACK_ON_ERROR")

    def read(**fields: Any) -> list[int]:
        found = primary.read(
            v1.Entity(table_entry={"table_id": STATIONS}), v1.Entity(table_entry={"table_id": RULES}), **fields
        )
        return [entity.table_entry.table_id for entity in found]

    assert read() == [STATIONS, RULES]
    assert read(role="tables") == [STATIONS]
    assert read(role="counters") == [RULES]
    with pytest.raises(PartialRead) as error:
        read(role="nobody's")
    assert error.value.error.code is Code.NOT_FOUND


def test_a_role_sets_the_program_if_its_config_says_so(rig: Rig, primary: Client) -> None:
    for pushes, client in enumerate((member(rig, "tables"), member(rig, "pipeline", can_push_pipeline=True))):
        if pushes:
            client.set_config(config=config())
            continue
        with pytest.raises(P4RuntimeError) as error:
            client.set_config(config=config())
        assert error.value.code is Code.PERMISSION_DENIED


def test_a_role_hears_the_packets_that_its_config_selects(rig: Rig, primary: Client) -> None:
    nothing = member(rig, "nothing", shared_p4_ids=[STATIONS])
    everything = member(rig, "everything", receives_packet_ins=True)
    some = member(rig, "some", receives_packet_ins=True, packet_in_filter={"metadata_id": 2, "value": b"\5"})
    for reason in (0b1_000_0101, 0b1_000_0110):
        rig.service.packet_in(bytes([0b1010_0000, reason]) + b"payload")
    assert [client.receive().packet.metadata[1].value for client in (everything, everything, some)] == [
        b"\5",
        b"\6",
        b"\5",
    ]
    assert some.nothing_more()
    assert nothing.nothing_more()


def test_digests_and_idle_timeouts_go_to_those_who_may_write_them() -> None:
    made = RoleConfig(shared=frozenset({STATIONS, DIGEST}))
    digest = v1.StreamMessageResponse(digest={"digest_id": DIGEST})
    assert made.heard(digest) is digest
    assert made.heard(v1.StreamMessageResponse(digest={"digest_id": 5})) is None
    entries = [{"table_id": STATIONS}, {"table_id": RULES}]
    notice = v1.StreamMessageResponse(idle_timeout_notification={"table_entry": entries, "timestamp": 9})
    assert made.heard(notice).idle_timeout_notification == v1.IdleTimeoutNotification(
        table_entry=entries[:1], timestamp=9
    )
    assert RoleConfig().heard(notice) is None


def test_a_config_is_told_to_all_and_changes_with_the_primary(rig: Rig, primary: Client) -> None:
    first = member(rig, "tables", exclusive_p4_ids=[STATIONS])
    second = rig.client(2, "tables")
    second.send(arbitration=bid(rig, 2, "tables", packed(shared_p4_ids=[RULES])))
    for client in (first, second):
        reported = client.receive().arbitration
        assert list(CONFIG.FromString(reported.role.config.value).shared_p4_ids) == [RULES]
    assert codes(second, update(INSERT, table_entry=station(1))) == [Code.PERMISSION_DENIED]
    third = rig.client(3, "tables")
    assert third.arbitrate() == (3, Code.OK)  # without a config, everything
    assert codes(third, update(INSERT, table_entry=station(1))) == [Code.OK]


def bid(rig: Rig, election: int, name: str, role: Any) -> Any:
    role.name = name
    return v1.MasterArbitrationUpdate(device_id=p4runtime_rig.DEVICE_ID, role=role, election_id={"low": election})


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("other", packed(exclusive_p4_ids=[STATIONS])),
        ("other", packed(shared_p4_ids=[STATIONS])),
        ("other", packed(exclusive_p4_ids=[BY_PORT])),
        ("other", packed(exclusive_p4_ids=[RULES], shared_p4_ids=[RULES])),
        ("", packed(shared_p4_ids=[RULES])),
        ("other", v1.Role(config={"type_url": TYPE, "value": b"\xff"})),
        ("other", v1.Role(config={"type_url": "type.googleapis.com/p4.v1.TableEntry"})),
    ],
)
def test_configs_that_cannot_be_end_the_stream(rig: Rig, name: str, role: Any) -> None:
    member(rig, "tables", exclusive_p4_ids=[STATIONS], shared_p4_ids=[BY_PORT])
    client = rig.client(5, name)
    client.send(arbitration=bid(rig, 5, name, role))
    error = client.receive()
    assert isinstance(error, P4RuntimeError)
    assert error.code is Code.INVALID_ARGUMENT


def test_bytes_of_the_message_are_stratums() -> None:
    """Tags and wire types as in Stratum's p4_role_config.proto."""
    value = bytes.fromhex("0a0105 120106 1a05 0802 1201 07 2001 2801")
    found = decode_role_config(v1.Role(config={"type_url": TYPE, "value": value}).config)
    assert found == RoleConfig(
        exclusive=frozenset({5}),
        shared=frozenset({6}),
        packet_filter=(2, b"\7"),
        receives_packet_ins=True,
        can_push_pipeline=True,
    )
    with pytest.raises(Refused, match="something without a type"):
        decode_role_config(v1.Role().config)
