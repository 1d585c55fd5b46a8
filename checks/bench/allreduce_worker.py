"""One rank of the allreduce benchmarks: `python -m checks.bench.allreduce_worker PEER BYTES,BYTES,... RUNS FILE`.

All ranks start each run together; rank 0 writes what it measured to FILE as JSON, a list of `Run` for each size.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from checks.bench.backends import PEERS, Array, Peer

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
    own_bytes: int
    """Most memory that rank 0 has used beside the array, less what it had used when it had joined; 0: no more."""


def cpu_seconds() -> float:
    """Return for how long the processes of this one's session have worked: ranks, switch and what starts them."""
    session, total = str(os.getsid(0)), 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if fields[3] == session:
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def measure(peer: Peer, size_bytes: int, runs: int, tolerance: float) -> list[Run]:
    """Return what each run took; raises AssertionError when a sum is wrong."""
    before_bytes = most_bytes()
    array = np.empty(size_bytes // 4, np.float32)
    repeats = SMALL_REPEATS if size_bytes <= SMALL_BYTES else 1
    taken = []
    for run in range(1 + runs):  # the first one warms up
        for piece, ramp in pieces(array):
            np.multiply(ramp, np.float32(peer.rank + 1), out=piece)
        worked = cpu_seconds() if peer.rank == 0 else 0.0
        peer.barrier()
        started = time.perf_counter()
        peer.allreduce(array)
        _again(peer, array, repeats - 1, tolerance)
        seconds = time.perf_counter() - started
        peer.barrier()
        worked = cpu_seconds() - worked if peer.rank == 0 else 0.0
        peer.barrier()
        if repeats == 1:
            factor = float(sum(range(1, peer.workers + 1)))
            for piece, ramp in pieces(array):
                np.testing.assert_allclose(piece, ramp * np.float32(factor), rtol=tolerance, atol=tolerance * factor)
        if run:
            own_bytes = max(0, most_bytes() - before_bytes - size_bytes)
            taken.append(Run(seconds=seconds / repeats, cpu_seconds=worked / repeats, own_bytes=own_bytes))
    return taken


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


def main(peer_name: str, sizes: str, runs: int, path: Path) -> None:
    """Measure all sizes in one job."""
    tolerance = TOLERANCES.get(peer_name, 1e-5)
    with PEERS[peer_name]() as peer:
        taken = [measure(peer, int(size), runs, tolerance) for size in sizes.split(",")]
        if peer.rank == 0:
            path.write_text(json.dumps([[asdict(run) for run in of_size] for of_size in taken]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
