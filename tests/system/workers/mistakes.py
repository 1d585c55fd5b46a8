"""Mistakes of a user, each of which every rank must hear of soon: `python mistakes.py KIND ...`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import numpy as np

import switchsum

RANK = int(os.environ["RANK"])
SOON_S = 5 * float(os.environ["SWITCHSUM_TEST_SLOWNESS"])
MISTAKES: dict[str, Callable[[switchsum.Communicator], object]] = {
    "dtype": lambda comm: comm.allreduce(np.ones(5_000, np.float32 if RANK else np.float16)),
    "shape": lambda comm: comm.allreduce(np.ones(5_000 + 300 * RANK, np.float32)),
    "operator": lambda comm: comm.allreduce(np.ones(5_000, np.float32), op="average" if RANK else "sum"),
    "order": lambda comm: comm.barrier() if RANK else comm.allreduce(np.ones(5_000, np.int32)),
}


REFUSED: dict[str, Callable[[switchsum.Communicator], object]] = {
    "refused dtype": lambda comm: comm.allreduce(np.ones(5_000, np.float64 if RANK else np.float32)),
    "refused root": lambda comm: comm.broadcast(np.ones(5_000, np.float32), root=2 if RANK else 0),
}


def expect(kind: str, error: type[Exception], action: Callable[[], object]) -> None:
    """Check that an action fails with an error soon."""
    started = time.monotonic()
    try:
        action()
    except error as seen:
        assert time.monotonic() - started < SOON_S
        sys.stdout.write(f" {kind}: {type(seen).__name__}: {seen}\n")
        return
    raise AssertionError(f"no {error.__name__}")


def main(kind: str) -> None:
    """Make one mistake."""
    if kind == "join":
        expect(kind, switchsum.UnknownJob, lambda: switchsum.connect(job="no such job"))
        expect(kind, switchsum.RankTaken, lambda: switchsum.connect(rank=7))
        expect(kind, switchsum.WorldSizeMismatch, lambda: switchsum.connect(world_size=3))
        expect(kind, switchsum.ControllerUnreachable, lambda: switchsum.connect(controller="127.0.0.1:9"))
        expect(kind, switchsum.TransportError, lambda: switchsum.connect(link="shm:nobody"))
        with switchsum.connect() as comm:  # none of it has spoilt anything
            comm.barrier()
            if RANK == 0:
                expect(kind, switchsum.RankTaken, lambda: switchsum.connect(rank=1))
            comm.barrier()
        return
    with switchsum.connect() as comm:
        comm.barrier()
        if kind in REFUSED:
            own = switchsum.UnsupportedDtype if kind == "refused dtype" else switchsum.UsageError
            expect(kind, own if RANK else switchsum.OperationMismatch, lambda: REFUSED[kind](comm))
            return
        expect(kind, switchsum.OperationMismatch, lambda: MISTAKES[kind](comm))
        expect(kind, switchsum.OperationMismatch, comm.barrier)  # and from then on


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(name)
