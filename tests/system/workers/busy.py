"""Rank 1 holds Python's lock for HOLD_S seconds, as a long import or `json.loads` does, while the others compute."""

from __future__ import annotations

import ctypes
import os
import time

import numpy as np

import switchsum

HOLD_S = float(os.environ["HOLD_S"])

with switchsum.connect() as communicator:
    values = np.ones(5000, np.float32)
    communicator.allreduce(values)
    if communicator.rank == 1:
        ctypes.PyDLL(None).usleep(int(HOLD_S * 1e6))  # unlike CDLL, which would give the lock back meanwhile
    else:
        time.sleep(HOLD_S)
    communicator.allreduce(values)
    assert (values == communicator.world_size**2).all()
    print("2 right sums", flush=True)
