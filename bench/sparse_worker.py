"""What sparse allreduces and narrow lanes take beside a dense one, in the same job; `make bench-sparse` starts it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

import switchsum
from switchsum.host.compress import BlockTopK

VALUES = 2_500_000 // 256 * 256
RUNS = 3


def with_blocks(block: int, share: float, gradient: np.ndarray) -> np.ndarray:
    """Return the gradient with all blocks zero but some, the same ones on all ranks."""
    kept = np.random.default_rng(7).random(VALUES // block) < share
    rows = gradient.reshape(-1, block) * kept[:, None].astype(np.float32)
    return rows.astype(np.float32)


def main() -> None:
    """Measure; rank 0 prints, for each way, the median time and the bytes of a rank."""
    with switchsum.connect() as comm:
        gradient = np.random.default_rng(comm.rank).standard_normal(VALUES).astype(np.float32)
        tenth, hundredth, small = (
            with_blocks(block, share, gradient) for block, share in ((256, 0.1), (256, 0.01), (32, 0.01))
        )
        blocks = BlockTopK(0.01)
        ways: dict[str, Callable[[], object]] = {
            "dense": lambda: comm.allreduce(gradient.copy()),
            "int8 lanes": lambda: comm.allreduce(gradient.copy(), lanes="int8"),
            "10 % of blocks of 256": lambda: comm.allreduce(tenth.copy()),
            "1 % of blocks of 256": lambda: comm.allreduce(hundredth.copy()),
            "1 % of blocks of 32": lambda: comm.allreduce(small.copy()),
            "1 % of blocks of 32, block=32": lambda: comm.allreduce(small.copy(), block=32),
            "top 1 % of each rank, random": lambda: comm.allreduce_topk(gradient.copy(), density=0.01),
            "global block top 1 %": lambda: blocks.exchange(comm, "gradient", gradient),
        }
        for name, call in ways.items():
            call()
            seconds = []
            for _ in range(RUNS):
                comm.barrier()
                before, started = comm.statistics(), time.perf_counter()
                call()
                seconds.append(time.perf_counter() - started)
                after = comm.statistics()
            if comm.rank == 0:
                up = (after.bytes_sent - before.bytes_sent) / 1e6
                down = (after.bytes_received - before.bytes_received) / 1e6
                sys.stdout.write(f"| {name} | {np.median(seconds):.3f} s | {up:.2f} MB | {down:.2f} MB |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
