"""Who an allreduce is measured with: ourselves, torch's gloo, Open MPI; each as one rank of a job sees it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.launch.wires import WORKER_INTERFACE

Array = npt.NDArray[np.float32]

TCP_HEADERS_BYTES: Final = 66
"""Ethernet, IPv4 and TCP with time stamps."""
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
    counts: Callable[[], Counts | None] = lambda: None
    """Return what it has sent so far; None where nobody counts that."""
    is_sent_later: bool = False
    """When a call returns, the kernel may still have to send a part of what it has taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a rank has sent since it began."""

    bytes_sent: int
    """With all headers from Ethernet's on."""
    frames_sent: int
    repeats: int
    left_out: int = 0
    """This rank's contributions that sums lack."""

    def since(self, before: Counts) -> Counts:
        """Return what was sent in between."""
        return Counts(**{name: max(getattr(self, name) - getattr(before, name), 0) for name in NAMES})


NAMES: Final = tuple(one.name for one in fields(Counts))


def tcp_counts() -> Counts | None:
    """Return what the kernel's TCP has sent in this rank's own network namespace; None: it has none.

    A segment that leaves through segmentation offload is one packet to the interface, whose count has its headers once.
    TCP counts segments as the wire would carry them (`OutSegs`, `RetransSegs` of RFC 4022), so the rest of the headers
    is added.
    """
    rows = Path("/proc/self/net/dev").read_text().splitlines()
    sent = {name.strip(): row.split() for name, _, row in (line.partition(":") for line in rows[2:])}
    if WORKER_INTERFACE not in sent:
        return None
    tcp = [line.split() for line in Path("/proc/self/net/snmp").read_text().splitlines() if line.startswith("Tcp:")]
    counted = dict(zip(tcp[0][1:], map(int, tcp[1][1:]), strict=True))
    octets, packets = (int(sent[WORKER_INTERFACE][column]) for column in (8, 9))
    segments = max(counted["OutSegs"] + counted["RetransSegs"], packets)
    return Counts(
        bytes_sent=octets + TCP_HEADERS_BYTES * (segments - packets),
        frames_sent=segments,
        repeats=counted["RetransSegs"],
    )


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
            counts=lambda: Counts(**{name: getattr(joined.statistics(), name, 0) for name in NAMES}),
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
        counts=tcp_counts,
        is_sent_later=True,
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
        counts=tcp_counts,
        is_sent_later=True,
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
        yield Peer(
            rank=member.rank,
            workers=member.world_size,
            allreduce=member.allreduce,
            barrier=member.barrier,
            counts=lambda: _of_member(member.statistics()),
        )


def _of_member(counted: Mapping[str, int]) -> Counts:
    more = {name: counted.get(name, 0) for name in ("repeats", "left_out")}
    return Counts(bytes_sent=counted["bytes"], frames_sent=counted["frames"], **more)
