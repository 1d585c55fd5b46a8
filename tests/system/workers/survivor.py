"""Like endless.py, but going on when another rank is lost: without it, or with whoever takes its place."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import switchsum

STOP = Path(os.environ["STOP"])
START_S = 30 * float(os.environ["SWITCHSUM_TEST_SLOWNESS"])
"""As long as a new process may take to start."""

communicator = switchsum.connect()
rounds, over = 0, False
while not over:
    try:
        values = np.full(5000, communicator.rank + 1, np.float32)
        communicator.allreduce(values)
        assert (values == sum(range(1, communicator.world_size + 1))).all()
        end = np.full(1, STOP.exists(), np.float32)
        over = bool(communicator.allreduce(end)[0])
        rounds += 1
    except switchsum.WorkerLost as lost:
        print(f"lost rank {lost.rank}", flush=True)
        if os.environ["THEN"] == "reform":
            communicator = communicator.reform()
        else:
            communicator.close()
            communicator = switchsum.connect(timeout_s=START_S)
communicator.close()
print(f"{rounds} right sums", flush=True)
