"""Who an allreduce is measured with: ourselves, torch's gloo, Open MPI; each as one rank of a job sees it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_IN_PLACE = ctypes.c_void_p(1)
"""MPI_IN_PLACE of Open MPI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One rank's side of a job that is under way."""

    rank: int
    workers: int
    allreduce: Callable[[Array], object]
    """Sum in place."""
    barrier: Callable[[], object]
    comm: Any = None
    """Our `Communicator`, where it is ours."""


@contextmanager
def with_switchsum() -> Iterator[Peer]:
    """Join the job of `switchsum run`."""
    import switchsum  # noqa: PLC0415 - each peer is imported by its own ranks alone

    with switchsum.connect() as joined:
        yield Peer(
            rank=joined.rank,
            workers=joined.world_size,
            allreduce=joined.allreduce,
            barrier=joined.barrier,
            comm=joined,
        )


@contextmanager
def with_gloo() -> Iterator[Peer]:
    """Join a process group of torch's; where to meet comes from the environment, as torchrun sets it."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    dist.init_process_group("gloo")
    yield Peer(
        rank=dist.get_rank(),
        workers=dist.get_world_size(),
        allreduce=lambda array: dist.all_reduce(torch.from_numpy(array)),
        barrier=dist.barrier,
    )
    dist.destroy_process_group()


@contextmanager
def with_openmpi() -> Iterator[Peer]:
    """Call Open MPI's library as C programs do; `mpirun` has started this process."""
    library = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
    world, kind, operator = (
        ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, name)))
        for name in ("ompi_mpi_comm_world", "ompi_mpi_float", "ompi_mpi_op_sum")
    )
    library.MPI_Init(None, None)

    def allreduce(array: Array) -> None:
        data = ctypes.c_void_p(array.ctypes.data)
        if library.MPI_Allreduce(_IN_PLACE, data, ctypes.c_int(array.size), kind, operator, world):
            raise RuntimeError("MPI_Allreduce failed")

    yield Peer(
        rank=int(os.environ["OMPI_COMM_WORLD_RANK"]),
        workers=int(os.environ["OMPI_COMM_WORLD_SIZE"]),
        allreduce=allreduce,
        barrier=lambda: library.MPI_Barrier(world),
    )
    library.MPI_Finalize()


PEERS = {
    "switchsum": with_switchsum,
    "gloo": with_gloo,
    "openmpi": with_openmpi,
}


@contextmanager
def with_member() -> Iterator[Peer]:
    """Join the job of `switchsum run --baseline`."""
    from switchsum_lab.protocols.member import join  # noqa: PLC0415

    with join() as member:
        yield Peer(rank=member.rank, workers=member.world_size, allreduce=member.allreduce, barrier=member.barrier)
