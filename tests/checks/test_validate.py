"""The comparison of simulated with measured times: its table, and the jobs that it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

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
