"""Small allreduces, one after the other, on a link whose loop is native code."""

from __future__ import annotations

import sys

from .conftest import Run

CODE = """
import numpy as np, switchsum
with switchsum.connect() as comm:
    array, large = np.empty((1, 3), np.float32), np.empty(5000, np.float32)
    one = comm.rank == 0
    for step in range(200):
        array[:] = [1e30 if one else -1e30, 2.0, step]
        large[:] = step
        handle = comm.allreduce_async(large) if step % 7 == 0 else None
        comm.allreduce(array)
        assert array.tolist() == [[0.0, 4.0, 2.0 * step]], (step, array)
        if handle is not None:
            handle.wait()
            assert (large == 2 * step).all(), (step, large)
    for step in range(3):
        array[:] = [1.0, np.nan if one else 2.0, 3.0]
        comm.allreduce(array)
        assert np.isnan(array).all(), array
        array[:] = [1.0, 2.0 if one else 3.0, 0.0]
        comm.allreduce(array, "average")
        assert array.tolist() == [[1.0, 2.5, 0.0]], array
    print("collectives", comm.statistics().collectives)
"""


def test_few_floats_are_added_exactly_whatever_else_is_in_flight(run: Run) -> None:
    done = run("-n", "2", command=[sys.executable, "-c", CODE])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("collectives 235") == 2
