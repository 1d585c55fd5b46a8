"""Adds again and again; with an argument rank 1 loses a link in the midst of it, until all ranks do without."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

import switchsum
from switchsum.cli import main

TURNS, MOST_TURNS = 40, 5000
HOW = {
    "down": [["ip", "link", "set", "sum1", "down"]],
    "mtu": [["ip", "link", "set", "sum1", "mtu", "600"]],
}

communicator = switchsum.connect()
rank, size = communicator.rank, communicator.world_size
loses = len(sys.argv) > 1
ramp = np.arange(100_000, dtype=np.int32)
if loses and rank == 1:
    threading.Timer(0.05, lambda: [subprocess.check_call(command) for command in HOW[sys.argv[1]]]).start()
for turn in range(MOST_TURNS if loses else TURNS):
    values = ramp * (rank + turn)
    communicator.allreduce(values)
    assert np.array_equal(values, ramp * sum(range(turn, turn + size)))
    know = np.array([len(communicator.queue.driver.transport.down)], np.int32)  # type: ignore[attr-defined]
    communicator.allreduce(know)
    if loses and know[0] == size:
        break
if rank == 0:
    sys.argv = ["switchsum", "job", "show", os.environ["SWITCHSUM_JOB"], "--json"]
    with (
        Path(os.environ["RESULT"]).open("w") as file,
        contextlib.redirect_stdout(file),
        contextlib.suppress(SystemExit),
    ):
        main()
communicator.barrier()
communicator.close()
