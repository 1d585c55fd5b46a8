"""log_msg, assert and assume, also in the deparser: traces show what BMv2 writes to its log, and packets go on."""

from __future__ import annotations

import shutil

import pytest

from switchsum_switch.bmv2.simple_switch import SimpleSwitch
from switchsum_switch.execution.pipeline import Pipeline

from .conftest import PROGRAMS, Load

WIDE = 1 << 130
TAIL = b"cut off by the deparser"
LARGE = "Assert error: assert(h.word.value < 100) failed, file remarks.p4, line 26"
FOUR = "Assert error: assert(h.word.change != 4) failed, file remarks.p4, line 36"


def frame(value: int, change: int) -> bytes:
    return bytes([value]) + change.to_bytes(2, "big", signed=True) + WIDE.to_bytes(17, "big")


def logged(value: int, change: int) -> list[str]:
    ingress = [f"forwarded {change} and {WIDE}, {int(value == 7)}", "nothing"]
    return [f"parsed {value}", *ingress, f"sent with {change}"]


def test_remarks_change_no_packet(load: Load) -> None:
    pipeline = load("remarks")
    for word in (frame(7, -3), frame(200, 5)):
        assert pipeline.process(0, word + TAIL) == [(1, word)]


@pytest.mark.parametrize(
    ("value", "change", "failed"),
    [(7, -3, []), (99, 5, []), (200, -32768, [LARGE]), (7, 4, [FOUR]), (100, 4, [LARGE, FOUR])],
)
def test_traces_show_remarks(value: int, change: int, failed: list[str]) -> None:
    pipeline = Pipeline.load((PROGRAMS / "remarks.json").read_bytes(), engine="interpreter")
    sent, trace = pipeline.trace(0, frame(value, change))
    assert sent == [(1, frame(value, change))]
    assert [step.detail["message"] for step in trace.find("log")] == logged(value, change)
    assert [step.text for step in trace.find("assert")] == failed
    assert f"log: parsed {value}" in str(trace)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("{}{} of {x}", "7{} of {x}"), (r"\\{{}\\} {}", "{7} {}"), ("{ and }", "7"), ("none", "none"), ("{", "{")],
)
def test_braces_are_filled(text: str, shown: str) -> None:
    source = (PROGRAMS / "remarks.json").read_text().replace('"parsed {}"', f'"{text}"')
    _, trace = Pipeline.load(source, engine="interpreter").trace(0, frame(7, 0))
    assert trace.find("log")[0].detail["message"] == shown


@pytest.mark.bmv2
@pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")
def test_bmv2_logs_the_same_and_ends_where_an_assertion_fails() -> None:
    with SimpleSwitch((PROGRAMS / "remarks.json").read_bytes(), log=True) as switch:
        switch.send(0, frame(7, -3) + TAIL)
        assert [left.frame for left in switch.collect()] == [frame(7, -3)]
        lines = switch.log()
        for message in logged(7, -3):
            assert any(line.endswith(f" {message}") for line in lines), message
        switch.send(0, frame(200, -3))
        assert switch.collect() == []
        assert switch.has_ended()
