"""What a container gives a process without asking for more: no capabilities, no new rights, a small /dev/shm."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.parts import WORKERS
from support.timing import patience

from .conftest import NAMESPACES

CONFINED = "mount -t tmpfs -o size=1m none /dev/shm && exec setpriv --inh-caps=-all --bounding-set=-all --no-new-privs "


@pytest.mark.root
@NAMESPACES
@pytest.mark.parametrize("links", ["shm", "udp"])
def test_a_job_needs_no_capability_and_nothing_of_dev_shm(links: str, tmp_path: Path) -> None:
    job = [sys.executable, "-m", "switchsum", "run", "-n", "4", "--links", links, "--"]
    job += [sys.executable, str(WORKERS / "collectives.py")]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", CONFINED + shlex.join(job)],
        capture_output=True,
        text=True,
        timeout=patience(50),
        check=False,
        env={**os.environ, "RESULT": str(tmp_path / "result")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("digest") == 4
