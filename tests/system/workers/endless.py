"""Allreduces until the file STOP is there; every rank checks every sum, and prints how many there were."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

import switchsum

STOP = Path(os.environ["STOP"])
REST_S = float(os.environ.get("REST_S", "0.005"))
"""After every allreduce: a test that watches this for seconds would keep every core busy."""

SWITCH_S = float(os.environ.get("SWITCH_S", 40 * float(os.environ["SWITCHSUM_TEST_SLOWNESS"])))
"""A switch that is killed may take longer to come back here than it may elsewhere."""

OUTLIVE = os.environ.get("OUTLIVE")
"""A folder in which each rank that an error ends leaves a file, and waits for the others' to be there."""


def outlive(communicator: switchsum.Communicator, folder: str) -> None:
    """Stay until every rank has an error of its own: who hears that another one has gone is told that instead."""
    Path(folder, f"rank{communicator.rank}").touch()
    while len(list(Path(folder).glob("rank*"))) < communicator.world_size:
        time.sleep(0.05)


with switchsum.connect(switch_timeout_s=SWITCH_S) as communicator:
    rounds, over = 0, np.zeros(1, np.float32)
    expected = sum(range(1, communicator.world_size + 1))
    try:
        while not over[0]:
            values = np.full(5000, communicator.rank + 1, np.float32)
            communicator.allreduce(values)
            assert (values == expected).all()
            time.sleep(REST_S)
            over[0] = STOP.exists()
            communicator.allreduce(over)
            rounds += 1
    except switchsum.SwitchsumError:
        if OUTLIVE is not None:
            outlive(communicator, OUTLIVE)
        raise
    print(f"{rounds} right sums", flush=True)
