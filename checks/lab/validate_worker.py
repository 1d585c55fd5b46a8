"""One rank of `checks.lab.validate`: sums back to back, of each size some, and on rank 0 what they took as JSON.

Run: python -m checks.lab.validate_worker FILE BYTES REPEATS [BYTES REPEATS ...]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import switchsum
from switchsum_lab.sweeps.processor_time import session_seconds


def machine_ticks() -> tuple[int, int]:
    """Return for how many ticks the machine's cores were idle, and all ticks, since it has been running."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def main() -> None:
    """Add, and write for each size the seconds of a sum and the processors' share of the time."""
    path, *numbers = sys.argv[1:]
    sizes = [(int(size), int(repeats)) for size, repeats in zip(numbers[::2], numbers[1::2], strict=True)]
    found = []
    with switchsum.connect() as comm:
        for size, repeats in sizes:
            array = np.ones(size // 4, np.float32)
            comm.allreduce(array)  # empties the token buckets, too
            took, worked, began, before = [], session_seconds(), time.perf_counter(), machine_ticks()
            for _ in range(repeats):
                array[:] = 1
                start = time.perf_counter()
                comm.allreduce(array)
                took.append(time.perf_counter() - start)
            lasted = time.perf_counter() - began
            if not np.all(array == comm.world_size):
                raise SystemExit("a sum is wrong")
            idle, total = (now - then for now, then in zip(machine_ticks(), before, strict=True))
            worked = session_seconds() - worked
            busy = 1 - idle / max(1, total)
            found.append({"bytes": size, "seconds": took, "processors": worked / lasted, "busy": busy})
        if comm.rank == 0:
            Path(path).write_text(json.dumps({"results": found}))


if __name__ == "__main__":
    main()
