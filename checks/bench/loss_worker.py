"""One rank of the loss benchmark: `python -m checks.bench.loss_worker BYTES TURNS SHARE,... FILE`.

Rank 0 sets the switch's drop simulator before each run, and writes the seconds of each turn (a run for each share of
frames lost) as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import switchsum
from switchsum.connections.controller_client import ControllerClient
from switchsum.protocol import rpc

WARM_UP_TURNS = 1


def main(size: int, turns: int, shares: list[float], path: Path) -> None:
    """Measure; raises AssertionError when a sum is wrong."""
    seconds = []
    with switchsum.connect() as communicator, ControllerClient(os.environ["SWITCHSUM_CONTROLLER"]) as controller:
        ramp = ((np.arange(size) % 1000) / 1000 + 0.5).astype(np.float32)
        expected = ramp * np.float32(sum(range(1, communicator.world_size + 1)))
        array = np.empty_like(ramp)
        for turn in range(WARM_UP_TURNS + turns):
            taken = []
            for share in shares:
                if communicator.rank == 0:
                    controller.set_loss(rpc.LossRequest(ingress=share, egress=share))
                np.multiply(ramp, np.float32(communicator.rank + 1), out=array)
                communicator.barrier()
                started = time.perf_counter()
                communicator.allreduce(array)
                taken.append(time.perf_counter() - started)
                np.testing.assert_allclose(array, expected, rtol=1e-5)
            if turn >= WARM_UP_TURNS:
                seconds.append(taken)
        if communicator.rank == 0:
            statistics = communicator.statistics()
            print(f"{statistics.repeats:,} repeats in {statistics.rounds:,} rounds, {statistics.held:,} held")
            path.write_text(json.dumps(seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]) // 4, int(sys.argv[2]), [float(word) for word in sys.argv[3].split(",")], Path(sys.argv[4]))
