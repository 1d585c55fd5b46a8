"""MeterEntry, DirectMeterEntry and the meters of table entries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, parse_p4info, v1
from switchsum_switch.state.meters import RED

from .p4runtime_rig import Client, Rig, update

PROGRAM = Path(__file__).parent / "programs" / "metering.json"
P4INFO = parse_p4info(PROGRAM.with_suffix(".p4info.txtpb").read_text())
IDS = {
    item.preamble.name: item.preamble.id
    for kind in ("tables", "actions", "meters", "direct_meters")
    for item in getattr(P4INFO, kind)
}
PACKETS, STATIONS = IDS["SwitchIngress.packets"], IDS["SwitchIngress.stations"]
RATES = v1.MeterConfig(cir=10, cburst=2, pir=20, pburst=5)
NEVER = v1.MeterConfig()
COUNTED = {"red": {"packet_count": 1}}


@pytest.fixture
def client(connection: Client) -> Client:
    config = v1.ForwardingPipelineConfig(p4info=P4INFO, p4_device_config=PROGRAM.read_bytes())
    connection.set_config(config=config)
    return connection


def station(number: int = 1, **fields: Any) -> Any:
    entry = v1.TableEntry(table_id=STATIONS, **fields)
    entry.match.add(field_id=1).exact.value = bytes([number])
    entry.action.action.action_id = IDS["SwitchIngress.known"]
    return entry


def colour(rig: Rig, station_number: int = 0, cell: int = 0) -> bytes:
    """Return the colours of a frame as the program writes them."""
    pipeline = rig.device.pipeline
    assert pipeline is not None
    [(_, frame)] = pipeline.process(1, bytes([station_number, cell]).ljust(6, b"\0"))
    return frame[2:]


def test_cells_are_written_and_read_back(rig: Rig, client: Client) -> None:
    client.modify(meter_entry={"meter_id": PACKETS, "index": {"index": 3}, "config": RATES})
    entry = client.read_one(meter_entry={"meter_id": PACKETS, "index": {"index": 3}})
    assert (entry.config, entry.index.index) == (RATES, 3)
    entries = client.read_all(meter_entry={"meter_id": PACKETS})
    assert [entry.index.index for entry in entries if entry.HasField("config")] == [3]
    assert len(client.read_all(meter_entry={})) == 16 + 4
    client.modify(meter_entry={"meter_id": PACKETS, "config": NEVER})
    assert colour(rig, cell=9)[0] == RED
    client.modify(meter_entry={"meter_id": PACKETS})
    assert colour(rig, cell=9)[0] == 0


def test_an_entrys_meter_comes_with_it_and_goes_with_it(rig: Rig, client: Client) -> None:
    client.insert(table_entry=station(meter_config=NEVER))
    client.insert(table_entry=station(2))
    assert (colour(rig, 1)[2], colour(rig, 2)[2]) == (RED, 0)
    read = client.read_all(table_entry={"table_id": STATIONS, "meter_config": {}})
    assert [entry.HasField("meter_config") for entry in read] == [True, False]
    client.modify(table_entry=station(meter_config=RATES))
    assert client.read_all(table_entry=station(meter_config=NEVER))[0].meter_config == RATES
    client.modify(table_entry=station())
    assert not client.read_all(table_entry=station(meter_config=NEVER))[0].HasField("meter_config")


def test_direct_meters_are_written_and_read_back(rig: Rig, client: Client) -> None:
    client.insert(table_entry=station())
    client.insert(table_entry=station(2))
    client.modify(direct_meter_entry={"table_entry": station(2), "config": NEVER})
    assert (colour(rig, 1)[2], colour(rig, 2)[2]) == (0, RED)
    for query in ({"table_entry": {"table_id": STATIONS}}, {}):
        entries = client.read_all(direct_meter_entry=query)
        assert [entry.HasField("config") for entry in entries] == [False, True]
    assert client.read_one(direct_meter_entry={"table_entry": station(2)}).config == NEVER
    client.modify(direct_meter_entry={"table_entry": station(2)})
    assert colour(rig, 2)[2] == 0


def test_an_atomic_batch_that_fails_puts_rates_back(client: Client) -> None:
    client.insert(table_entry=station(meter_config=RATES))
    client.modify(meter_entry={"meter_id": PACKETS, "index": {"index": 1}, "config": RATES})
    with pytest.raises(P4RuntimeError):
        client.write(
            update(v1.Update.MODIFY, meter_entry={"meter_id": PACKETS, "config": NEVER}),
            update(v1.Update.MODIFY, direct_meter_entry={"table_entry": station()}),
            update(v1.Update.DELETE, table_entry=station()),
            update(v1.Update.DELETE, table_entry=station()),
            atomicity="ROLLBACK_ON_ERROR",
        )
    assert client.read_one(meter_entry={"meter_id": PACKETS, "index": {"index": 1}}).config == RATES
    assert client.read_one(direct_meter_entry={"table_entry": station()}).config == RATES


@pytest.mark.parametrize(
    ("code", "kind", "entity"),
    [
        (Code.INVALID_ARGUMENT, v1.Update.INSERT, {"meter_entry": {"meter_id": PACKETS}}),
        (Code.INVALID_ARGUMENT, v1.Update.MODIFY, {"meter_entry": {"meter_id": 7}}),
        (Code.OUT_OF_RANGE, v1.Update.MODIFY, {"meter_entry": {"meter_id": PACKETS, "index": {"index": 16}}}),
        (Code.INVALID_ARGUMENT, v1.Update.MODIFY, {"meter_entry": {"meter_id": PACKETS, "config": {"cir": 2}}}),
        (Code.INVALID_ARGUMENT, v1.Update.MODIFY, {"meter_entry": {"meter_id": PACKETS, "config": {"cir": -1}}}),
        (Code.INVALID_ARGUMENT, v1.Update.MODIFY, {"meter_entry": {"meter_id": PACKETS, "config": {"eburst": 1}}}),
        (Code.INVALID_ARGUMENT, v1.Update.MODIFY, {"meter_entry": {"meter_id": PACKETS, "counter_data": COUNTED}}),
        (Code.INVALID_ARGUMENT, v1.Update.DELETE, {"direct_meter_entry": {"table_entry": station()}}),
        (Code.NOT_FOUND, v1.Update.MODIFY, {"direct_meter_entry": {"table_entry": station(5)}}),
        (
            Code.INVALID_ARGUMENT,
            v1.Update.MODIFY,
            {"direct_meter_entry": {"table_entry": {"table_id": STATIONS, "is_default_action": True}}},
        ),
        (Code.INVALID_ARGUMENT, v1.Update.INSERT, {"table_entry": station(3, meter_config={"cir": 2})}),
        (Code.INVALID_ARGUMENT, v1.Update.INSERT, {"table_entry": station(3, meter_counter_data=COUNTED)}),
    ],
)
def test_what_cannot_be_is_refused(client: Client, code: Code, kind: int, entity: dict[str, Any]) -> None:
    with pytest.raises(P4RuntimeError) as error:
        client.write(update(kind, **entity))
    assert error.value.failures[0].code is code
    assert client.read_all(table_entry={"table_id": STATIONS}) == []


def test_colours_are_counted_read_and_cleared(rig: Rig, client: Client) -> None:
    client.modify(meter_entry={"meter_id": PACKETS, "index": {"index": 9}, "config": NEVER})
    client.insert(table_entry=station(meter_config=NEVER, meter_counter_data={}))
    frame_bytes = 6
    for _ in range(3):
        colour(rig, 1, cell=9)
    cell = {"meter_id": PACKETS, "index": {"index": 9}}
    red = v1.CounterData(packet_count=3, byte_count=3 * frame_bytes)
    found = client.read_one(meter_entry={**cell, "counter_data": {}})
    assert (found.counter_data.red, found.counter_data.green, found.config) == (red, v1.CounterData(), NEVER)
    assert not client.read_one(meter_entry=cell).HasField("counter_data")  # unless they are asked for
    direct = client.read_one(direct_meter_entry={"table_entry": station(), "counter_data": {}})
    assert direct.counter_data.red == red
    [entry] = client.read_all(table_entry={"table_id": STATIONS, "meter_counter_data": {}})
    assert (entry.meter_counter_data.red, entry.HasField("meter_config")) == (red, False)

    client.modify(meter_entry={**cell, "config": RATES})  # without counter_data counts stay
    assert client.read_one(meter_entry={**cell, "counter_data": {}}).counter_data.red == red
    client.modify(meter_entry={**cell, "config": RATES, "counter_data": {"red": {}}})
    assert not client.read_one(meter_entry={**cell, "counter_data": {}}).counter_data.red.packet_count
    client.modify(direct_meter_entry={"table_entry": station(), "config": RATES})
    client.modify(table_entry=station(meter_config=RATES))
    assert client.read_one(direct_meter_entry={"table_entry": station(), "counter_data": {}}).counter_data.red == red
    with pytest.raises(P4RuntimeError):  # what is taken back brings counts back, too
        client.write(
            update(v1.Update.MODIFY, table_entry=station(meter_config=RATES, meter_counter_data={})),
            update(v1.Update.DELETE, table_entry=station()),
            update(v1.Update.DELETE, table_entry=station()),
            atomicity="ROLLBACK_ON_ERROR",
        )
    assert client.read_one(direct_meter_entry={"table_entry": station(), "counter_data": {}}).counter_data.red == red
    client.modify(direct_meter_entry={"table_entry": station(), "config": RATES, "counter_data": {}})
    direct = client.read_one(direct_meter_entry={"table_entry": station(), "counter_data": {}})
    assert not direct.counter_data.red.packet_count


ONE_RATE = v1.MeterConfig(cir=10, cburst=2, pir=10, pburst=2)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("SINGLE_RATE_TWO_COLOR", ONE_RATE, [RATES, v1.MeterConfig(eburst=3)]),
        ("SINGLE_RATE_THREE_COLOR", v1.MeterConfig(cir=10, cburst=2, pir=10, pburst=2, eburst=3), [RATES]),
        ("TWO_RATE_THREE_COLOR", RATES, [v1.MeterConfig(cir=10, cburst=2, pir=10, pburst=2, eburst=3)]),
    ],
)
def test_the_type_of_a_meter_says_what_may_be_written(
    rig: Rig, connection: Client, kind: str, good: Any, bad: list[Any]
) -> None:
    p4info = type(P4INFO).FromString(P4INFO.SerializeToString())
    for item in (*p4info.meters, *p4info.direct_meters):
        item.spec.type = type(item.spec).Type.Value(kind)
    program = PROGRAM.read_bytes()
    connection.set_config(config=v1.ForwardingPipelineConfig(p4info=p4info, p4_device_config=program))
    connection.modify(meter_entry={"meter_id": PACKETS, "index": {"index": 3}, "config": good})
    connection.insert(table_entry=station(meter_config=good))
    assert connection.read_one(meter_entry={"meter_id": PACKETS, "index": {"index": 3}}).config == good
    assert connection.read_one(direct_meter_entry={"table_entry": station()}).config == good
    expected = {"SINGLE_RATE_TWO_COLOR": [0, 0, 2, 2, 2, 2], "SINGLE_RATE_THREE_COLOR": [0, 0, 1, 1, 1, 2]}
    seen = [colour(rig, 1, cell=3)[0] for _ in range(6)]
    assert seen == expected.get(kind, [0, 0, 1, 1, 1, 2])
    for config in bad:
        for entity in (
            {"meter_entry": {"meter_id": PACKETS, "config": config}},
            {"direct_meter_entry": {"table_entry": station(), "config": config}},
            {"table_entry": station(meter_config=config)},
        ):
            with pytest.raises(P4RuntimeError) as error:
                connection.modify(**entity)
            assert error.value.failures[0].code is Code.INVALID_ARGUMENT
    assert connection.read_one(direct_meter_entry={"table_entry": station()}).config == good


def test_p4info_of_another_meter_is_refused(connection: Client) -> None:
    for change in ("spec", "size", "direct"):
        p4info = type(P4INFO).FromString(P4INFO.SerializeToString())
        if change == "spec":
            p4info.meters[0].spec.unit = 3 - p4info.meters[0].spec.unit
        elif change == "size":
            p4info.meters[0].size = 5
        else:
            del p4info.direct_meters[:]
        config = v1.ForwardingPipelineConfig(p4info=p4info, p4_device_config=PROGRAM.read_bytes())
        with pytest.raises(P4RuntimeError) as error:
            connection.set_config(config=config)
        assert error.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("kind", ["TWO_RATE_THREE_COLOR", "SINGLE_RATE_THREE_COLOR"])
def test_a_meter_of_another_type_does_not_go_over_to_another_program(client: Client, kind: str) -> None:
    rates = {"meter_id": PACKETS, "index": {"index": 3}, "config": RATES}
    client.modify(meter_entry=rates)
    p4info = type(P4INFO).FromString(P4INFO.SerializeToString())
    for item in p4info.meters:
        item.spec.type = type(item.spec).Type.Value(kind)
    program = json.dumps({**json.loads(PROGRAM.read_bytes()), "program": "other.p4"}).encode()
    other = v1.ForwardingPipelineConfig(p4info=p4info, p4_device_config=program)
    if kind == "TWO_RATE_THREE_COLOR":
        client.set_config("RECONCILE_AND_COMMIT", config=other)
    else:
        with pytest.raises(P4RuntimeError, match="the program has no meter"):
            client.set_config("RECONCILE_AND_COMMIT", config=other)
    assert client.read_one(meter_entry={"meter_id": PACKETS, "index": {"index": 3}}).config == RATES
