"""`switchsum sweep`: cells are listed, run once, gone on with, and drawn."""

from __future__ import annotations

import csv
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from switchsum.cli.app import application
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.inputs import digest_of
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_lab.sweeps.plotting import Picture, curves, draw
from switchsum_lab.sweeps.results import Results, Run
from switchsum_protocol.errors import UsageError

SWEEP = "workers: [2, 3]\nprotocol: [switchsum, ideal-ring]\nbytes: 8kB\nrate: 1gbit\n"
ROOT = Path(__file__).parents[3]


def command(*words: object) -> Result:
    return CliRunner().invoke(application("sweep"), ["sweep", *map(str, words)], catch_exceptions=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(SWEEP)
    return path


def test_a_dry_run_lists_the_cells_and_makes_nothing(file: Path, tmp_path: Path) -> None:
    listed = command(file, "--dry-run", "-o", tmp_path / "out")
    assert listed.stdout.splitlines() == [
        "workers 2, protocol switchsum",
        "workers 2, protocol ideal-ring",
        "workers 3, protocol switchsum",
        "workers 3, protocol ideal-ring",
        "4 cells, 4 runs: every cell is possible here",
    ]
    assert [cell["workers"] for cell in json.loads(command("run", file, "--dry-run", "--json").stdout)] == [2, 2, 3, 3]
    assert [*tmp_path.iterdir()] == [file]


def test_a_sweep_is_run_once_and_gone_on_with(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = command(file, "--out", out)
    assert first.exit_code == 0
    assert "medians of what a collective took" in first.stdout
    with (out / "runs.csv").open() as table:
        rows = [*csv.DictReader(table)]
    assert [(row["workers"], row["protocol"], row["simulated"]) for row in rows] == [
        ("2", "switchsum", "True"),
        ("2", "ideal-ring", "True"),
        ("3", "switchsum", "True"),
        ("3", "ideal-ring", "True"),
    ]
    file.write_text(SWEEP + "repetitions: 2\n")
    again = command(file, "--out", out, "--json")
    assert "has 4 of these runs already" in again.stderr
    assert [cell["runs"] for cell in json.loads(again.stdout)["cells"]] == [2] * 4
    assert (out / "runs.jsonl").read_text().count("\n") == 8
    assert len(json.loads((out / "manifest.json").read_text())["sittings"]) == 2


def results_of(tmp_path: Path, *cells: Cell) -> Results:
    results = Results(tmp_path)
    for cell in cells:
        for repetition, ms in enumerate((1.0, 3.0, 2.0)):
            outcome = Outcome(ms=ms * cell.workers, mb_per_s=1.0)
            results.runs.append(
                Run(cell=cell, repetition=repetition, sitting=0, wall_s=0.1, reads=digest_of(cell), outcome=outcome)
            )
    return results


def test_curves_are_medians_of_what_differs_in_named_axes_only(tmp_path: Path) -> None:
    cells = [Cell(workers=workers, protocol=name, loss=0.1) for name in ("ring", "switchsum") for workers in (4, 2)]
    results = results_of(tmp_path, *cells)
    found = curves(results, Picture(x="workers", by=("protocol",)))
    assert [*found] == [None]
    assert {name: [(x, one.median, one.low, one.high) for x, one in curve] for name, curve in found[None].items()} == {
        name: [(2, 4.0, 2.0, 6.0), (4, 8.0, 4.0, 12.0)] for name in ("ring", "switchsum")
    }
    assert [*curves(results, Picture(x="workers", panels="protocol"))] == ["ring", "switchsum"]
    assert [*curves(results, Picture(x="workers", where=("protocol=ring", "loss=10%")))[None]] == [""]


@pytest.mark.parametrize(
    ("picture", "reason"),
    [
        (Picture(x="workers"), r"differ in protocol \(ring, switchsum\): add it to --by, or choose one by --where"),
        (Picture(x="size", by=("protocol",)), "there is no axis 'size'"),
        (Picture(x="workers", y="speed", by=("protocol",)), "--y is one of ms, "),
        (Picture(x="workers", y="frames", by=("protocol",)), "no run of .* has a figure frames"),
        (Picture(x="workers", where=("loss",)), "--where takes AXIS=VALUE"),
        (Picture(x="workers", where=("loss=x",)), "--where loss: a share such as"),
        (Picture(x="workers", where=("loss=1%",)), "has no run with --where loss=1%"),
    ],
)
def test_a_picture_that_means_nothing_is_refused(tmp_path: Path, picture: Picture, reason: str) -> None:
    cells = [Cell(workers=workers, protocol=name) for name in ("ring", "switchsum") for workers in (4, 2)]
    with pytest.raises(UsageError, match=reason):
        curves(results_of(tmp_path, *cells), picture)


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_a_picture_is_drawn_with_a_panel_for_each_value(tmp_path: Path) -> None:
    cells = [Cell(workers=workers, loss=loss) for workers in (2, 4) for loss in (0.0, 0.01)]
    draw(results_of(tmp_path, *cells), Picture(x="workers", panels="loss"), tmp_path / "one.svg")
    text = (tmp_path / "one.svg").read_text()
    assert text.count('<g id="axes_') == 2
    assert text.count("<use ") >= 4  # a marker for each point, none of them beyond the scale that the panels share
    assert "smallest and largest of the runs" in text
