"""What a benchmark lacks is said before it measures, in lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checks.bench.__main__ import PARTS, main
from checks.bench.needs import EVERYTHING, NEEDS, Need, missing


def lacking(without: dict[str, str]) -> dict[str, Need]:
    return {"thing": Need(is_there=lambda: False, remedy="apt install thing", without=without)}


def test_parts_without_what_they_need_are_left_out() -> None:
    lines, parts = missing(("switch", "links"), lacking({"links": EVERYTHING, "switch": "BMv2"}))
    assert lines == ["no thing (apt install thing): switch without BMv2, links not measured"]
    assert parts == ["switch"]


def test_nothing_is_said_of_parts_that_are_not_asked_for() -> None:
    assert missing(("switch",), lacking({"links": EVERYTHING})) == ([], ["switch"])


def test_the_table_names_parts_that_exist() -> None:
    assert {part for need in NEEDS.values() for part in need.without} <= set(PARTS)


def test_no_runs_at_all_are_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "links", "--runs", "0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--runs is at least 1, not 0" in capsys.readouterr().err


def test_links_without_ethtool_is_a_line_and_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "checks.bench", "--only", "links"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "apt install ethtool" in done.stdout
    assert "Traceback" not in done.stderr
