"""The server as its clients see it: sessions and configs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.timing import patience
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.p4runtime import METHODS, Code, P4RuntimeError, parse_p4info, v1
from switchsum_switch.p4runtime import service
from switchsum_switch.p4runtime.device_config import program_of

from . import p4runtime_rig
from .p4runtime_entities import (
    BY_PORT,
    MARK,
    OLD,
    ONE,
    ROUTES,
    TWO,
    WORDS,
    action,
    counts,
    default,
    everything,
    group,
    rule,
    session,
    ternary,
    within,
)
from .p4runtime_rig import DEVICE_ID, P4INFO, PROGRAM, Client, Rig, config, identifier, update

rig = pytest.fixture(p4runtime_rig.rig)
primary = pytest.fixture(p4runtime_rig.primary)
STATIONS = identifier("tables", "stations")
TERNARY = P4INFO.tables[0].match_fields[0].TERNARY


def refused(code: Code, call: Any, *arguments: Any, **keywords: Any) -> P4RuntimeError:
    """Make a call that is to fail as a whole."""
    with pytest.raises(P4RuntimeError) as error:
        call(*arguments, **keywords)
    assert error.value.code is code, error.value
    assert error.value.message
    assert not error.value.failures
    return error.value


@pytest.mark.parametrize("name", METHODS)
def test_what_is_no_message_is_refused_without_a_word_in_the_log(
    rig: Rig, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    method = METHODS[name]
    with grpc.insecure_channel(rig.server.address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        kind = ("stream" if method.client_streams else "unary") + ("_stream" if method.server_streams else "_unary")
        call = getattr(channel, kind)(method.path, None, None)
        garbage = b"\xff\xff garbage"
        request = iter([garbage]) if method.client_streams else garbage
        with pytest.raises(grpc.RpcError) as error:
            list(call(request))  # of one answer there is none to list
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "no message of P4Runtime" in (error.value.details() or "")
    assert not caplog.records


# Sessions


def test_clients_hear_who_is_primary(rig: Rig) -> None:
    first = rig.primary(5)
    second = rig.client(3)
    assert second.arbitrate() == (5, Code.ALREADY_EXISTS)
    assert second.arbitrate(1 << 100) == (1 << 100, Code.OK)
    assert first.arbitration() == (1 << 100, Code.ALREADY_EXISTS)
    second.close()
    assert first.arbitration() == (1 << 100, Code.NOT_FOUND)


@pytest.mark.parametrize("end", ["close", "cancel", "channel"])
def test_lost_primary_can_come_back_with_its_election_id(rig: Rig, end: str) -> None:
    backup = rig.client(1)
    primary = rig.primary(5)
    assert backup.arbitrate() == (5, Code.ALREADY_EXISTS)
    {"close": primary.close, "cancel": primary.stream.cancel, "channel": primary.channel.close}[end]()
    assert backup.arbitration() == (5, Code.NOT_FOUND)
    rig.primary(5)
    assert backup.arbitration() == (5, Code.ALREADY_EXISTS)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"device_id": DEVICE_ID + 1}, Code.NOT_FOUND),
        ({"election_id": 5}, Code.INVALID_ARGUMENT),
        ({"role": {"name": "r", "config": {"type_url": "x"}}}, Code.INVALID_ARGUMENT),
        ({"role": {"id": 3}}, Code.INVALID_ARGUMENT),
    ],
)
def test_refused_bid_ends_the_stream(rig: Rig, fields: dict[str, Any], code: Code) -> None:
    rig.primary(5)
    client = rig.client()
    error = client.arbitrate(**fields)
    assert isinstance(error, P4RuntimeError)
    assert error.code is code
    assert error.message


def test_streams_are_limited_also_those_that_say_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_STREAMS", 2)
    for client in (quiet := [rig.client(), rig.client()]):
        client.send()
        assert client.receive().error.canonical_code == Code.UNIMPLEMENTED
    ended = rig.client().receive()
    assert isinstance(ended, P4RuntimeError)
    assert (ended.code, ended.message) == (Code.RESOURCE_EXHAUSTED, "2 streams are open already")
    quiet[0].close()
    rig.primary()


def test_stream_that_ended_badly_leaves_its_place(rig: Rig) -> None:
    client = rig.primary(5)
    client.send(arbitration=v1.MasterArbitrationUpdate(device_id=DEVICE_ID + 1))
    error = client.receive()
    assert error.code is Code.FAILED_PRECONDITION
    rig.primary(5)


# Configs


def test_nothing_can_be_read_or_written_before_a_program_is_there(rig: Rig) -> None:
    client = rig.primary()
    refused(Code.FAILED_PRECONDITION, client.write)
    with pytest.raises(p4runtime_rig.PartialRead) as error:
        client.read(v1.Entity(table_entry={}))
    assert error.value.error.code is Code.FAILED_PRECONDITION
    assert not client.call("GetForwardingPipelineConfig").HasField("config")
    client.send(packet=v1.PacketOut(payload=b"x"))
    assert client.receive().error.canonical_code == Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("response_type", "fields"),
    [
        ("ALL", {"p4info", "p4_device_config", "cookie"}),
        ("COOKIE_ONLY", {"cookie"}),
        ("P4INFO_AND_COOKIE", {"p4info", "cookie"}),
        ("DEVICE_CONFIG_AND_COOKIE", {"p4_device_config", "cookie"}),
    ],
)
def test_config_is_read_back(primary: Client, response_type: str, fields: set[str]) -> None:
    got = primary.call("GetForwardingPipelineConfig", response_type=response_type).config
    whole = config(cookie={"cookie": 11})
    assert {field.name for field, _ in got.ListFields()} == fields
    assert all(getattr(got, name) == getattr(whole, name) for name in fields)


def test_config_may_be_wrapped_as_older_clients_do(primary: Client) -> None:
    program = PROGRAM.read_bytes()
    size = bytes([len(program) & 0x7F | 0x80, len(program) >> 7 & 0x7F | 0x80, len(program) >> 14])
    wrapped = b"\x08\x01" + b"\x12\x02\x0a\x00" + b"\x1a" + size + program  # reassign, extras, device_data
    primary.set_config(config=config(p4_device_config=wrapped))
    assert primary.call("GetForwardingPipelineConfig").config.p4_device_config == wrapped


@pytest.mark.parametrize("wrapped", [b"", b"\x08", b"\x1a\x05{}", b"\x1d{}", b" {}", b"\x08\x01"])
def test_what_wraps_nothing_is_taken_as_it_is(wrapped: bytes) -> None:
    assert program_of(wrapped) == wrapped


def test_config_without_cookie_has_none(rig: Rig) -> None:
    client = rig.primary()
    client.set_config(config=config())
    assert not client.call("GetForwardingPipelineConfig").config.HasField("cookie")


def table(info: Any, alias: str) -> Any:
    """Return a table of a P4Info."""
    return next(table for table in info.tables if table.preamble.alias == alias)


def with_p4info(change: Callable[[Any], object]) -> Any:
    """Return the program's config with one thing changed in its P4Info."""
    made = config()
    change(made.p4info)
    assert made.p4info != P4INFO
    return made


