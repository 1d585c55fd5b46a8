"""Adds again and again; with an argument rank 1 loses a link in the midst of it, until all ranks do without."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import numpy as np

import switchsum
from switchsum.cli.app import main
from switchsum_host.links.watching import WatchingDriver

TURNS: Final = 40
MOST_TURNS: Final = 500
"""Turns in which all ranks have to hear that the link is gone: a worker looks at its links ten times a second."""
HOW = {
    "down": [["ip", "link", "set", "sum1", "down"]],
    "mtu": [["ip", "link", "set", "sum1", "mtu", "600"]],
}

taken = threading.Event()


def take() -> None:
    """Take the link; that waits for whoever else on this machine makes or ends network namespaces."""
    try:
        for command in HOW[sys.argv[1]]:
            subprocess.check_call(command)
    finally:
        taken.set()


communicator = switchsum.connect()
rank, size = communicator.rank, communicator.world_size
loses = len(sys.argv) > 1
driver = communicator.queue.driver
assert isinstance(driver, WatchingDriver)
transport = driver.transport
ramp = np.arange(100_000, dtype=np.int32)
if loses and rank == 1:
    threading.Timer(0.05, take).start()
turn = without = 0
while without < MOST_TURNS if loses else turn < TURNS:
    values = ramp * (rank + turn)
    communicator.allreduce(values)
    assert np.array_equal(values, ramp * sum(range(turn, turn + size)))
    know = np.array([len(transport.down), taken.is_set()], np.int32)
    communicator.allreduce(know)
    if loses and know[0] == size:
        break
    turn += 1
    without += know[1]
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
