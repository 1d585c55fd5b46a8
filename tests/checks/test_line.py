"""The cells of `make line` say what the line carries, and falls are found; that links hold it is for the command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checks.line import __main__ as line
from checks.line.cells import CELLS, REPEATS, SHARE, Cell
from switchsum.planning.topology import load

STAR = Cell(name="star", workers=4, mbit=100, lanes=256)


def test_the_line_carries_1024_of_1114_bytes() -> None:
    assert STAR.bytes_per_s == pytest.approx(100e6 / 8 * 1024 / 1114)
    assert STAR.call_bytes == pytest.approx(2 * STAR.bytes_per_s, abs=4)
    assert STAR.options("") == ["-n", "4", "--lanes", "256", "--slots", "auto", "--links", "veth", "--rate", "100mbit"]


def test_cells_are_of_both_mtus_and_of_stars_and_racks() -> None:
    assert {cell.lanes for cell in CELLS} == {256, 2048}
    assert {cell.workers for cell in CELLS} >= {4, 8}
    assert {cell.mbit for cell in CELLS} >= {2, 5, 100}
    assert len({cell.name for cell in CELLS}) == len(CELLS) == 8


def test_racks_have_trunks_ten_times_slower_than_their_hosts(tmp_path: Path) -> None:
    (racks,) = (cell for cell in CELLS if cell.racks)
    path = tmp_path / "network.yaml"
    path.write_text(racks.topology())
    network = load(path)
    rates = {cable.ends: cable.mbit for cable in network.cables}
    assert {rate for ends, rate in rates.items() if "root" in ends} == {racks.mbit}
    assert {rate for ends, rate in rates.items() if "root" not in ends} == {10 * racks.mbit}
    assert len(network.hosts) == racks.workers
    assert racks.options(str(path))[-2:] == ["--topology", str(path)]


@pytest.mark.parametrize(
    ("outcome", "holds"),
    [
        (line.Outcome((1.0, SHARE, 0.9), REPEATS), True),
        (line.Outcome((1.0, SHARE - 0.01, 0.9), 0.0), False),
        (line.Outcome((1.0, 1.0, 1.0), REPEATS + 0.01), False),
        (line.Outcome(error="not done within 180 s"), False),
    ],
)
def test_a_cell_falls_for_one_slow_call_many_repeats_or_an_error(outcome: line.Outcome, holds: bool) -> None:
    assert outcome.holds is holds


def test_a_cell_gets_a_second_try_and_no_third(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = line.Outcome((0.5,) * 3), line.Outcome((1.0,) * 3)
    for outcomes, held, left in (([fast, slow], True, 1), ([slow, fast], True, 0), ([slow, slow, fast], False, 1)):
        monkeypatch.setattr(line, "measure", lambda cell, found=outcomes: found.pop(0))
        assert line.hold(STAR) is held
        assert len(outcomes) == left


def test_cells_are_skipped_by_name_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (line.MOST_LOAD + 1, 0.0, 0.0))
    monkeypatch.setattr("sys.argv", ["line"])
    assert line.main() == 0
    assert capsys.readouterr().out.count("skipped: ") == len(CELLS)