P4INFO_CHANGES: dict[str, Callable[[Any], object]] = {
    "unknown table": lambda info: setattr(table(info, "routes").preamble, "name", "TestIngress.elsewhere"),
    "table id": lambda info: setattr(table(info, "routes").preamble, "id", table(info, "rules").preamble.id),
    "width": lambda info: setattr(table(info, "routes").match_fields[0], "bitwidth", 16),
    "match kind": lambda info: setattr(table(info, "routes").match_fields[0], "match_type", TERNARY),
    "no match kind": lambda info: table(info, "routes").match_fields[0].ClearField("match_type"),
    "field missing": lambda info: table(info, "rules").match_fields.pop(2),
    "two fields of one id": lambda info: setattr(table(info, "rules").match_fields[2], "id", 1),
    "field without id": lambda info: setattr(table(info, "routes").match_fields[0], "id", 0),
    "actions missing": lambda info: info.ClearField("actions"),
    "action of another table": lambda info: table(info, "routes").action_refs.add(id=identifier("actions", "tally")),
    "parameter": lambda info: setattr(info.actions[0].params.add(), "bitwidth", 8),
    "counter size": lambda info: setattr(info.counters[0], "size", 9),
    "unknown counter": lambda info: setattr(info.counters[0].preamble, "name", "TestIngress.elsewhere"),
    "register width": lambda info: setattr(info.registers[0].type_spec.bitstring.bit, "bitwidth", 33),
    "register type": lambda info: setattr(info.registers[0].type_spec.header, "name", "payload_t"),
    "direct counter": lambda info: info.ClearField("direct_counters"),
    "width in packet_in": lambda info: setattr(info.controller_packet_metadata[0].metadata[0], "bitwidth", 16),
    "meter": lambda info: info.meters.add(),
    "action profile": lambda info: info.action_profiles.add(),
    "platform": lambda info: setattr(info.pkg_info.platform_properties, "multicast_group_table_size", 1 << 16),
}

