"""The best value of an axis stands for each row of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum_lab.sweeps import sweep_file
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.best import best
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_lab.sweeps.plotting import Picture, curves
from switchsum_lab.sweeps.results import Results, Run
from switchsum_protocol.errors import UsageError

SWEEP = "workers: [2, 4]\nslots: [1, 16]\nbytes: 20kB\nrate: 1gbit\nbest: slots\nplot: {x: workers}\n"


def run(slots: int, repetition: int, ms: float, protocol: str = "ring") -> Run:
    cell = Cell(protocol=protocol, slots=slots)
    return Run(cell=cell, repetition=repetition, sitting=0, wall_s=0.0, outcome=Outcome(ms=ms, mb_per_s=1.0))


def test_the_least_median_is_the_best_and_not_the_least_run() -> None:
    runs = [run(8, 0, 1.0), run(8, 1, 9.0), run(8, 2, 9.0), run(16, 0, 5.0), run(16, 1, 6.0), run(16, 2, 7.0)]
    others = [run(8, 0, 3.0, "switchml"), run(16, 0, 4.0, "switchml")]
    assert best([*runs, *others], "slots") == [*runs[3:], others[0]]


def test_a_sweep_shows_and_draws_the_best_value_alone(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(SWEEP)
    command = ["sweep", "run", str(tmp_path / "one.yaml"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(application("sweep"), [*command, "--json"])
    assert done.exit_code == 0, done.output
    assert [(row["workers"], row["slots"]) for row in json.loads(done.stdout)["cells"]] == [("2", "16"), ("4", "16")]
    shown = CliRunner().invoke(application("sweep"), command)
    assert "of slots the best value of each row: the least median" in shown.stdout
    results = Results.read(tmp_path / "out")
    [points] = curves(results, Picture(x="workers", best="slots"))[None].values()
    assert [summary.runs for _, summary in points] == [1, 1]
    with pytest.raises(UsageError, match="slots"):
        curves(results, Picture(x="workers"))
    found = curves(results, Picture(x="slots", by=("workers",), best="slots"))[None]
    assert [len(points) for points in found.values()] == [2, 2]


@pytest.mark.parametrize("value", ["bytes", "speed", "[slots]"])
def test_best_names_an_axis_with_several_values(value: str, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(SWEEP.replace("best: slots", f"best: {value}"))
    with pytest.raises(UsageError, match=r"line 5: best: the name of an axis with several values"):
        sweep_file.load(path)
