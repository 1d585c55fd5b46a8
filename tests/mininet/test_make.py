"""What `make mininet` says before it begins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on PATH")
@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ({"mn": 0, "ping": 0}, ""),
        ({"mn": 1, "ping": 0}, "mn does not start, as where Python 3.12 lacks setuptools: sudo apt install mininet"),
        ({"ping": 0}, "Mininet is missing: sudo apt install mininet ethtool iputils-ping"),
        ({"mn": 0}, "ping is missing, with which Mininet's pingall looks at the network: sudo apt install iputils"),
    ],
)
def test_what_mininet_lacks_is_said_before_anything_runs(tmp_path: Path, codes: dict[str, int], said: str) -> None:
    make, shell = shutil.which("make"), shutil.which("sh")
    assert make is not None
    assert shell is not None
    (tmp_path / "sh").symlink_to(shell)
    for name, code in {"python3": 0, **codes}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)
    done = subprocess.run(
        [make, "needs-mininet"], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (said == ""), done.stderr
    assert said in done.stdout
