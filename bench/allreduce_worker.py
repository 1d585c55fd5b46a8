"""One rank of the allreduce benchmark: `python -m bench.allreduce_worker switchsum|gloo BYTES RUNS FILE`.

Every rank measures; rank 0 writes the seconds of each run to FILE as JSON.  Ranks start each run together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

WARM_UP_RUNS = 1

Array = npt.NDArray[np.float32]


def measure(allreduce: Callable[[Array], object], barrier: Callable[[], object], size: int, runs: int) -> list[float]:
    """Return the seconds of each run; raises AssertionError when a sum is wrong."""
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ramp = ((np.arange(size) % 1000) / 1000 + 0.5).astype(np.float32)
    expected = ramp * np.float32(sum(range(1, workers + 1)))
    array = np.empty_like(ramp)
    seconds = []
    for run in range(WARM_UP_RUNS + runs):
        np.multiply(ramp, np.float32(rank + 1), out=array)
        barrier()
        started = time.perf_counter()
        allreduce(array)
        if run >= WARM_UP_RUNS:
            seconds.append(time.perf_counter() - started)
        np.testing.assert_allclose(array, expected, rtol=1e-5)
    return seconds


def with_switchsum(size: int, runs: int) -> list[float]:
    """Measure our own allreduce."""
    import switchsum

    with switchsum.connect() as communicator:
        return measure(communicator.allreduce, communicator.barrier, size, runs)


def with_gloo(size: int, runs: int) -> list[float]:
    """Measure torch's gloo; where to meet comes from the environment, as torchrun sets it."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    seconds = measure(lambda array: dist.all_reduce(torch.from_numpy(array)), dist.barrier, size, runs)
    dist.destroy_process_group()
    return seconds


if __name__ == "__main__":
    backend, size_bytes, run_count, path = sys.argv[1:]
    taken = {"switchsum": with_switchsum, "gloo": with_gloo}[backend](int(size_bytes) // 4, int(run_count))
    if os.environ["RANK"] == "0":
        Path(path).write_text(json.dumps(taken))
