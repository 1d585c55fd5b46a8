"""Like endless.py, but going on when another rank is lost: without it, or with whoever takes its place."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

import switchsum

STOP = Path(os.environ["STOP"])
START_S = 30 * float(os.environ["SWITCHSUM_TEST_SLOWNESS"])
"""As long as a new process may take to start."""

communicator = switchsum.connect()
if os.environ.get("FORKS") and os.fork() == 0:
    # Like a data loader's process, which outlives its rank for a while and must not keep the rank's connection.
    os.close(1)
    os.close(2)
    while not STOP.exists():
        time.sleep(0.1)
    os._exit(0)
rounds, over = 0, False
while not over:
    try:
        values = np.full(5000, communicator.rank + 1, np.float32)
        communicator.allreduce(values)
        assert (values == sum(range(1, communicator.world_size + 1))).all()
        end = np.full(1, STOP.exists(), np.float32)
        over = bool(communicator.allreduce(end)[0])
        rounds += 1
        time.sleep(0.005)  # as endless.py rests, so that the others can start
    except switchsum.WorkerLost as lost:
        print(f"lost rank {lost.rank}", flush=True)
        if os.environ["THEN"] == "reform":
            communicator = communicator.reform()
        else:
            communicator.close()
            communicator = switchsum.connect(timeout_s=START_S)
communicator.close()
print(f"{rounds} right sums", flush=True)