BAD_CONFIGS = {
    "no config": None,
    "empty": v1.ForwardingPipelineConfig(),
    "not JSON": config(p4_device_config=b"\x7fELF"),
    "no program": config(p4_device_config=b"{}"),
    "a list": config(p4_device_config=b"[1, 2]"),
    "cut short": config(p4_device_config=PROGRAM.read_bytes()[:-40]),
    "no JSON": config(p4_device_config=b""),
    **{name: with_p4info(change) for name, change in P4INFO_CHANGES.items()},
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
@pytest.mark.parametrize("action", ["VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"])
def test_bad_config_is_refused_and_the_program_stays(rig: Rig, primary: Client, name: str, action: str) -> None:
    before = rig.pipeline
    primary.insert(table_entry=station(1))
    error = refused(Code.INVALID_ARGUMENT, primary.set_config, action, config=BAD_CONFIGS[name])
    assert len(error.message) > 10
    assert rig.pipeline is before
    assert primary.read_all(table_entry={"table_id": STATIONS}) == [station(1)]
    assert primary.call("GetForwardingPipelineConfig").config.cookie.cookie == 11


def test_config_without_action_is_refused(primary: Client) -> None:
    refused(Code.INVALID_ARGUMENT, primary.set_config, "UNSPECIFIED", config=config())


def station(number: int, **fields: Any) -> Any:
    """Return an entry of the exact table."""
    entry = v1.TableEntry(table_id=STATIONS, **fields)
    entry.match.add(field_id=1).exact.value = bytes([number])
    entry.action.action.action_id = identifier("actions", "to_controller")
    return entry


def stations(client: Client) -> list[Any]:
    return client.read_all(table_entry={"table_id": STATIONS})


def test_verify_changes_nothing(rig: Rig, primary: Client) -> None:
    before = rig.pipeline
    primary.insert(table_entry=station(1))
    primary.set_config("VERIFY", config=config(cookie={"cookie": 12}))
    assert rig.pipeline is before
    assert stations(primary) == [station(1)]
    assert primary.call("GetForwardingPipelineConfig").config.cookie.cookie == 11
    refused(Code.NOT_FOUND, primary.set_config, "COMMIT")


def test_commit_clears_the_state(rig: Rig, primary: Client) -> None:
    primary.insert(table_entry=station(1))
    before = rig.pipeline
    primary.set_config("VERIFY_AND_COMMIT", config=config(cookie={"cookie": 12}))
    assert rig.pipeline is not before
    assert stations(primary) == []


def test_saved_config_takes_writes_and_goes_live_with_them(rig: Rig, primary: Client) -> None:
    primary.insert(table_entry=station(1))
    running = rig.pipeline
    primary.set_config("VERIFY_AND_SAVE", config=config(cookie={"cookie": 12}))
    assert rig.pipeline is running
    assert stations(primary) == []
    primary.insert(table_entry=station(2))
    assert len(running.tables["TestIngress.stations"]) == 1
    refused(Code.INVALID_ARGUMENT, primary.set_config, "COMMIT", config=config())
    primary.set_config("COMMIT")
    assert rig.pipeline is not running
    assert stations(primary) == [station(2)]
    assert primary.call("GetForwardingPipelineConfig").config.cookie.cookie == 12
    refused(Code.NOT_FOUND, primary.set_config, "COMMIT")


def test_commit_of_another_config_drops_the_saved_one(primary: Client) -> None:
    primary.set_config("VERIFY_AND_SAVE", config=config(cookie={"cookie": 12}))
    primary.set_config("VERIFY_AND_COMMIT", config=config(cookie={"cookie": 13}))
    assert primary.call("GetForwardingPipelineConfig").config.cookie.cookie == 13
    refused(Code.NOT_FOUND, primary.set_config, "COMMIT")


def test_primary_that_is_replaced_while_its_program_compiles_is_refused(
    rig: Rig, primary: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rig.pipeline

    def load(data: bytes) -> Pipeline:
        rig.primary(2)
        return Pipeline.load(data, engine="interpreter")

    monkeypatch.setattr(rig.device, "_load", load)
    refused(Code.PERMISSION_DENIED, primary.set_config, config=config())
    assert rig.pipeline is before


def test_reconcile_with_the_same_program_keeps_everything(rig: Rig, primary: Client) -> None:
    primary.insert(table_entry=station(1))
    before = rig.pipeline
    primary.set_config("RECONCILE_AND_COMMIT", config=config(cookie={"cookie": 12}))
    assert rig.pipeline is before
    assert stations(primary) == [station(1)]
    assert primary.call("GetForwardingPipelineConfig").config.cookie.cookie == 12


def other_program(**changes: int) -> Any:
    """Return the config of another program, whose table of stations and whose counter have another size if wanted."""
    document, info = json.loads(PROGRAM.read_bytes()), config().p4info
    document["program"] = "other.p4"
    [found] = [one for line in document["pipelines"] for one in line["tables"] if one["name"] == "TestIngress.stations"]
    found["max_size"] = changes.get("stations", found["max_size"])
    [counted] = [one for one in document["counter_arrays"] if one["name"] == info.counters[0].preamble.name]
    counted["size"] = info.counters[0].size = changes.get("counter", counted["size"])
    return config(p4info=info, p4_device_config=json.dumps(document).encode())


def test_reconcile_with_another_program_keeps_what_was_written(rig: Rig, primary: Client) -> None:
    primary.insert(table_entry=station(1, counter_data=counts(3, 90), metadata=b"mine"))
    primary.insert(table_entry=station(2))
    primary.insert(table_entry=rule(ternary(b"\x01", b"\x03"), within(b"\1", b"\5"), priority=7))
    primary.modify(table_entry=default(ROUTES, action(MARK, b"\x05")))
    primary.modify(counter_entry={"counter_id": BY_PORT, "index": {"index": 2}, "data": counts(5, 6)})
    primary.modify(register_entry={"register_id": WORDS, "index": {"index": 3}, "data": {"bitstring": b"\x09"}})
    primary.insert(**group(1, ONE, TWO, metadata=b"theirs"))
    primary.insert(**session(2, OLD))
    before, kept = rig.pipeline, everything(primary)
    primary.set_config("RECONCILE_AND_COMMIT", config=other_program())
    assert rig.pipeline is not before
    assert everything(primary) == kept
    primary.delete(table_entry=station(2))


@pytest.mark.parametrize("change", [{"stations": 1}, {"counter": 4}])
def test_reconcile_is_refused_where_something_has_no_place(rig: Rig, primary: Client, change: dict[str, int]) -> None:
    primary.insert(table_entry=station(1))
    primary.insert(table_entry=station(2))
    primary.modify(counter_entry={"counter_id": BY_PORT, "index": {"index": 7}, "data": counts(5, 6)})
    before, kept = rig.pipeline, everything(primary)
    error = refused(Code.INVALID_ARGUMENT, primary.set_config, "RECONCILE_AND_COMMIT", config=other_program(**change))
    assert "the program has no" in error.message
    assert rig.pipeline is before
    assert everything(primary) == kept
    primary.delete(table_entry=station(2))
    primary.modify(counter_entry={"counter_id": BY_PORT})  # without data nothing changes
    primary.modify(counter_entry={"counter_id": BY_PORT, "data": {}})
    primary.set_config("RECONCILE_AND_COMMIT", config=other_program(**change))
    assert stations(primary) == [station(1)]


def test_reconcile_without_a_program_is_a_commit(rig: Rig) -> None:
    client = rig.primary()
    client.set_config("RECONCILE_AND_COMMIT", config=config())
    assert stations(client) == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"device_id": DEVICE_ID + 1}, Code.NOT_FOUND),
        ({"role": "nobody's"}, Code.NOT_FOUND),
        ({"role_id": 4}, Code.INVALID_ARGUMENT),
        ({"election_id": {"low": 2}}, Code.PERMISSION_DENIED),
    ],
)
def test_calls_of_others_are_refused(primary: Client, fields: dict[str, Any], code: Code) -> None:
    refused(code, primary.write, update(v1.Update.INSERT, table_entry=station(1)), **fields)
    refused(code, primary.set_config, config=config(), **fields)
    assert stations(primary) == []


