"""Allreduces until it is refused; says why."""

from __future__ import annotations

import time

import numpy as np

import switchsum

try:
    with switchsum.connect() as communicator:
        while True:
            communicator.allreduce(np.ones(5000, np.float32))
            time.sleep(0.005)
except switchsum.NotAdmitted as error:
    print(error, flush=True)
