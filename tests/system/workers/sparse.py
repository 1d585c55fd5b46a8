"""Sparse sums of random supports until a file is there, each checked, in a job that shares slots with others."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import switchsum

STOP = Path(os.environ["STOP"])
STEPS_AT_ONCE = 15
"""All shares, at random and the same: each way is taken."""
SIZE = 60_000
SHARES = (0.0, 0.001, 0.01, 0.3, 1.0)


def main() -> None:
    """Add until the file is there on rank 0, and say how it went."""
    with switchsum.connect() as comm:
        step = 0
        while True:
            for _ in range(STEPS_AT_ONCE):
                rows, values = zip(*(drawn(step, rank) for rank in range(comm.world_size)), strict=True)
                total = np.zeros(SIZE)
                for own, part in zip(rows, values, strict=True):
                    total[own] += part
                found = comm.allreduce_sparse(rows[comm.rank], values[comm.rank], SIZE)
                np.testing.assert_array_equal(found.to_dense(), total.astype(np.float32))
                step += 1
            is_over = np.array([STOP.exists()], np.int32)
            if comm.allreduce(is_over, "max")[0]:
                break
        ways = comm.statistics()
        counts = (ways.sparse_pairs, ways.sparse_same, ways.sparse_bitmaps + ways.sparse_places, ways.sparse_whole)
        print("right sums" if all(counts) else f"ways {counts}", flush=True)


def drawn(step: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a rank and whole numbers; each third step all ranks have the same rows."""
    random = np.random.default_rng([step, 0 if step % 3 == 0 else rank])
    share = SHARES[step % len(SHARES)]
    rows = np.flatnonzero(random.random(SIZE) < share)
    return rows, np.random.default_rng([step, rank]).integers(1, 100, len(rows)).astype(np.float32)


main()
