"""What every rank does in the system tests: all kinds of allreduces, checked against what numpy says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

import switchsum
from switchsum_host.engine.loop import Driver

SIZES = (1, 255, 256, 257, 5_000, 70_001)
DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int32)
PRECISION = {
    np.dtype(np.float32): (2.0**-23, 2.0**-149),
    np.dtype(np.float16): (2.0**-10, 2.0**-24),
    np.dtype(ml_dtypes.bfloat16): (2.0**-7, 2.0**-133),
}
"""Distance of 1 from the next value, and the smallest value."""


def inputs(size: int, dtype: np.dtype, workers: int, seed: int) -> list[np.ndarray]:
    """Return every rank's input: values of very different sizes, and long runs of zeros."""
    arrays = []
    for rank in range(workers):
        generator = np.random.default_rng([seed, size, rank])
        values = generator.normal(size=size) * 10.0 ** generator.integers(-3, 4, size)
        values[generator.integers(0, size) :][: size // 3] = 0
        values[size // 2 : size // 2 + 600] = 0  # zero everywhere: a block that nobody sends
        arrays.append(values.astype(dtype))
    return arrays


def check(comm: switchsum.Communicator, size: int, dtype: np.dtype) -> np.ndarray:
    """Reduce one array; return the result."""
    arrays = inputs(size, dtype, comm.world_size, seed=1)
    mine = arrays[comm.rank].copy()
    assert comm.allreduce(mine) is mine
    exact = np.sum([array.astype(np.float64) for array in arrays], axis=0)
    if np.dtype(dtype).kind == "i":
        np.testing.assert_array_equal(mine, exact.astype(np.int64))
    else:
        largest = max(np.abs(array.astype(np.float64)).max() for array in arrays)
        epsilon, smallest = PRECISION[np.dtype(dtype)]
        bound = comm.world_size**2 * largest * 2.0**-30 + np.abs(exact) * epsilon + smallest
        assert (np.abs(mine.astype(np.float64) - exact) <= bound).all()
    return mine


def main() -> None:
    """Run everything; write this rank's result bytes' digest for the test to compare."""
    digests = []
    with switchsum.connect() as comm:
        for dtype in DTYPES:
            for size in SIZES:
                digests.append(hash(check(comm, size, np.dtype(dtype)).tobytes()))

        for lanes in ("int16", "int8"):  # what is drawn at random is the same in every run
            for dtype in (np.float32, ml_dtypes.bfloat16):
                mine = inputs(5_000, np.dtype(dtype), comm.world_size, seed=2)[comm.rank]
                digests.append(hash(comm.allreduce(mine, lanes=lanes).tobytes()))

        matrix = np.arange(600, dtype=np.float32).reshape(20, 30)[::2, ::3]  # strided
        expected = matrix * comm.world_size
        np.testing.assert_allclose(comm.allreduce(matrix), expected, rtol=1e-6)
        scalar = np.array(comm.rank + 1.0, dtype=np.float32)
        assert comm.allreduce(scalar, op="average") == (comm.world_size + 1) / 2

        handles = [comm.allreduce_async(np.full(n, comm.rank, np.int32)) for n in (3, 3_000, 30)]
        for handle in reversed(handles):
            assert (handle.wait() == sum(range(comm.world_size))).all()

        broken = np.ones(1_000, np.float32)
        if comm.rank == 0:
            broken[10] = np.inf
        comm.allreduce(broken)
        assert np.isnan(broken[:128]).all()

        # Partial sums overflow here, whether the sum does or not: the hosts must tell the two apart.
        most = 2**31 - 1
        values = [most if rank % 2 == 0 else -most - 1 for rank in range(comm.world_size)]
        fits = -most - 1 <= sum(values) <= most
        large = np.full(300, values[comm.rank], np.int32)
        large[:128] = 1
        try:
            comm.allreduce(large)
            assert fits
            assert (large[128:] == sum(values)).all()
        except switchsum.SumOverflow:
            assert not fits
        assert (large[:128] == comm.world_size).all()
        comm.barrier()
        statistics = comm.statistics()
        assert statistics.rounds > 0
        # No queue drops on shared memory, so that no loss makes a window smaller there, unless other switches follow.
        driver = comm.queue.driver
        assert isinstance(driver, Driver)
        state = driver.engine.state
        is_in_memory = os.environ["SWITCHSUM_LINK"].startswith("shm:") and not state.core[0]["member"]["in_tree"]
        assert (np.asarray(state.paths)["window"]["loss_cut"] > 0).all() != is_in_memory
        if comm.rank == 0:
            Path(os.environ["RESULT"]).write_text(json.dumps({"repeats": statistics.repeats}))
    sys.stdout.write(f"digest {hash(tuple(digests))}\n")


if __name__ == "__main__":
    main()
    sys.exit(0)
