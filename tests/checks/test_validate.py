"""The comparison of simulated with measured times ends the job that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ..timing import eventually

SCRIPT = """
from checks.lab import validate
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
