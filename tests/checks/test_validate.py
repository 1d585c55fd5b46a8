"""The comparison of simulated with measured times: its table, and the jobs that it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from checks.lab import validate
from support.timing import eventually

SCRIPT = """
import sys
from checks.lab import validate
sys.argv = ["validate", "--quick"]
validate.command_of = lambda row, path: ["sh", "-c", "echo $$ > {path}; exec sleep 1000"]
validate.main()
"""


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_job_ends_when_the_comparison_is_told_to_end(tmp_path: Path) -> None:
    path = tmp_path / "job"
    with subprocess.Popen([sys.executable, "-c", SCRIPT.format(path=path)], stdout=subprocess.DEVNULL) as comparison:
        assert eventually(lambda: path.exists() and path.read_text() != "", 60)
        job = int(path.read_text())
        assert is_there(job)
        comparison.send_signal(signal.SIGTERM)
    assert comparison.returncode == 128 + signal.SIGTERM
    assert eventually(lambda: not is_there(job), 20)


def test_the_page_shows_what_was_measured(tmp_path: Path) -> None:
    page, kept = tmp_path / "scale.md", json.loads(validate.KEPT.read_text())
    page.write_text(f"before\n{validate.BEGIN}\nold\n{validate.END}\nafter\n")
    validate.publish(kept, page)
    table = page.read_text().partition(validate.BEGIN)[2].partition(validate.END)[0]
    assert f"{validate.BEGIN}{table}{validate.END}" in validate.PAGE.read_text()
    assert table.count("\n|") == 2 + sum(len(cells) for cells in kept.values())


def test_a_row_counts_where_its_links_bound_it() -> None:
    def one(simulated_s: float, processors: float) -> dict[str, float]:
        return {"measured_s": 1.0, "simulated_s": simulated_s, "bytes": 1_000_000, "processors": processors}

    row = validate.Row(workers=2, mbit=100)
    found = validate.lines(row, [one(1.02, 0.5), one(1.04, 0.5), one(2.0, 0.9)])
    assert [near for _, near in found] == [True, False, True]


def test_cells_that_are_drawn_keep_cores_idle_and_take_seconds() -> None:
    random = Random("cells")
    rows = [validate.drawn(random) for _ in range(300)]
    assert all(row.workers * row.mbit <= 1000 for row in rows)
    assert all(row.workers * row.mbit <= 500 for row in rows if row.shape)
    assert all(20 <= row.mbit <= 200 for row in rows)
    assert all(0.04 < size * 8e-6 / row.mbit < 2.5 for row in rows for size, _ in row.sizes)
    assert len({row.shape for row in rows}) == 3
    assert {row.loss for row in rows} == {0.0, 0.001, 0.01}
    assert rows[:5] == [validate.drawn(again) for again in [Random("cells")] for _ in range(5)]


def found(busy: float, simulated_s: float = 1.01) -> dict[str, Any]:
    """Return what was found in a cell."""
    where = {"machine": "a machine, 2 cores, Linux", "date": "2026-11-30", "load": [0.5]}
    return {"measured_s": 1.0, "simulated_s": simulated_s, "bytes": 400_000, "processors": 0.1, "busy": busy, **where}


def test_another_cell_is_drawn_where_cores_were_busy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = iter([0.3, 0.7, 0.2, 0.6, 0.4])
    monkeypatch.setattr(validate, "compare", lambda row: [found(next(shares))])
    assert [one["busy"] for _, one in validate.cells(1, 3)] == [0.3, 0.2, 0.4]
    assert capsys.readouterr().err.count("left out, cores") == 2
    monkeypatch.setattr(validate, "compare", lambda row: [found(0.9)])
    with pytest.raises(SystemExit, match="more than half busy in all but 0 cells: is the machine quiet"):
        list(validate.cells(1, 3))


def test_a_cell_that_is_too_far_apart_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(validate, "compare", lambda row: [found(0.3)])
    monkeypatch.setattr(sys, "argv", ["validate", "--seed", "7", "--cells", "2"])
    validate.main()
    said = capsys.readouterr().out
    assert said.startswith("seed 7\n| workers |")
    assert said.count("+1.0% | 30% |") == 2
    monkeypatch.setattr(validate, "compare", lambda row: [found(0.3, 1.04)])
    with pytest.raises(SystemExit, match="further apart than 3 %"):
        validate.main()
