"""Idle timeouts: entries remember their last hit, and P4Runtime's clients are told of those that nobody hits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from switchsum_switch import Switch
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.messages.matches import Exact, Ternary
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, parse_p4info, v1
from switchsum_switch.state.tables import Entry

from .conftest import PROGRAMS
from .p4runtime_rig import Client, Rig, rig

P4INFO = parse_p4info((PROGRAMS / "ageing.p4info.txtpb").read_text())
STATIONS, RULES = (
    next(table.preamble.id for table in P4INFO.tables if table.preamble.name.endswith(name))
    for name in ("stations", "rules")
)
FORWARD = next(action.preamble.id for action in P4INFO.actions if action.preamble.name.endswith("forward"))
SECOND = 1_000_000_000


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_entries_remember_their_last_hit(engine: EngineName) -> None:
    switch = Switch.from_file(PROGRAMS / "ageing.json", PROGRAMS / "ageing.p4info.txtpb", engine=engine)
    stations, rules = (switch.pipeline.tables[f"SwitchIngress.{name}"] for name in ("stations", "rules"))
    action, params = "SwitchIngress.forward", (5,)
    one, two = (Entry(match=(Exact(number),), action=action, params=params) for number in (1, 2))
    rule = Entry(match=(Ternary(0, 0),), priority=1, action=action, params=params)
    stations.insert(one)
    stations.insert(two)
    rules.insert(rule)
    assert stations.last_hit_us(one, 7) == 7  # counts from the first time that somebody asks
    switch.clock.advance(2)
    assert switch.process(0, bytes([1, 0]))[0][0] == 5
    switch.clock.advance(1)
    switch.process(0, bytes([9, 0]))
    before = switch.snapshot()
    switch.clock.advance(1)
    switch.trace(0, bytes([1, 0]))
    now_us = switch.clock.now_us()
    assert [table.last_hit_us(entry, now_us) for table, entry in ((stations, one), (stations, two), (rules, rule))] == [
        *(2_000_000, now_us, 3_000_000)
    ]
    switch.process(0, bytes([1, 0]))
    switch.restore(before)
    assert stations.last_hit_us(one, now_us) == 2_000_000
    stations.delete(one.match)
    stations.insert(one)
    assert stations.last_hit_us(one, now_us) == now_us


@pytest.fixture(scope="module")
def server() -> Iterator[Rig]:
    yield from rig()


@pytest.fixture
def client(server: Rig) -> Iterator[Client]:
    primary = server.primary()
    program = (PROGRAMS / "ageing.json").read_bytes()
    primary.set_config(config=v1.ForwardingPipelineConfig(p4info=P4INFO, p4_device_config=program))
    yield primary
    primary.close()


def station(number: int, **fields: Any) -> Any:
    match = v1.FieldMatch(field_id=1, exact=v1.FieldMatch.Exact(value=bytes([number])))
    return v1.TableEntry(table_id=STATIONS, match=[match], **fields)


def forward() -> Any:
    parameter = v1.Action.Param(param_id=1, value=b"\x05")
    return v1.TableAction(action=v1.Action(action_id=FORWARD, params=[parameter]))


def passed(server: Rig, seconds: float) -> None:
    """Let time pass, and let the switch look at its entries."""
    server.clock.advance(seconds)
    server.service.tell_due()


def hit(server: Rig, number: int) -> None:
    server.pipeline.process(0, bytes([number, 0]), server.clock.now_us())


def idle(client: Client) -> list[Any]:
    """Return the entries of the next notification."""
    notification = client.receive().idle_timeout_notification
    assert notification.timestamp > 0
    return list(notification.table_entry)


def test_a_client_is_told_once_of_an_entry_that_nobody_hits(server: Rig, client: Client) -> None:
    for number, seconds in ((1, 2), (2, 3), (3, 0)):
        entry = station(number, action=forward(), idle_timeout_ns=seconds * SECOND, metadata=bytes([number]))
        client.insert(table_entry=entry)
    passed(server, 0.2)
    passed(server, 1)
    hit(server, 2)
    passed(server, 1)
    assert idle(client) == [station(1, idle_timeout_ns=2 * SECOND, metadata=b"\1")]
    passed(server, 1)
    assert client.nothing_more()
    passed(server, 1)
    assert [one.metadata for one in idle(client)] == [b"\2"]
    hit(server, 1)
    passed(server, 1.9)
    assert client.nothing_more()
    passed(server, 0.1)
    assert [one.metadata for one in idle(client)] == [b"\1"]


def test_the_time_since_the_last_hit_can_be_read(server: Rig, client: Client) -> None:
    client.insert(table_entry=station(1, action=forward(), idle_timeout_ns=SECOND))
    server.clock.advance(5)
    hit(server, 1)
    server.clock.advance(0.25)
    found = client.read_one(table_entry=station(1, time_since_last_hit={}))
    assert (found.time_since_last_hit.elapsed_ns, found.idle_timeout_ns) == (SECOND // 4, SECOND)
    assert not client.read_one(table_entry=station(1)).HasField("time_since_last_hit")


def test_a_timeout_can_be_changed(server: Rig, client: Client) -> None:
    client.insert(table_entry=station(1, action=forward(), idle_timeout_ns=SECOND))
    passed(server, 0.2)
    client.modify(table_entry=station(1, action=forward(), idle_timeout_ns=9 * SECOND))
    passed(server, 2)
    assert client.nothing_more()
    client.modify(table_entry=station(1, idle_timeout_ns=SECOND))
    passed(server, 0.2)
    [reported] = idle(client)
    assert reported.idle_timeout_ns == SECOND
    client.delete(table_entry=station(1))
    passed(server, 9)
    assert client.nothing_more()


@pytest.mark.parametrize(
    "entry", [station(1, action=forward(), idle_timeout_ns=-1), v1.TableEntry(table_id=RULES, is_default_action=True)]
)
def test_timeouts_that_cannot_be_are_refused(client: Client, entry: Any) -> None:
    if entry.is_default_action:
        entry.idle_timeout_ns = 1
        entry.action.CopyFrom(forward())
    with pytest.raises(P4RuntimeError) as error:
        (client.modify if entry.is_default_action else client.insert)(table_entry=entry)
    assert error.value.failures[0].code is Code.INVALID_ARGUMENT
