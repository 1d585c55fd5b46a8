"""One rank that joins, adds four bytes and ends: `python -m checks.bench.start_worker PEER`."""

from __future__ import annotations

import sys

import numpy as np

from switchsum_lab.sweeps.peers import PEERS


def main(name: str) -> None:
    """Add once; raises AssertionError if the sum is wrong."""
    with PEERS[name]() as peer:
        array = np.ones(1, np.float32)
        peer.allreduce(array)
        if array[0] != peer.workers:
            raise AssertionError(f"{array[0]} instead of {peer.workers}")


if __name__ == "__main__":
    main(*sys.argv[1:])
