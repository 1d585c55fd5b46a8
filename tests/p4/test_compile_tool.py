"""tools/compile_p4.py: what it does to p4c's JSON."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from switchsum.p4src import load

TOOL = Path(__file__).parents[2] / "tools" / "compile_p4.py"


def field(name: str) -> dict[str, Any]:
    return {"type": "field", "value": ["scalars", name]}


def number(value: int) -> dict[str, Any]:
    return {"type": "hexstr", "value": hex(value)}


def call(op: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    return {"op": op, "parameters": list(parameters)}


def document(*primitives: dict[str, Any]) -> dict[str, Any]:
    fields = [["tmp", 32, False], ["tmp_0", 7, False], ["kept", 3, False], ["_padding_0", 6, False]]
    return {
        "header_types": [{"name": "scalars_0", "fields": fields}],
        "actions": [{"name": "act", "primitives": list(primitives)}],
    }


def inline(made: dict[str, Any]) -> list[dict[str, Any]]:
    runpy.run_path(str(TOOL))["inline_arguments"](made)
    primitives: list[dict[str, Any]] = made["actions"][0]["primitives"]
    return primitives


REGISTER = {"type": "register_array", "value": "cells"}


def test_arguments_stand_where_they_are_used_and_jumps_still_meet_their_targets() -> None:
    made = document(
        call("_jump_if_zero", field("kept"), number(4)),
        call("assign", field("tmp"), number(5)),
        call("assign", field("tmp_0"), number(6)),
        call("register_write", REGISTER, field("tmp"), field("tmp_0")),
        call("assign", field("kept"), number(1)),
    )
    assert inline(made) == [
        call("_jump_if_zero", field("kept"), number(2)),
        call("register_write", REGISTER, number(5), number(6)),
        call("assign", field("kept"), number(1)),
    ]
    assert made["header_types"][0]["fields"] == [["kept", 3, False], ["_padding", 5, False]]


def test_a_variable_that_is_read_twice_stays() -> None:
    write = call("register_write", REGISTER, field("tmp"), field("tmp"))
    made = document(call("assign", field("tmp"), number(5)), write)
    assert inline(made) == [call("assign", field("tmp"), number(5)), write]


def test_a_variable_that_another_primitive_reads_is_refused() -> None:
    with pytest.raises(ValueError, match="act"):
        inline(document(call("assign", field("tmp"), number(5)), call("assign", field("kept"), field("tmp"))))


def masked(value: dict[str, Any], mask: int) -> dict[str, Any]:
    return expression("&", value, number(mask))


def expression(op: str, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right}}


NARROW = {("scalars", "kept"): 3, ("scalars", "tmp"): 32}
MASKS = {
    "a field that is narrower": (masked(field("kept"), 0xFF), field("kept")),
    "a field of that width": (masked(field("kept"), 7), field("kept")),
    "a field that is wider": (masked(field("tmp"), 0xFF), None),
    "a mask with a hole": (masked(field("kept"), 0xFD), None),
    "a shift that stays inside": (
        masked(expression("<<", masked(field("kept"), 0xFF), number(5)), 0xFF),
        expression("<<", field("kept"), number(5)),
    ),
    "a shift that does not": (masked(expression("<<", field("kept"), number(6)), 0xFF), None),
    "a sum, which may carry": (masked(expression("+", field("kept"), field("kept")), 7), None),
    "a difference, which may be negative": (masked(expression("-", field("kept"), field("kept")), 0xFF), None),
    "a field that is not known": (masked(field("signed"), 0xFF), None),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_that_change_nothing_are_left_out(name: str) -> None:
    given, expected = MASKS[name]
    drop = runpy.run_path(str(TOOL))["drop_masks"]
    assert drop([{"parameters": [given]}], NARROW) == [{"parameters": [given if expected is None else expected]}]


@pytest.mark.parametrize("lanes", [128, 256, 2048])
def test_the_builds_have_no_variables_of_p4c_but_one_for_narrow_contributions(lanes: int) -> None:
    # Each costs every frame that passes where it is written: the parser's one is in a state that few frames reach.
    program = json.loads(load(lanes).device_config)
    [scalars] = [kind for kind in program["header_types"] if kind["name"] == "scalars_0"]
    assert [name for name, *_ in scalars["fields"] if name.startswith("tmp")] == ["tmp"]
    states = {state["name"]: json.dumps(state) for parser in program["parsers"] for state in parser["parse_states"]}
    assert [name for name, text in states.items() if '["scalars", "tmp' in text] == ["judge_narrow"]
    assert '["scalars", "tmp' not in json.dumps([program["actions"], program["pipelines"], program["deparsers"]])
