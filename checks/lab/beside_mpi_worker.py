"""One rank of `checks.lab.beside_mpi`: the same sparse arrays over switchsum, or over mpi4py, timed back to back."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import switchsum
from checks.lab.sparse_ways import VALUES, recorded
from switchsum_lab.sweeps.sparse_hosts import Octets, Stream, sparcml_split

Array = npt.NDArray[np.float32]

CALLS: Final = 20
"""Calls in a row whose time is measured together. As many before them empty the buckets of the links."""
BLOCKS: Final = 3
LOGISTIC: Final = "logistic"
"""Stands in place of a density for the recorded logistic regression, of which each call adds the next step."""
STEPS: Final = 8
"""Steps of the recording that calls take in turn."""
FEATURES: Final = 262_144
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Fields of /proc/PID/stat behind the name: the parent, and ticks in a program and in the kernel."""


class MpiPeers:
    """Messages between ranks over mpi4py, as `sparse_hosts.Peers`."""

    def __init__(self, mpi: Any) -> None:
        self._mpi, self._comm = mpi, mpi.COMM_WORLD
        self.rank: int = self._comm.Get_rank()
        self.ranks: int = self._comm.Get_size()

    def swap(self, outgoing: Mapping[int, Octets], sources: Sequence[int]) -> dict[int, Octets]:
        """Send and receive; a message's size is known when it begins to arrive."""
        sent = [self._comm.Isend([octets, self._mpi.BYTE], dest=rank) for rank, octets in outgoing.items()]
        came = {}
        for rank in sources:
            status = self._mpi.Status()
            message = self._comm.Mprobe(source=rank, status=status)
            came[rank] = np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
            message.Recv([came[rank], self._mpi.BYTE])
        self._mpi.Request.Waitall(sent)
        return came

    def gathered(self, own: Stream) -> Stream:
        """Return the sum of all ranks' pairs, which MPI_Allgatherv brings."""
        packed, counts = own.pack(), np.empty(self.ranks, np.int64)
        self._comm.Allgather(np.array([packed.size], np.int64), counts)
        came = np.empty(int(counts.sum()), np.uint8)
        self._comm.Allgatherv(packed, [came, counts, self._mpi.BYTE])
        streams = [Stream.parse(part) for part in np.split(came, np.cumsum(counts)[:-1])]
        while len(streams) > 1:
            streams = [a + b for a, b in zip(streams[::2], streams[1::2], strict=False)] + streams[len(streams) & ~1 :]
        return streams[0]


def drawn(density: str, rank: int, workers: int) -> tuple[list[Stream], int]:
    """Return the arrays that a rank adds in turn, and how many values they have."""
    if density == LOGISTIC:
        chosen, size = [recorded(workers, step)[rank] for step in range(STEPS)], FEATURES
    else:
        draw, count = np.random.default_rng([7, rank]), round(float(density) * VALUES)
        chosen, size = [np.sort(draw.choice(VALUES, count, replace=False)) for _ in range(2)], VALUES
    values = np.random.default_rng([8, rank])
    return [Stream(one.astype(np.uint32), values.standard_normal(len(one), np.float32)) for one in chosen], size


@contextmanager
def ours() -> Iterator[tuple[int, int, Callable[[], object], dict[str, Callable[[Stream, int], Array]]]]:
    """Join the job of `switchsum run`; yield rank, workers, barrier and ways, which return the dense sum."""
    with switchsum.connect() as comm:

        def added(own: Stream, size: int) -> Any:
            return comm.allreduce_sparse(own.indices, own.values, size)

        yield comm.rank, comm.world_size, comm.barrier, {"switchsum": added}


@contextmanager
def mpis() -> Iterator[tuple[int, int, Callable[[], object], dict[str, Callable[[Stream, int], Any]]]]:
    """Join the job of `mpirun`; yield the same."""
    from mpi4py import MPI

    peers = MpiPeers(MPI)
    ways: dict[str, Callable[[Stream, int], Any]] = {
        "MPI, SparCML's split": lambda own, size: sparcml_split(peers, own, size),
        "MPI_Allgatherv of pairs": lambda own, _: peers.gathered(own),
    }
    yield peers.rank, peers.ranks, MPI.COMM_WORLD.Barrier, ways


def switch_seconds() -> float:
    """Return the processor time of the switch that `switchsum run` has started beside this rank; 0: there is none."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if b"switchsum" in arguments and b"switch" in arguments and int(fields[_PARENT]) == os.getppid():
            ticks += int(fields[_USER]) + int(fields[_SYSTEM])
    return ticks / os.sysconf("SC_CLK_TCK")


def to_dense(found: Any, size: int) -> Array:
    """Return the dense array of what a way has returned."""
    if isinstance(found, switchsum.SparseSum):
        return found.to_dense()
    if isinstance(found, Stream):
        return found.to_dense(0, size)
    parts, bounds = found, [size * part // len(found) for part in range(len(found) + 1)]
    return np.concatenate(
        [
            part.to_dense(first, last) if isinstance(part, Stream) else part
            for part, first, last in zip(parts, bounds, bounds[1:], strict=False)
        ]
    )


def main() -> None:
    """Time each way, and leave what this rank saw in a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=("ours", "mpi"), required=True)
    parser.add_argument("--density", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with (ours if options.peer == "ours" else mpis)() as (rank, workers, barrier, ways):
        streams, size = drawn(options.density, rank, workers)
        total = np.sum([drawn(options.density, one, workers)[0][0].to_dense(0, size) for one in range(workers)], axis=0)
        rows = {}
        for name, call in ways.items():
            np.testing.assert_allclose(to_dense(call(streams[0], size), size), total, rtol=1e-4, atol=1e-4)
            took = []
            for _ in range(BLOCKS):
                barrier()
                for number in range(CALLS):
                    call(streams[number % len(streams)], size)
                switched, worked, began = switch_seconds(), time.process_time(), time.perf_counter()
                for number in range(CALLS):
                    call(streams[number % len(streams)], size)
                seconds, worked = time.perf_counter() - began, time.process_time() - worked
                barrier()
                took.append((seconds, worked, switch_seconds() - switched))
            rows[name] = [[one / CALLS for one in each] for each in took]
        options.out.with_name(f"{options.out.name}.{rank}").write_text(json.dumps(rows))
        barrier()


if __name__ == "__main__":
    main()
