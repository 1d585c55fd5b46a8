"""How many Mbit/s of values a job's links carry, for docs/results/trees.md: a command for `switchsum run`."""

from __future__ import annotations

import statistics
import time

import numpy as np

import switchsum

VALUES, TURNS = 1_000_000, 7

with switchsum.connect() as communicator:
    values = np.empty(VALUES, np.int32)
    seconds = []
    for _ in range(TURNS):
        values[:] = 1
        communicator.barrier()
        began = time.perf_counter()
        communicator.allreduce(values)
        seconds.append(time.perf_counter() - began)
        assert (values == communicator.world_size).all()
    if communicator.rank == 0:
        repeats = communicator.statistics().repeats
        print(f"{values.nbytes * 8 / statistics.median(seconds) / 1e6:.1f} Mbit/s of values, {repeats} repeats")
