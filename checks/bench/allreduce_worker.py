"""One rank of the allreduce benchmarks: `python -m checks.bench.allreduce_worker PEER SOCKET`.

All ranks start each run together, when `checks.bench.turns` says so at the SOCKET, and answer there.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from switchsum.laboratory.peers import PEERS, Array, Peer
from switchsum.laboratory.processor_time import session_seconds

SMALL_BYTES = 4096
SMALL_REPEATS = 200
"""Allreduces of small arrays are timed together, so many one after the other."""
PIECE = 250_000
"""Values that are filled in and checked at a time."""
TOLERANCES = {"switchsum-int16": 1e-2}
"""How far sums may be off, relative to the largest; 1e-5 where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of an allreduce took."""

    seconds: float
    """From the first rank's start to rank 0's end."""
    cpu_seconds: float
    """Of all processes of the job together: ranks, switch, and what they had the kernel do."""
    worker_seconds: float = 0.0
    """Of the ranks alone, likewise."""
    began: float = 0.0
    """When, by the machine's monotonic clock."""
    own_bytes: int
    """Most memory that rank 0 has used beside the array, less what it had used when it had joined; 0: no more."""


def measure(peer: Peer, size_bytes: int, tolerance: float, before_bytes: int) -> tuple[Run | None, float]:
    """Run once; return what it took, which rank 0 knows, and this process's own processor time.

    Raises AssertionError when a sum is wrong.
    """
    array = np.empty(size_bytes // 4, np.float32)
    repeats = SMALL_REPEATS if size_bytes <= SMALL_BYTES else 1
    for piece, ramp in pieces(array):
        np.multiply(ramp, np.float32(peer.rank + 1), out=piece)
    peer.barrier()
    own, worked = time.process_time(), session_seconds() if peer.rank == 0 else 0.0
    peer.barrier()
    started = time.perf_counter()
    peer.allreduce(array)
    _again(peer, array, repeats - 1, tolerance)
    seconds = time.perf_counter() - started
    peer.barrier()
    own, worked = time.process_time() - own, session_seconds() - worked if peer.rank == 0 else 0.0
    peer.barrier()
    if repeats == 1:
        factor = float(sum(range(1, peer.workers + 1)))
        for piece, ramp in pieces(array):
            np.testing.assert_allclose(piece, ramp * np.float32(factor), rtol=tolerance, atol=tolerance * factor)
    own_bytes = max(0, most_bytes() - before_bytes - size_bytes)
    run = Run(began=started, seconds=seconds / repeats, cpu_seconds=worked / repeats, own_bytes=own_bytes)
    return run if peer.rank == 0 else None, own / repeats


def pieces(array: Array) -> Iterator[tuple[Array, Array]]:
    """Yield an array piece by piece, each with what rank 0 puts there: little memory beside the array is used."""
    ramp = ((np.arange(PIECE) % 1000) / 1000 + 0.5).astype(np.float32)
    for start in range(0, len(array), PIECE):
        piece = array[start : start + PIECE]
        yield piece, ramp[: len(piece)]


def most_bytes() -> int:
    """Return the most memory that this process has used so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _again(peer: Peer, array: Array, times: int, tolerance: float) -> None:
    for _ in range(times):
        array[:] = 1.0
        peer.allreduce(array)
        if abs(array[0] - peer.workers) > tolerance * peer.workers:
            raise AssertionError(f"{array[0]} instead of {peer.workers}")


def main(peer_name: str, path: str) -> None:
    """Run once for each line of the socket at `path`, with an array of as many bytes, and answer with a line."""
    tolerance = TOLERANCES.get(peer_name, 1e-5)
    with PEERS[peer_name]() as peer, socket.socket(socket.AF_UNIX) as turns:
        before_bytes = most_bytes()
        turns.connect(path)
        with turns.makefile("rw") as lines:
            for line in lines:
                run, own_seconds = measure(peer, int(line), tolerance, before_bytes)
                said = {"run": None if run is None else asdict(run), "own_seconds": own_seconds}
                lines.write(json.dumps(said) + "\n")
                lines.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
