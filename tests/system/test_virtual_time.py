"""`switchsum run --virtual-time`: the page's program, twice."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from .conftest import Run
from .test_page_scripts import blocks


@pytest.mark.timeout(120)
def test_the_pages_program_runs_the_same_each_time(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(blocks("lab/docs/virtual-time.md", "Your program in virtual time", "python")[0])
    options = "--virtual-time", "-n", "2", "--topology", "leaf-spine,2,1,1", "--rate", "100gbit"
    first, second = (run(*options, command=[sys.executable, str(script)]) for _ in range(2))
    assert first.returncode == 0, first.stdout + first.stderr
    assert sorted(first.stdout.splitlines()) == sorted(second.stdout.splitlines())
    times = [float(one) for one in re.findall(r"step \d of rank \d: (\d+\.\d+) us", first.stdout)]
    assert len(times) == 6
    assert min(times) > 4 * 20 + 400_000 * 8 / 100e3  # the backward pass, and the last layer's bytes
    said = [re.findall(r"switchsum: simulated.*", one.stderr) for one in (first, second)]
    assert said[0] == said[1]
    assert "every run is the same" in said[0][0]
