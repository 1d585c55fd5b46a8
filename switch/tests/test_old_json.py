"""JSON of earlier versions of p4c, which BMv2 takes: without types of transitions, version, ids; NoError is 1."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchsum_switch.errors import ProgramError
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.messages.matches import Exact
from switchsum_switch.state.tables import Entry

from .conftest import PROGRAMS

NO_ERROR, TOO_SHORT, UNWANTED = 0, 1, 7
"""Numbers of the program as it is committed; it writes `parser_error` to the first byte of a frame."""


FORWARDER = PROGRAMS.parents[2] / "exercises" / "switchsum_exercises" / "forwarder" / "solution.json"


@pytest.fixture(params=["interpreter", "native"])
def engine(request: pytest.FixtureRequest) -> EngineName:
    made: EngineName = request.param
    return made


def document(name: str) -> Any:
    return json.loads((PROGRAMS / f"{name}.json").read_text())


def everything(value: Any) -> list[Any]:
    """Return all objects in a document."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*([value] if isinstance(value, dict) else []), *(found for item in items for found in everything(item))]


def without_types(made: Any) -> Any:
    for state in made["parsers"][0]["parse_states"]:
        for transition in state["transitions"]:
            if transition.pop("type") == "default":
                transition["value"] = "default"
    return made


def with_no_error_of_one(made: Any) -> Any:
    """Number all errors from 1 on, as p4c did for a while, and all places that name one."""
    made["errors"] = [[name, number + 1] for name, number in made["errors"]]
    for found in everything(made):
        if found.get("op") == "verify":
            found["parameters"][1]["value"] = hex(int(found["parameters"][1]["value"], 16) + 1)
        left = found.get("left")
        if isinstance(left, dict) and left.get("value") == ["standard_metadata", "parser_error"]:
            found["right"]["value"] = hex(int(found["right"]["value"], 16) + 1)
    return made


FRAMES = [b"\1\0", b"\1", b"\x10\x00\xab\xcd", b"\x18\0\1\2\3", b"\x20\x01\0\0\1\2\3", b"\1\xee", b"\xff\1"]


def outcomes(made: Any, engine: EngineName) -> list[Any]:
    pipeline = Pipeline.load(json.dumps(made), engine=engine)
    return [pipeline.process(1, frame) for frame in FRAMES]


def test_transitions_without_a_type(engine: EngineName) -> None:
    made = outcomes(document("parsing"), engine)
    assert made == outcomes(without_types(document("parsing")), engine)
    assert len({frame[0] for sent in made for _, frame in sent}) > 2


def test_a_file_without_a_version(engine: EngineName) -> None:
    made = document("parsing")
    del made["__meta__"]
    assert outcomes(made, engine) == outcomes(document("parsing"), engine)


def test_no_error_has_the_number_that_the_file_gives_it(engine: EngineName) -> None:
    assert outcomes(with_no_error_of_one(document("parsing")), engine) == outcomes(document("parsing"), engine)


def test_errors_that_a_file_does_not_number_follow_those_that_it_does() -> None:
    made = document("replication")
    made["errors"] = [["Own", 3]]
    program = Pipeline.load(json.dumps(made), engine="interpreter")
    assert "parser_error = 5" in str(program.trace(1, b"")[1])  # NoError 4, PacketTooShort 5


def test_an_unknown_type_of_a_transition_is_refused() -> None:
    made = document("parsing")
    made["parsers"][0]["parse_states"][0]["transitions"][0]["type"] = "regular"
    with pytest.raises(ProgramError, match=r"transitions\[0\] has the unknown type regular"):
        Pipeline.load(json.dumps(made), engine="interpreter")


def test_tables_that_name_actions_and_have_no_default(engine: EngineName) -> None:
    made = json.loads(FORWARDER.read_text())
    for pipeline in made["pipelines"]:
        for table in pipeline["tables"]:
            del table["action_ids"]
    stations = next(one for one in made["pipelines"][0]["tables"] if one["name"] == "SwitchIngress.stations")
    del stations["default_entry"]
    loaded = Pipeline.load(json.dumps(made), engine=engine)
    frame = bytes(5) + b"\1" + bytes(8)
    assert loaded.process(2, frame) == [(0, frame)]  # nothing has happened: egress_spec is 0
    loaded.tables["stations"].insert(Entry(match=(Exact(1),), action="SwitchIngress.forward", params=(3,)))
    assert loaded.process(2, frame) == [(3, frame)]


def test_entries_lose_the_bits_that_the_program_masks_away(engine: EngineName) -> None:
    made = json.loads(FORWARDER.read_text())
    stations = next(one for one in made["pipelines"][0]["tables"] if one["name"] == "SwitchIngress.stations")
    stations["key"][0]["mask"] = "0x0000000000ff"
    loaded = Pipeline.load(json.dumps(made), engine=engine)
    table = loaded.tables["stations"]
    entry = Entry(match=(Exact(0xAA01),), action="SwitchIngress.forward", params=(3,))
    table.insert(entry)
    frame = bytes(4) + b"\xbb\1" + bytes(8)
    assert loaded.process(2, frame) == [(3, frame)]
    assert [found.match for found in table] == [(Exact(1),)]
    assert table.get((Exact(0xCC01),)).match == (Exact(1),)
    table.delete((Exact(0xDD01),))
    assert len(table) == 0


PORT = {"type": "field", "value": ["standard_metadata", "egress_spec"]}


def number(value: int) -> Any:
    return {"type": "hexstr", "value": hex(value)}


@pytest.mark.parametrize(
    ("operation", "operands", "port"),
    [
        ("modify_field", [7], 7),
        ("add_to_field", [3], 8),
        ("add_to_field", [511], 4),  # of 9 bits
        ("subtract_from_field", [2], 3),
        ("add", [3, 4], 7),
        ("subtract", [9, 4], 5),
        ("bit_xor", [6, 3], 5),
        ("bit_or", [6, 3], 7),
        ("bit_and", [6, 3], 2),
        ("shift_left", [3, 2], 12),
        ("shift_right", [12, 2], 3),
    ],
)
def test_primitives_that_p4c_does_not_write_any_more(
    engine: EngineName, operation: str, operands: list[int], port: int
) -> None:
    made = json.loads(FORWARDER.read_text())
    forward = next(action for action in made["actions"] if action["name"] == "SwitchIngress.forward")
    info = forward["primitives"][0]["source_info"]
    forward["primitives"] = [
        {"op": "modify_field", "parameters": [PORT, number(5)], "source_info": info},
        {"op": operation, "parameters": [PORT, *map(number, operands)], "source_info": info},
    ]
    loaded = Pipeline.load(json.dumps(made), engine=engine)
    loaded.tables["stations"].insert(Entry(match=(Exact(0),), action="SwitchIngress.forward", params=(0,)))
    assert loaded.process(300, bytes(14)) == [(port, bytes(14))]
