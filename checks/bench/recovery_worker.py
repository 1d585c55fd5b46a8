"""One rank of the recovery benchmark: `python -m checks.bench.recovery_worker BYTES PAIRS FILE`.

Allreduces with recovery and without it in turn, nothing lost; rank 0 writes of each pair how many times as long, and as
much time of all ranks' processors, those with it took.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt

import switchsum
from checks.bench.without_recovery import WithoutRecovery
from switchsum_host.api.communicator import Communicator

WARM_UP_PAIRS = 2


def measure(communicator: Communicator, array: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Return the seconds of one allreduce, and those of all ranks' processors together."""
    array[:] = communicator.rank
    communicator.barrier()
    started, worked = time.perf_counter(), time.process_time()
    communicator.allreduce(array)
    taken = np.array([time.perf_counter() - started, time.process_time() - worked], np.float32)
    np.testing.assert_array_equal(array, sum(range(communicator.world_size)))
    seconds = taken[0]
    communicator.allreduce(taken)
    return float(seconds), float(taken[1])


def main(size: int, pairs: int, path: Path) -> None:
    """Measure; raises AssertionError when a sum is wrong."""
    ratios = []
    array = np.empty(size, np.float32)
    cache = path.with_suffix(".kernels")
    cache.mkdir(exist_ok=True)
    with switchsum.connect(timeout_s=60) as communicator:
        without = WithoutRecovery(cache)
        if communicator.rank == 0:
            without.warm_up(communicator)
        communicator.barrier()
        for pair in range(WARM_UP_PAIRS + pairs):
            taken = {}
            for has_recovery in (True, False) if pair % 2 else (False, True):
                with nullcontext() if has_recovery else without.used_by(communicator):
                    taken[has_recovery] = measure(communicator, array)
            if pair >= WARM_UP_PAIRS:
                ratios.append([whole / bare for whole, bare in zip(taken[True], taken[False], strict=True)])
        if communicator.rank == 0:
            path.write_text(json.dumps(ratios))


if __name__ == "__main__":
    main(int(sys.argv[1]) // 4, int(sys.argv[2]), Path(sys.argv[3]))
