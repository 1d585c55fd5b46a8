"""The controller does what the model that Spin searches allows, in whichever order members leave or fall silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.mutate import hand_over
from checks.verify.hand_over import What
from checks.verify.replay import differences
from checks.verify.search import missing_tool

needs_spin = pytest.mark.skipif(bool(missing_tool()), reason=f"{missing_tool()} is not on PATH")
CHANGED = "the first member that goes gives the slot away"
"""Each change takes a compilation; `make mutate` makes all."""


def test_the_controller_does_everything_that_the_model_has() -> None:
    moves = hand_over.expected()
    assert {move.what for move in moves} == set(What) - {What.OTHER}
    assert {(move.what, move.lost) for move in moves} > {(What.CLOSE, 0), (What.CLOSE, 1), (What.STAY, 1)}
    assert len({move.number for move in moves if move.what is What.HAND_OVER}) == len({move.cells for move in moves})


@pytest.mark.parametrize("name", hand_over.CODE)
def test_what_is_to_be_changed_is_there_once(name: str) -> None:
    change = hand_over.CODE[name]
    assert Path(str(change.module.__file__)).read_text().count(change.before) == 1
    assert hasattr(change.user, change.name)


@needs_spin
@pytest.mark.timeout(300)
def test_the_model_allows_what_the_controller_does() -> None:
    assert differences([], hand_over.expected()) == ""


@pytest.mark.slow
@needs_spin
@pytest.mark.timeout(300)
def test_a_change_of_the_controller_or_of_the_model_alone_shows() -> None:
    assert hand_over.code_differs(hand_over.CODE[CHANGED])
    changed = {"controller.pml": hand_over.MODEL[CHANGED]}
    assert "differs in step" in differences([], hand_over.expected(), changed)
