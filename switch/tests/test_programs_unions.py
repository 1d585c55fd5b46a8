"""Header unions, and stacks of them."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from switchsum_switch.differ.search import Differ, with_pushes
from switchsum_switch.execution.pipeline import EngineName, Pipeline

from .conftest import PROGRAMS

BYTES = "00 02"
"""Two unions, in each of which the byte is valid."""


@pytest.fixture(scope="module", params=["interpreter", "native"])
def unions(request: pytest.FixtureRequest) -> Pipeline:
    engine: EngineName = request.param
    return Pipeline.load((PROGRAMS / "unions.json").read_bytes(), engine=engine)


@pytest.mark.parametrize(
    ("operation", "given", "expected", "result"),
    [
        (0, "0102 77", "0102 77", 0),
        (0, "0001 b0 c001 b0 77", "0001 b0 c001 b0 77", 0),
        (0, "0102 b0 b0 b0 b0 77", "0102 b0 b0 b0 b0 77", 0xEE),
        (1, BYTES, "abcd 02", 0),
        (1, "0102", "abcd", 0),
        (2, BYTES, "02", 0),
        (2, "0102", "0102", 0),  # the byte was not valid
        (3, "0102 77", "0102 0102 77", 0),
        (3, BYTES, "00 00", 0),
        (3, "", "", 0),
        (4, BYTES, "00 00", 0),
        (4, "0102 77", "0102 77", 0),  # a copy of an invalid header makes the copy invalid
        (5, "", "", 0b1000),  # as the P4_16 specification has it: two invalid unions are equal
        (5, "00 01", "00 01", 0b0111),
        (5, "00 00", "00 00", 0b1111),
        (5, "0102", "0102", 0b0001),
        (6, "0102 b0 c001 77", "0102 b0 c001 b0 c001 77", 0),
        (6, "0102 c001 b0 77", "0102 c001 c001 b0 77", 0),
        (7, "0102 b0 c001 c002 77", "0102 c002 c001 c002 77", 0),
        (7, "0102 b0 c001 77", "0102 c001 77", 0),
        (8, "0102 c001 b0 c002 77", "0102 2a c001 b0 77", 0),
        (9, "0102 c001 b0 c002 77", "0102 b0 c002 77", 0),
        (10, "0102 77", "55 77", 0),
        (10, "00 02 77", "55 02 77", 0),
    ],
)
def test_a_union_has_one_valid_header(unions: Pipeline, operation: int, given: str, expected: str, result: int) -> None:
    [(_, frame)] = unions.process(0, bytes([operation, 0, 0]) + bytes.fromhex(given))
    assert frame.hex(" ") == (bytes([operation, 0, result]) + bytes.fromhex(expected)).hex(" ")


def chosen(index: str, place: int) -> Any:
    """Return a header of a union of the stack `more`, at the index that a field of the command has."""
    stack = {"type": "header_union_stack", "value": "more"}
    union = {"op": "dereference_union_stack", "left": stack, "right": {"type": "field", "value": ["command", index]}}
    return {"op": "access_union_header", "left": {"type": "expression", "value": union}, "right": place}


def expression(value: Any) -> Any:
    return {"type": "expression", "value": value}


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize(
    ("index", "given", "expected", "result"),
    [
        (0, "0102 b0 c001 77", "0102 2a c001 77", 0xB0),
        (1, "0102 b0 c001 77", "0102 b0 2a 77", 0),
        (2, "0102 b0 c001 77", "0102 b0 c001 2a 77", 0),
        (3, "0102 b0 c001 77", "0102 b0 c001 77", 0),  # beyond the end
    ],
)
def test_unions_have_an_index_at_run_time(
    engine: EngineName, index: int, given: str, expected: str, result: int
) -> None:
    """BMv2 knows these forms; p4c of 2026 ends with a fault when a program has them."""
    document = json.loads((PROGRAMS / "unions.json").read_text())
    [ingress] = [action for action in document["actions"] if any(p["op"] == "pop" for p in action["primitives"])]
    byte = chosen("index", 0)
    field = expression({"op": "access_field", "left": expression(byte), "right": 0})
    result_field = {"type": "field", "value": ["command", "result"]}
    ingress["primitives"] = [
        {"op": "assign", "parameters": [result_field, field]},
        {"op": "add_header", "parameters": [expression(byte)]},
        {"op": "assign", "parameters": [field, {"type": "hexstr", "value": "0x2a"}]},
    ]
    pipeline = Pipeline.load(json.dumps(document), engine=engine)
    [(_, frame)] = pipeline.process(0, bytes([9, index, 0]) + bytes.fromhex(given))
    assert frame.hex(" ") == (bytes([9, index, result]) + bytes.fromhex(expected)).hex(" ")


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_a_select_reads_the_last_union(engine: EngineName) -> None:
    document = json.loads((PROGRAMS / "unions.json").read_text())
    [state] = [state for state in document["parsers"][0]["parse_states"] if state["name"] == "parse_byte_of_more"]
    state["transition_key"] = [{"type": "union_stack_field", "value": ["more", "byte", "value"]}]
    state["transitions"] = [{"type": "hexstr", "value": "0xb0", "mask": None, "next_state": "parse_byte_of_more"}]
    pipeline = Pipeline.load(json.dumps(document), engine=engine)
    frame = bytes.fromhex("060000 0102 b0 b0 01 02")
    # All three bytes are in unions: the copy repeats them, then the second is made invalid.
    assert pipeline.process(0, frame) == [(1, bytes.fromhex("060000 0102 b0 01 b0 b0 01 02"))]


def test_packets_that_pop_unions_are_not_compared_with_bmv2() -> None:
    """BMv2 puts them to the end of their stack."""
    given = (PROGRAMS / "unions.json").read_bytes()
    changed = with_pushes(given)
    assert changed is not None
    before, after = (Pipeline.load(one, engine="interpreter") for one in (given, changed))
    popped, kept = bytes.fromhex("0900000000b0b0ff"), bytes.fromhex("0800000000b0b0ff")
    assert before.process(0, popped) != after.process(0, popped)
    assert before.process(0, kept) == after.process(0, kept)
    assert with_pushes((PROGRAMS / "stacks.json").read_bytes()) is None


@pytest.mark.bmv2
@pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")
def test_bmv2_agrees() -> None:
    differ = Differ((PROGRAMS / "unions.json").read_bytes(), bmv2=True)
    for seed in range(380, 384):  # a packet of 381 pops a union
        assert differ.try_seed(seed) is None
    assert differ.tally.packets > 100
