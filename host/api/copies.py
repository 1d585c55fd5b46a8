"""Collectives that copy bits: broadcast and allgather, which are allreduces to the engine.

Where one rank alone has values (a broadcast's root, each rank's part of an allgather) the others contribute blocks of
zeros, which do not travel, and its bytes, added to nothing in lanes of 8 bits, come through whatever they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ..engine.operation import Operation
from .collectives import check_array, check_out, check_root, check_written
from .handle import Handle

if TYPE_CHECKING:
    from .calls import CollectiveCalls

Array = npt.NDArray[Any]

_BYTE: Final = np.dtype(np.int8)
"""What bits travel as."""


def broadcast(array: Array, root: int, comm: CollectiveCalls) -> Handle:
    """Prepare a broadcast in place, bit by bit; raises UsageError or UnsupportedDtype."""
    check_root(root, comm)
    if comm.rank == root:
        check_array("broadcast", array)
        octets = _bytes_of(array, copy=not array.flags.writeable)
        finish = lambda: array  # noqa: E731
    else:
        check_written("broadcast", array)
        # Not the array's own memory, which ranks of one machine may share.
        octets = np.zeros(array.nbytes, _BYTE)
        finish = lambda: _restored(octets, array)  # noqa: E731
    bits = _bits(f"broadcast from rank {root}", octets, array, part=array.nbytes, root=root)
    return Handle(comm, comm._prepare(bits), octets, finish)


def allgather(array: Array, comm: CollectiveCalls, *, out: Array | None = None) -> Handle:
    """Prepare the gathering of all ranks' arrays, bit by bit, along a new first axis; raises UsageError."""
    check_array("allgather", array)
    shape = (comm.world_size, *array.shape)
    parts = np.zeros(shape, array.dtype)  # not the caller's memory, which ranks of one machine may share
    result = parts if out is None else check_out("allgather", out, shape, array.dtype)
    parts[comm.rank] = array
    octets = _bytes_of(parts)

    def finish() -> Array:
        return _restored(octets, result)

    return Handle(comm, comm._prepare(_bits("allgather", octets, array, part=array.nbytes)), octets, finish)


def _bytes_of(array: Array, *, copy: bool = False) -> Array:
    """Return an array's bytes: its own memory or a copy."""
    plain = array.view(np.ndarray)
    if copy or not plain.flags.c_contiguous:
        plain = np.array(plain, order="C")
    octets: Array = plain.reshape(-1).view(_BYTE)
    return octets


def _restored(octets: Array, array: Array) -> Array:
    """Write bytes to the array that they are of, where they are not already."""
    if not np.may_share_memory(octets, array):
        array.view(np.ndarray)[...] = octets.view(array.dtype).reshape(array.shape)
    return array


def _bits(kind: str, octets: Array, array: Array, *, part: int, root: int = 0) -> Operation:
    """Return an operation in which each rank gives its part to all others, so many bytes; the first one is `root`'s."""
    dtype = array.dtype.name + array.dtype.byteorder.replace("=", "").replace("|", "")
    return Operation.of(octets, kind, shape=array.shape, dtype_name=dtype, part=part, root=root, gathers=True)
