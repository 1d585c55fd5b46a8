"""Jobs end in each way there is, and leave nothing; `make endings` does so a hundred times."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.timing import patience


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_jobs_end_in_each_way_and_leave_nothing() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHSUM_")}
    command = [sys.executable, "-m", "checks.soak.endings", "--starts", "3", "--limit", str(patience(60))]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
