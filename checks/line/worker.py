"""One rank of a cell: `python -m checks.line.worker BYTES SPENT FILE`.

Two sums of SPENT bytes empty the token buckets and let ranks see the path as it is then.  Two calls follow one another,
and a third one follows a pause and another such sum.  Rank 0 writes the seconds of each call, with the repeats and the
contributions of all ranks.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np

import switchsum
from switchsum_host.api.communicator import Communicator

PAUSE_S: Final = 1.0


def timed(communicator: Communicator, values: int) -> dict[str, float]:
    """Return how long a call took, and what all ranks sent for it; raises AssertionError for a wrong sum."""
    array = np.full(values, communicator.rank + 1, np.float32)
    communicator.barrier()  # a rank may still wait for the last results of the sum before
    before = communicator.statistics()
    began = time.perf_counter()
    communicator.allreduce(array)
    seconds = time.perf_counter() - began
    after = communicator.statistics()
    assert (array == sum(range(1, communicator.world_size + 1))).all()
    repeats = after.repeats - before.repeats
    sent = np.array([repeats, after.frames_sent - before.frames_sent - repeats], np.int64)
    communicator.allreduce(sent)
    return {"seconds": seconds, "repeats": int(sent[0]), "contributions": int(sent[1])}


def main(octets: int, spent: int, path: Path) -> None:
    """Run the calls."""
    with switchsum.connect() as communicator:
        spend = np.ones(spent // 4, np.float32)  # blocks of zeros would not travel
        for _ in range(2):
            communicator.allreduce(spend)
        calls = [timed(communicator, octets // 4) for _ in range(2)]
        time.sleep(PAUSE_S)
        communicator.allreduce(spend)
        calls.append(timed(communicator, octets // 4))
        if communicator.rank == 0:
            path.write_text(json.dumps(calls))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
