"""The fixed rough networks hold their bounds, and faults in sums, storms and standstills are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from checks.rough import running, short
from checks.rough.cells import Cell
from checks.rough.drawing import draw
from checks.rough.running import Outcome, draw_arrays, run, wrong

SMALL = Cell(kind="plain", rate_bps=1e8, blocks=100, slots=32)


@pytest.mark.parametrize("name", short.CELLS)
def test_a_rough_network_holds_its_bounds(name: str) -> None:
    found = run(short.CELLS[name])
    assert not short.bounds(name).missed(found)


def test_a_cell_goes_the_same_way_each_time() -> None:
    cell = replace(short.CELLS["twice"], blocks=300)
    assert run(cell) == run(cell)
    assert run(replace(cell, seed=1)).digest != run(cell).digest


def test_there_are_forty_cells_at_least_and_only_those_have_bounds_of_their_own() -> None:
    assert len(short.CELLS) >= 40
    assert short.OWN.keys() <= short.CELLS.keys()


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (Outcome(bound_s=1.0, took_s=2.0, repeats=0.0), "share of the bound 0.500, not 0.8"),
        (Outcome(bound_s=1.0, took_s=1.0, repeats=0.5), "0.500 repeats for each contribution, not 0.010"),
        (Outcome(bound_s=1.0, took_s=1.0, repeats=0.0, error="storm"), "storm"),
        (Outcome(bound_s=1.0, took_s=1.0, repeats=0.0), ""),
    ],
)
def test_what_a_cell_does_not_hold_is_said(found: Outcome, says: str) -> None:
    assert short.bounds_of(SMALL).missed(found) == says


def test_a_cell_with_a_trouble_is_judged_by_its_recovery() -> None:
    bounds = short.bounds(name="stopped")
    slow = Outcome(bound_s=1.0, took_s=9.0, repeats=0.0, recovery=3.5)
    assert bounds.missed(slow) == "3.50 time-outs beyond the bound, not 3"
    assert not bounds.missed(replace(slow, recovery=2.5))


@pytest.mark.parametrize("numbers", ["float32", "int8", "int10", "float32 in int8"])
def test_a_wrong_sum_is_found(numbers: str) -> None:
    cell = replace(SMALL, numbers=numbers)
    arrays, total = draw_arrays(cell, 0)
    right = total.astype(arrays[0].dtype)
    assert not wrong(cell, [right, right.copy()], total)
    off = right.copy()
    off[7] += np.float32(1e8) if numbers.startswith("float") else 1
    assert "different" in wrong(cell, [right, off], total)
    assert wrong(cell, [off, off.copy()], total).startswith("WRONG: a sum")


def test_a_sum_that_takes_too_long_has_failed_and_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LEAST_S", -1.0)
    monkeypatch.setattr(running, "TIMES", 0.5)
    found = run(SMALL)
    assert found.error.startswith("no end within")
    assert found.share == 0.0


def test_a_storm_has_failed_and_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "EVENTS_A_FRAME", 1)
    assert run(SMALL).error.startswith("storm: 1 events for each frame")


@pytest.mark.parametrize("kind", ["shared slots", "narrow", "sparse", "jobs", "far host", "clock"])
def test_drawn_cells_of_every_make_end_with_exact_sums(kind: str) -> None:
    cell = draw(3, 0, (kind,))
    assert not run(replace(cell, blocks=min(cell.blocks, 300))).error
