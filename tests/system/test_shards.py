"""A switch on two cores, from the command line to sums."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from switchsum import connect

from ..timing import patience
from .daemons import SWITCHSUM, daemon, run_here, system

pytestmark = pytest.mark.timeout(120)
WORKERS = 3
SIZE = 40_000
"""Blocks of 128 values in all slots of the job at once, so that batches are long enough to be divided."""


def test_a_job_adds_right() -> None:
    name = f"switchsum-shards-{os.getpid()}"

    def work(rank: int) -> list[np.ndarray]:
        with connect(
            controller=controller, job="a", rank=rank, world_size=WORKERS, link=f"shm:{name}", timeout_s=patience(60)
        ) as job:
            arrays = [np.arange(SIZE, dtype=kind) * (rank + 1) for kind in (np.int32, np.float32)]
            for _ in range(3):
                for array in arrays:
                    job.allreduce(array)
        return arrays

    with system("--shm", name, "--shards", "2", "--shard-by", "agg.slot", lanes=128) as controller:
        made = run_here(
            "job", "create", "a", "-n", str(WORKERS), "--timeout", str(patience(60)), "--controller", controller
        )
        assert made.returncode == 0, made.stderr
        with ThreadPoolExecutor(WORKERS) as pool:
            results = list(pool.map(work, range(WORKERS)))
    for integers, floats in results:
        np.testing.assert_array_equal(integers, np.arange(SIZE, dtype=np.int32) * (6 * WORKERS**2))
        np.testing.assert_allclose(floats, np.arange(SIZE) * (6.0 * WORKERS**2), rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        ["--shards", "2"],
        ["--shard-by", "agg.slot"],
        ["--shards", "3", "--shard-by", "agg.slot"],
        ["--shards", "2", "--shard-by", "agg.slot", "--engine", "interpreter"],
    ],
)
def test_shards_that_cannot_be(options: list[str]) -> None:
    done = run_here("switch", "--listen", "127.0.0.1:0", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "shard" in done.stderr


def test_a_field_that_does_not_do_is_refused_with_the_reason() -> None:
    with daemon("switch", "--listen", "127.0.0.1:0", "--shards", "2", "--shard-by", "agg.rank") as switch:
        command = [*SWITCHSUM, "controller", "--listen", "127.0.0.1:0", "--switch", switch["p4runtime"]]
        controller = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert controller.stderr is not None
        try:
            assert any("is a function of agg.rank" in line for line in controller.stderr)
        finally:
            controller.terminate()
            controller.communicate()
