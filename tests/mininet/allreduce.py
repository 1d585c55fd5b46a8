"""A worker: sums that are known beforehand, and what the host's own shell was told."""

from __future__ import annotations

import os

import numpy as np

import switchsum

with switchsum.connect() as communicator:
    size = communicator.world_size
    values = np.arange(100_000, dtype=np.int32) + communicator.rank
    communicator.allreduce(values)
    assert (values == np.arange(100_000) * size + size * (size - 1) // 2).all()
if os.environ["RANK"] == "0":
    print(f"{size} workers agree")
