"""A whole job without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.timing import patience
from switchsum_switch.kernels.plain import VARIABLE

WORKERS = 4
JOB = """
import sys
import numpy as np
import switchsum
from switchsum_host.engine import receiving

assert receiving.receive.__name__ == "receive" and "numba" not in sys.modules
with switchsum.connect() as comm:
    many, few = np.arange(5000, dtype=np.float32) * (comm.rank + 1), np.array([comm.rank, 0.5], np.float32)
    integers = np.full(40, 100, np.int8)
    halves = np.full(300, 0.25 * comm.rank, np.float16)
    for array in (many, few, halves):
        comm.allreduce(array)
    try:
        comm.allreduce(integers)
    except OverflowError as error:
        print(type(error).__name__)
    assert np.allclose(many, np.arange(5000) * 10, rtol=1e-5), many
    assert few.tolist() == [6, 2] and halves.tolist() == [1.5] * 300 and integers.tolist() == [127] * 40
    print("rank", comm.rank, "is done", "numba" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("links", ["shm", "udp"])
def test_four_workers_in_plain_python(links: str, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "switchsum",
            "run",
            "-n",
            str(WORKERS),
            "--links",
            links,
            "--",
            sys.executable,
            str(job),
        ],
        env={**os.environ, VARIABLE: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience(500),
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for rank in range(WORKERS):
        assert f"rank {rank} is done False" in done.stdout