def test_backup_may_read_but_not_write(rig: Rig, primary: Client) -> None:
    primary.insert(table_entry=station(1))
    backup = rig.client(0)
    assert backup.arbitrate() == (1, Code.ALREADY_EXISTS)
    assert stations(backup) == [station(1)]
    refused(Code.PERMISSION_DENIED, backup.insert, table_entry=station(2))


def test_reads_need_no_session_but_the_right_device(rig: Rig, primary: Client) -> None:
    stranger = rig.client()
    assert stations(stranger) == []
    stranger.device_id += 1
    for call in (stranger.read, lambda: stranger.call("GetForwardingPipelineConfig")):
        with pytest.raises((P4RuntimeError, p4runtime_rig.PartialRead), match="NOT_FOUND"):
            call()


def test_capabilities_name_the_version(rig: Rig) -> None:
    client = rig.client()
    method = METHODS["Capabilities"]
    call = client.channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
    assert call(method.request()) == method.response(p4runtime_api_version="1.5.0")  # nothing is experimental
    assert call(method.request(device_id=DEVICE_ID)).p4runtime_api_version == "1.5.0"
    with pytest.raises(grpc.RpcError) as error:
        call(method.request(device_id=DEVICE_ID + 1))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
def test_compiled_program_is_that_of_its_source(tmp_path: Path) -> None:
    output = [*("-o", str(tmp_path / "json")), *("--p4runtime-files", str(tmp_path / "entities.p4info.txtpb"))]
    command = ["p4c-bm2-ss", "--arch", "v1model", *output, "entities.p4"]
    subprocess.run(command, cwd=PROGRAM.parent, check=True, timeout=patience(50))
    assert parse_p4info((tmp_path / "entities.p4info.txtpb").read_text()) == P4INFO
    made, committed = (json.loads(path.read_bytes()) for path in (tmp_path / "json", PROGRAM))
    assert made["pipelines"] == committed["pipelines"]
