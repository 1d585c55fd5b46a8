"""Collectives in which ranks have parts of their own: reduce, reduce_scatter, broadcast, allgather.

If only one rank wants the values of a block, the switch sends lanes to this rank alone.  This is so for a reduce's root
and for each part of a reduce_scatter.  If one rank has the values already, the switch sends lanes to all others.

If only one rank has values, as in a broadcast and in each part of an allgather, the others contribute blocks of zeros,
which do not travel.  The rank's bytes are added to zeros in lanes of 8 bits.  So they arrive unchanged, of any dtype.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from switchsum_protocol.errors import UsageError

from ..engine.operation import Operation, described
from .collectives import (
    Array,
    Collective,
    Options,
    Ranks,
    check_array,
    check_written,
    is_integer,
    native_values,
    reduction,
    returned,
)

_BYTE: Final = np.dtype(np.int8)
"""Dtype in which bits travel."""


def reduce(array: Array, root: int, how: Options, ranks: Ranks) -> Collective:
    """Return an allreduce whose result only `root` keeps; raises UsageError or UnsupportedDtype."""
    check_root(root, ranks)
    kind = f"reduce to rank {root}"
    if ranks.rank == root:
        check_written("reduce", array)
        values = native_values(array, how)
        return reduction(kind, how, values, array, lambda: returned(values, array), part=array.size, root=root)
    check_array("reduce", array)
    values = native_values(array, how, copy=True)
    return reduction(kind, how, values, array, lambda: array, part=array.size, root=root)


def reduce_scatter(array: Array, how: Options, ranks: Ranks, *, out: Array | None = None) -> Collective:
    """Return an allreduce of which each rank keeps its part; raises UsageError or UnsupportedDtype."""
    check_array("reduce_scatter", array)
    if array.ndim == 0 or array.shape[0] % ranks.world_size:
        raise UsageError(
            f"reduce_scatter cuts the first axis into {ranks.world_size} parts; shape {array.shape} cannot be cut so"
        )
    shape = (array.shape[0] // ranks.world_size, *array.shape[1:])
    out = check_out("reduce_scatter", out, shape, array.dtype)
    values = native_values(array, how, copy=True)

    def finish() -> Array:
        out.view(np.ndarray)[...] = values.reshape(ranks.world_size, *shape)[ranks.rank]
        return out

    return reduction("reduce_scatter", how, values, array, finish, part=values.size // ranks.world_size)


def broadcast(array: Array, root: int, ranks: Ranks, *, label: str = "") -> Collective:
    """Return a broadcast in place, bit by bit; raises UsageError or UnsupportedDtype."""
    check_root(root, ranks)
    if ranks.rank == root:
        check_array("broadcast", array)
        octets = _bytes_of(array, copy=not array.flags.writeable)
        finish = lambda: array  # noqa: E731
    else:
        check_written("broadcast", array)
        # Not the array's own memory, which ranks of one machine may share.
        octets = np.zeros(array.nbytes, _BYTE)
        finish = lambda: _restored(octets, array)  # noqa: E731
    bits = _bits(f"broadcast from rank {root}", octets, array, label, root=root)
    return Collective(bits, octets, finish)


def allgather(array: Array, ranks: Ranks, *, out: Array | None = None, label: str = "") -> Collective:
    """Return the gathering of all ranks' arrays, bit by bit, along a new first axis; raises UsageError."""
    check_array("allgather", array)
    shape = (ranks.world_size, *array.shape)
    parts = np.zeros(shape, array.dtype)  # not the caller's memory, which ranks of one machine may share
    result = parts if out is None else check_out("allgather", out, shape, array.dtype)
    parts[ranks.rank] = array
    octets = _bytes_of(parts)

    def finish() -> Array:
        return _restored(octets, result)

    return Collective(_bits("allgather", octets, array, label), octets, finish)


def check_root(root: int, ranks: Ranks) -> None:
    """Refuse what is no rank; raises UsageError."""
    if not is_integer(root) or not 0 <= root < ranks.world_size:
        raise UsageError(f"root must be a rank, 0 to {ranks.world_size - 1}, not {root!r}")


def check_out(name: str, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array for the result."""
    if out is None:
        return np.empty(shape, dtype)
    check_written(name, out)
    if out.shape != shape or out.dtype != dtype:
        raise UsageError(f"out of {name} must be {dtype}{list(shape)}, not {out.dtype}{list(out.shape)}")
    return out


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


def _bits(kind: str, octets: Array, array: Array, label: str, *, root: int = 0) -> Operation:
    """Return an operation in which each rank gives such an array's bytes to all others; the first ones are `root`'s."""
    return Operation.of(
        octets,
        kind,
        shape=array.shape,
        dtype_name=described(array.dtype),
        label=label,
        part=array.nbytes,
        root=root,
        gathers=True,
    )
