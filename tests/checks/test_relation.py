"""The P4 program, its definition in plain Python and the model that Spin searches do the same in every state of a slot.

Each of them is also changed alone, row by row of the slot's rules, to see that the comparison notices.
"""

from __future__ import annotations

import itertools

import pytest

from checks.mutate import slot
from checks.verify.relation import QUICK, Decision, difference
from checks.verify.replay import differences
from checks.verify.search import missing_tool
from checks.verify.switches import LANES, Program
from switchsum import p4src
from switchsum_protocol.frame import Reason
from switchsum_switch.execution.pipeline import EngineName, Pipeline

needs_spin = pytest.mark.skipif(bool(missing_tool()), reason=f"{missing_tool()} is not on PATH")
ON_ENGINES = [*itertools.product(["native"], range(len(QUICK))), ("interpreter", 0), ("interpreter", 2)]
MODEL = ["row 9: any tag will do"]
"""Each takes a compilation; `make mutate` makes all."""


def test_every_row_of_the_rules_applies() -> None:
    assert {step.decision for step in slot.expected_steps()} == set(Decision) - {Decision.OTHER}
    counted = {reason for step in slot.expected_steps() for reason in step.counted}
    rows = {Reason.STALE, Reason.CONTRIBUTED, Reason.OVERFLOW, Reason.MISMATCH, Reason.HELD, Reason.REPEATED}
    assert counted == {*rows, Reason.COMPLETED, Reason.NOT_ADMITTED}


@pytest.mark.parametrize(("engine", "at"), ON_ENGINES)
def test_the_program_does_what_the_definition_says(engine: EngineName, at: int) -> None:
    data = QUICK[at]
    program = Program(Pipeline.load(p4src.load(LANES).device_config, engine=engine))
    assert difference(program, data, slot.expected(data)) is None


@needs_spin
@pytest.mark.timeout(300)
def test_the_model_does_what_the_definition_says() -> None:
    assert differences(slot.expected_steps()) == ""


@pytest.mark.parametrize("name", slot.PROGRAM)
def test_a_change_of_the_program_alone_shows(name: str) -> None:
    assert slot.program_differs(slot.PROGRAM[name])


@pytest.mark.parametrize("name", slot.DEFINITION)
def test_a_change_of_the_definition_alone_shows(name: str) -> None:
    assert slot.definition_differs(*slot.DEFINITION[name])


@needs_spin
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MODEL)
def test_a_change_of_the_model_alone_shows(name: str) -> None:
    assert "differs in step" in differences(slot.expected_steps(), edits={"slot.pml": slot.MODEL[name]})


@pytest.mark.parametrize("changes", [slot.PROGRAM, slot.DEFINITION, slot.MODEL])
def test_each_row_is_changed_on_each_side(changes: dict[str, object]) -> None:
    named = {int(word) for name in changes for word in name.split(":")[0].split() if word.isdigit()}
    assert named == set(range(1, 13)) - (slot.NOT_MODELLED if changes is slot.MODEL else set())
