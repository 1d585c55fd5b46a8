"""Loops that never end are left, and others run as often as they are to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from switchsum_switch.execution import pipeline
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.program.lower import endless

from .conftest import PROGRAMS, Load

SPIN, DOWN, SKIP, SUM = 1, 2, 3, 4
PROGRAM = (PROGRAMS / "endless.json").read_text()
ROUNDS = 300


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let loops end after `ROUNDS` rounds: the interpreter is slow."""
    monkeypatch.setattr(endless, "MOST_ROUNDS", ROUNDS)
    pipeline._lowered.cache_clear()
    yield
    pipeline._lowered.cache_clear()


def frame(kind: int, count: int = 0, step: int = 0) -> bytes:
    return bytes([kind, count, step, 0, 0])


def test_a_parser_that_never_ends_has_an_error(few_rounds: None, load: Load) -> None:
    looping = load("endless")
    assert looping.process(0, frame(SPIN)) == [(1, bytes([SPIN, 0, 0, 0, 1]))]
    assert looping.process(0, frame(SKIP, step=0)) == [(1, bytes([SKIP, 0, 0, 0, 1]))]  # skips nothing each time
    assert looping.process(0, frame(0)) == [(1, bytes(5))]  # and the next frame is as any other


def test_a_parser_that_ends_runs_as_often_as_it_is_to(few_rounds: None, load: Load) -> None:
    looping = load("endless")
    for count in (1, 7, 0):  # 0 stands for 256; rounds are counted for each frame anew
        assert looping.process(0, frame(DOWN, count)) == [(1, bytes([DOWN, 0, 0, count, 0]))]
    # Skipping ends with the packet, whose error is another one.
    assert looping.process(0, frame(SKIP, step=2) + bytes(3)) == [(1, bytes([SKIP, 0, 2, 0, 0, 0]))]


def test_an_action_that_never_ends_drops_its_packet(few_rounds: None, load: Load) -> None:
    looping = load("endless")
    assert looping.process(0, frame(SUM, 250, 0)) == []
    assert looping.process(0, frame(SUM, 250, 25)) == [(1, bytes([SUM, 250, 25, 10, 0]))]


def test_native_code_goes_round_as_often_as_it_may() -> None:
    looping = Pipeline.load(PROGRAM)
    assert looping.process(0, frame(SPIN)) == [(1, bytes([SPIN, 0, 0, 0, 1]))]


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_tables_that_follow_each_other_in_a_circle_drop_the_packet(few_rounds: None, engine: EngineName) -> None:
    document: dict[str, Any] = json.loads(PROGRAM)
    [ingress] = [one for one in document["pipelines"] if one["name"] == "ingress"]
    for table in ingress["tables"]:  # p4c writes no such program
        table["base_default_next"] = ingress["init_table"]
        table["next_tables"] = dict.fromkeys(table["next_tables"], ingress["init_table"])
    assert Pipeline.load(json.dumps(document), engine=engine).process(0, frame(SUM, 1, 1)) == []


def test_a_parser_that_extracts_in_each_round_is_not_counted() -> None:
    for name in ("stacks", "endless"):
        loaded = Pipeline.load((PROGRAMS / f"{name}.json").read_text(), engine="interpreter")
        counted = any(field.name.endswith(".rounds") for field in loaded._program.fields)
        assert counted == (name == "endless")
