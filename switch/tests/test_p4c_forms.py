"""Forms of the JSON and of P4Info that are rare: some p4c writes now and then, some it wrote once, some BMv2 takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from switchsum_switch import ProgramError, Switch
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.messages.matches import Exact
from switchsum_switch.state.tables import Entry

from .conftest import PROGRAMS

Document = dict[str, Any]
FORWARDER = PROGRAMS.parents[2] / "exercises" / "switchsum_exercises" / "forwarder" / "solution.json"


@pytest.fixture(params=["interpreter", "native"])
def load(request: pytest.FixtureRequest) -> Callable[[Document], Pipeline]:
    engine: EngineName = request.param
    return lambda document: Pipeline.load(json.dumps(document), engine=engine)


def document(name: str) -> Document:
    made: Document = json.loads((PROGRAMS / f"{name}.json").read_text())
    return made


def state(program: Document, name: str) -> Any:
    return next(one for one in program["parsers"][0]["parse_states"] if one["name"] == name)


def test_the_parser_copies_the_last_member_of_a_stack(load: Callable[[Document], Pipeline]) -> None:
    program = document("stacks")
    source = {"type": "expression", "value": {"type": "stack_field", "value": ["labels", "last"]}}
    copy = {"op": "assign_header", "parameters": [{"type": "header", "value": "copies[2]"}, source]}
    state(program, "parse_label")["parser_ops"].append({"op": "primitive", "parameters": [copy]})
    pipeline = load(program)
    # Labels end with a mark in the lowest bit; the copy is that of the last one.
    for labels in (b"\x03", b"\x02\x05", b"\x02\x04\x07", b"\x02\x04\x06\x09"):
        assert pipeline.process(0, b"\0\0\0" + labels) == [(1, b"\0\0\0" + labels + labels[-1:])]


def test_a_select_looks_ahead_by_itself(load: Callable[[Document], Pipeline]) -> None:
    """BMv2's own tests have this form; p4c assigns what lies ahead to a field first."""
    program = document("unions")
    more = state(program, "parse_more")
    more["parser_ops"], more["transition_key"] = [], [{"type": "lookahead", "value": [0, 8]}]
    pipeline = load(program)
    for rest in ("b0 c001 b0 77", "c001 77", "77"):
        frame = b"\0\0\0" + bytes.fromhex("0102" + rest)
        assert pipeline.process(0, frame) == [(1, frame)]


def test_metadata_is_copied_as_a_whole(load: Callable[[Document], Pipeline]) -> None:
    program = document("unions")
    copy = {"name": "copy", "id": 100, "header_type": "standard_metadata", "metadata": True}
    program["headers"].append(copy)
    [ingress] = [action for action in program["actions"] if any(step["op"] == "pop" for step in action["primitives"])]
    names = [{"type": "header", "value": name} for name in ("copy", "standard_metadata")]
    port = {"type": "field", "value": ["copy", "ingress_port"]}
    result = {"type": "field", "value": ["command", "result"]}
    ingress["primitives"] = [
        {"op": "assign_header", "parameters": names},
        {"op": "assign", "parameters": [result, port]},
    ]
    frame = bytes.fromhex("090000 0102")
    assert load(program).process(6, frame) == [(1, bytes.fromhex("090006 0102"))]


@pytest.mark.parametrize("given_back", [True, False])
def test_the_metadata_that_is_marked_is_the_one_that_is_named(
    load: Callable[[Document], Pipeline], given_back: bool
) -> None:
    """p4c copies metadata that an action or a control takes as a parameter, and copies it back if it is inout."""
    program = json.loads(FORWARDER.read_text())
    program["headers"].append({"name": "copy", "id": 100, "header_type": "standard_metadata", "metadata": True})
    forward = next(action for action in program["actions"] if action["name"] == "SwitchIngress.forward")
    original, copy = ({"type": "header", "value": name} for name in ("standard_metadata", "copy"))
    steps = [("assign_header", [copy, original]), ("mark_to_drop", [copy])]
    steps += [("assign_header", [original, copy])] if given_back else []
    forward["primitives"] += [{"op": operation, "parameters": operands} for operation, operands in steps]
    loaded = load(program)
    loaded.tables["stations"].insert(Entry(match=(Exact(1),), action="SwitchIngress.forward", params=(3,)))
    frame = bytes(5) + b"\1" + bytes(8)
    assert loaded.process(2, frame) == ([] if given_back else [(3, frame)])


def test_metadata_without_the_fields_that_are_marked_stays(load: Callable[[Document], Pipeline]) -> None:
    program = json.loads(FORWARDER.read_text())
    forward = next(action for action in program["actions"] if action["name"] == "SwitchIngress.forward")
    other = next(one["name"] for one in program["headers"] if one["name"] != "standard_metadata")
    forward["primitives"].append({"op": "mark_to_drop", "parameters": [{"type": "header", "value": other}]})
    loaded = load(program)
    loaded.tables["stations"].insert(Entry(match=(Exact(1),), action="SwitchIngress.forward", params=(3,)))
    frame = bytes(5) + b"\1" + bytes(8)
    assert loaded.process(2, frame) == [(3, frame)]


def test_a_table_may_have_its_action_profile_in_itself() -> None:
    program = document("profiles")
    profiles = {profile["name"]: profile for one in program["pipelines"] for profile in one.pop("action_profiles")}
    for pipeline in program["pipelines"]:
        for table in pipeline["tables"]:
            if (name := table.pop("action_profile", None)) is not None:
                table["act_prof_name"] = name
                if "selector" in profiles[name]:
                    table["selector"] = profiles[name]["selector"]
    new, old = Pipeline.load(json.dumps(document("profiles"))), Pipeline.load(json.dumps(program))
    assert list(old.profiles) == list(new.profiles)


UNUSED_TABLE = 'tables { preamble { id: 99 name: "ingress.never_applied" alias: "never_applied" } size: 4 }'
UNUSED_PROFILE = 'action_profiles { preamble { id: 98 name: "ingress.unused" alias: "unused" } size: 4 }'
UNUSED_DIGEST = 'digests { preamble { id: 97 name: "unused" } type_spec { bitstring { bit { bitwidth: 4 } } } }'


@pytest.mark.parametrize("more", [UNUSED_TABLE, UNUSED_PROFILE, UNUSED_DIGEST])
def test_p4info_may_have_what_p4c_left_out_of_the_program(more: str) -> None:
    p4info = (PROGRAMS / "matching.p4info.txtpb").read_text()
    program = (PROGRAMS / "matching.json").read_bytes()
    switch = Switch(program, p4info + more, engine="interpreter")
    assert list(switch.tables) == list(Switch(program, p4info, engine="interpreter").tables)


def test_the_p4info_of_another_program_is_refused() -> None:
    with pytest.raises(ProgramError, match="the program does not"):
        Switch((PROGRAMS / "matching.json").read_bytes(), UNUSED_TABLE, engine="interpreter")
