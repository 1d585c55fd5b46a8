"""One rank that adds an array again and again: `python -m checks.line.calls BYTES CALLS FILE`.

Rank 0 writes the seconds of each call.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import switchsum


def main(octets: int, calls: int, path: Path) -> None:
    """Run the calls."""
    with switchsum.connect() as communicator:
        array, seconds = np.empty(octets // 4, np.float32), []
        for _ in range(calls):
            array.fill(communicator.rank + 1)
            began = time.perf_counter()
            communicator.allreduce(array)
            seconds.append(time.perf_counter() - began)
            assert (array == sum(range(1, communicator.world_size + 1))).all()
        if communicator.rank == 0:
            path.write_text(json.dumps(seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
