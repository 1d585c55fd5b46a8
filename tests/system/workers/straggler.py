"""Allreduces; then rank SLOW does something else until the file STOP is there, and all others wait for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

import switchsum

STOP = Path(os.environ["STOP"])

with switchsum.connect() as communicator:
    for _ in range(10):
        communicator.allreduce(np.ones(5000, np.float32))
    while communicator.rank == int(os.environ["SLOW"]) and not STOP.exists():
        time.sleep(0.05)
    communicator.allreduce(np.ones(5000, np.float32))
print("10 right sums", flush=True)
