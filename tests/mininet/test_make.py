"""What `make mininet` says before it begins."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on PATH")
@pytest.mark.parametrize(
    ("code", "said"),
    [(0, ""), (1, "mn does not start, as where Python 3.12 lacks setuptools: sudo apt install mininet")],
)
def test_an_mn_that_does_not_start_is_seen_before_anything_runs(tmp_path: Path, code: int, said: str) -> None:
    program = tmp_path / "mn"
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["make", "needs-mininet"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (code == 0)
    assert said in done.stdout
