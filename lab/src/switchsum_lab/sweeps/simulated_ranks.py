"""Collectives of several steps in virtual time: each rank is a thread with a `Communicator` as users have it.

No process is started: the ranks reach the simulation by its socket, as those of `switchsum run --virtual-time` do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from switchsum_host.compress.base import Compressor
from switchsum_host.compress.packed import Packed
from switchsum_host.compress.thc import Thc, levels_for
from switchsum_host.connect import VIRTUAL as LINK
from switchsum_host.connect import connect
from switchsum_lab.simulation import jobs, sums
from switchsum_lab.simulation.ranks import Ranks
from switchsum_lab.simulation.scenario import Scenario, jobs_of
from switchsum_lab.sweeps import lateness, supports
from switchsum_lab.sweeps.axes import Cell, Impossible
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_protocol.errors import LocalError, UsageError

MOST_RANKS: Final = 64
"""Each is a thread."""
_CONTROLLER: Final = "unix:virtual-time-has-no-controller"
COMPRESSORS: Final[Mapping[str, Callable[[], Compressor]]] = MappingProxyType(
    {"int10": Packed, "thc": Thc, "thc:4": partial(Thc, bits=4)}
)
"""Collectives that compress all values."""
Call = Callable[[Any, Any], object]
"""Takes a communicator and an array, which gets the sum."""


def check(cell: Cell) -> None:
    """Raise Impossible if a collective cannot have so many ranks."""
    if cell.collective in ("thc", "thc:4"):
        try:
            levels_for(cell.workers)
        except UsageError as error:
            raise Impossible("workers", str(error)) from error


def call_of(cell: Cell, lanes: str, block: int) -> Call:
    """Return the collective of a cell, for virtual and for real ranks."""
    if cell.collective == "topk":
        return lambda comm, array: comm.allreduce_topk(array, int(np.count_nonzero(array)), lanes=lanes)
    if cell.collective == "reduce_scatter":
        return lambda comm, array: comm.reduce_scatter(array, out=_part(array, comm.rank, comm.world_size), lanes=lanes)
    if cell.collective == "allgather":
        return lambda comm, array: comm.allgather(
            _part(array, comm.rank, comm.world_size).copy(), out=array.reshape(comm.world_size, -1)
        )
    if cell.collective in COMPRESSORS:
        make = COMPRESSORS[cell.collective]
        return lambda comm, array: np.multiply(make().exchange(comm, "array", array).mean, comm.world_size, out=array)
    if cell.fusion:
        return lambda comm, array: comm.allreduce(array, lanes=lanes, block=block)
    return lambda comm, array: comm.allreduce(array, lanes=lanes)


def _part(array: Any, rank: int, ranks: int) -> Any:
    """Return the part of an array that belongs to a rank."""
    return array.reshape(ranks, -1)[rank]


def run(cell: Cell, wanted: Scenario, block: int, arrays: Sequence[supports.Array], total: supports.Array) -> Outcome:
    """Run a cell on these arrays; raises SwitchsumError."""
    network = jobs.build(
        wanted.planned, wanted.conditions, lanes=wanted.lanes_per_frame, mtu=wanted.mtu, seed=wanted.seed
    )
    [job] = jobs_of(network, replace(wanted, pauses=() if cell.late_ranks else wanted.pauses))
    call = call_of(cell, wanted.lanes, block)
    late = lateness.drawn(cell.late_ranks, len(arrays), wanted.seed)
    if cell.collective == "allgather":
        total = np.concatenate([_part(array, rank, len(arrays)) for rank, array in enumerate(arrays)])
    with tempfile.TemporaryDirectory(prefix="switchsum-sweep-") as folder:
        ranks = Ranks(job, folder)
        with ThreadPoolExecutor(wanted.workers) as threads:
            futures = [
                threads.submit(_rank, ranks.path, rank, cell, wanted, call, array, total, late[rank])
                for rank, array in enumerate(arrays)
            ]
            ranks.serve(lambda: _has_failed(futures), lambda rank: futures[rank].done())
            took = [future.result() for future in futures]
    return Outcome.of(
        max(seconds for seconds, _, _ in took),
        cell.bytes,
        sent_mb=sum(sent for _, sent, _ in took) / len(took) / 1e6,
        frames=network.world.frames_moved,
        repeats=job.repeats,
        late_ms=None if cell.late_ranks is None else 1e3 * max(late),
        sum_error=max(error for _, _, error in took),
        right=True if is_exact(cell, wanted.lanes) else None,
    )


def _has_failed(futures: list[Future[Any]]) -> bool:
    return any(future.done() and future.exception() is not None for future in futures)


def is_exact(cell: Cell, lanes: str) -> bool:
    """Tell whether a cell's sums are right to the last bits of a float32."""
    return lanes == "int32" and cell.collective not in COMPRESSORS


def _rank(
    path: str,
    rank: int,
    cell: Cell,
    wanted: Scenario,
    call: Call,
    values: supports.Array,
    total: supports.Array,
    late_s: float,
) -> tuple[float, int, float]:
    """Run one rank; return the virtual seconds of its last call, the bytes that it sent, and the sum's error."""
    with connect(
        controller=_CONTROLLER,
        job="sweep",
        rank=rank,
        world_size=wanted.workers,
        link=f"{LINK}{path}",
        seed=wanted.seed,
    ) as comm:
        for _ in range(cell.calls):
            array = values.copy()
            began, before = comm.now(), comm.statistics().bytes_sent
            if late_s:
                comm.compute(late_s)
            call(comm, array)
        if cell.collective == "reduce_scatter":
            array, total = (_part(one, rank, comm.world_size) for one in (array, total))
        seconds, sent = comm.now() - began, comm.statistics().bytes_sent - before
        if is_exact(cell, wanted.lanes) and not np.allclose(array, total, rtol=1e-5, atol=1e-3):
            raise LocalError(f"rank {rank} has a wrong sum")
        return seconds, sent, sums.error_of(array, total)
