"""Fields of no bits (`bit<0>`) are 0, and take no room."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchsum_switch import ProgramError, Switch
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.messages.p4runtime import Code, Outcome, parse_p4info, v1
from switchsum_switch.p4runtime.entities import Entities
from switchsum_switch.program.hashes import HASHES

from .conftest import PROGRAMS

PROGRAM, P4INFO = PROGRAMS / "nothing.json", PROGRAMS / "nothing.p4info.txtpb"


@pytest.fixture(params=["interpreter", "native"])
def switch(request: pytest.FixtureRequest) -> Switch:
    engine: EngineName = request.param
    return Switch.from_file(PROGRAM, P4INFO, engine=engine)


def headers(first: int, second: int) -> bytes:
    return bytes([first, second]) + HASHES["crc16"](bytes([first])).to_bytes(2, "big")


def test_they_take_no_room_and_are_zero(switch: Switch) -> None:
    assert switch.process(2, bytes([7, 5, 0, 0]) + b"rest") == [(1, headers(7, 6) + b"rest")]
    # A select with such a field goes by the others; the copied header is as long as any.
    assert switch.process(2, bytes([1, 5, 0, 0, 9, 9, 9, 9]) + b"rest") == [(1, 2 * headers(1, 6) + b"rest")]
    assert switch.process(2, bytes([1, 5, 0])) == [(1, bytes([1, 5, 0]))]  # too short, by bytes that there are


def test_tables_have_keys_and_parameters_of_no_bits(switch: Switch) -> None:
    switch.tables["ports"].insert({"neither": 0, "first": 7}, "forward", nothing=0, port=3)
    assert switch.process(2, bytes([7, 5, 0, 0]))[0][0] == 3
    switch.tables["ports"].clear()
    info = parse_p4info(P4INFO.read_text())
    client = Entities(v1.ForwardingPipelineConfig(p4info=info), switch.pipeline.state)
    [action] = [one for one in info.actions if one.preamble.alias == "forward"]
    entry = v1.TableEntry(table_id=info.tables[0].preamble.id)
    for number, value in ((1, b"\0"), (2, b"\7")):
        entry.match.add(field_id=number).exact.value = value
        entry.action.action.params.add(param_id=number, value=value)
    entry.action.action.action_id = action.preamble.id
    update = v1.Update(type=v1.Update.INSERT, entity=v1.Entity(table_entry=entry))
    assert client.write([update], v1.WriteRequest.CONTINUE_ON_ERROR) == [Outcome()]
    assert client.read(v1.Entity(table_entry={})) == [update.entity]
    assert switch.process(2, bytes([7, 5, 0, 0]))[0][0] == 7
    entry.match[0].exact.value = b"\2"
    wrong = v1.Update(type=v1.Update.INSERT, entity=v1.Entity(table_entry=entry))
    assert client.write([wrong], v1.WriteRequest.CONTINUE_ON_ERROR)[0].code is Code.OUT_OF_RANGE


def test_what_writes_to_nothing_is_refused() -> None:
    document: dict[str, Any] = json.loads(PROGRAM.read_text())
    primitives = [primitive for action in document["actions"] for primitive in action["primitives"]]
    hashed = next(one for one in primitives if one["op"] == "modify_field_with_hash_based_offset")
    hashed["parameters"][0] = {"type": "field", "value": ["scalars", "user_metadata_t.nothing"]}
    with pytest.raises(ProgramError, match="which has no bits, as a target"):
        Switch(json.dumps(document))
