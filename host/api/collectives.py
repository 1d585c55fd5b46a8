"""Callers' arrays as the engine wants them, and back.

Everything is an allreduce to the engine; `copies.py` has those in which nothing is added.  Where one rank alone wants
values (a reduce's root, each rank's part of a reduce_scatter), or has them already, the switch leaves the lanes out of
what it sends to the others, or to that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import UnsupportedDtype, UsageError
from switchsum.protocol.frame import MAX_WORKERS

from ..engine.dtypes import most_values
from ..engine.operation import SKIP_ZEROS, Operation, check
from .handle import Handle

if TYPE_CHECKING:
    from .calls import CollectiveCalls

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How arrays are combined."""

    operator: str = "sum"
    """One of `switchsum.host.engine.operation.OPERATORS`."""
    lanes: str = "int32"
    """One of `switchsum.host.engine.operation.FLOAT_LANES`."""
    narrow: bool = False
    """Sums of float64 may go through float32."""
    saturate: bool = False
    """The nearest value will do where an integer sum does not fit."""


def barrier(comm: CollectiveCalls) -> Handle:
    """Prepare a barrier."""
    return Handle(comm, comm._prepare(Operation(kind="barrier")))


def refused(comm: CollectiveCalls) -> Handle:
    """Prepare what takes the place of a call that was refused, so that other ranks' calls do not match it."""
    return Handle(comm, comm._prepare(Operation(kind="a call that was refused")))


def allreduce(array: Array, how: Options, comm: CollectiveCalls) -> Handle:
    """Prepare an allreduce in place; raises UsageError or UnsupportedDtype.

    Sums of float32 that are so few that they fit one frame as integers so wide that nothing is lost take one round.

    An array that is contiguous in C's order, aligned and in the machine's byte order is reduced where it is; any other
    one is copied, so that all ranks add the same elements whatever their arrays' layout.
    """
    check_written("allreduce", array)
    values = _values(array, how)
    exact = is_exact(array, how.operator, how.lanes, comm)
    kind = "exact allreduce" if exact else "allreduce"
    return _reduction(kind, how, values, array, comm, lambda: _returned(values, array), exact=exact)


def is_exact(array: Array, operator: str, lanes: str, comm: CollectiveCalls) -> bool:
    """Tell whether an allreduce is one whose values travel as integers so wide that nothing is lost."""
    adds = operator in ("sum", "average") and lanes == "int32" and comm.world_size <= MAX_WORKERS
    return adds and array.dtype.newbyteorder("=") == np.float32 and 0 < array.size <= most_values(comm.lanes_per_frame)


def allreduce_blocks(array: Array, how: Options) -> None:
    """Refuse what `allreduce` does, and what small blocks cannot have; raises UsageError or UnsupportedDtype."""
    check_written("allreduce", array)
    _values(array, how)
    if how.operator not in SKIP_ZEROS:
        raise UsageError(f"blocks of zeros can be skipped where op is {' or '.join(SKIP_ZEROS)}, not {how.operator!r}")
    if array.dtype == np.float64:
        raise UsageError("small blocks of float64 cannot be narrowed: use array.astype(np.float32)")


def reduce(array: Array, root: int, how: Options, comm: CollectiveCalls) -> Handle:
    """Prepare an allreduce whose result only `root` keeps; raises UsageError or UnsupportedDtype."""
    check_root(root, comm)
    kind = f"reduce to rank {root}"
    if comm.rank == root:
        check_written("reduce", array)
        values = _values(array, how)
        return _reduction(kind, how, values, array, comm, lambda: _returned(values, array), part=array.size, root=root)
    check_array("reduce", array)
    values = _values(array, how, copy=True)
    return _reduction(kind, how, values, array, comm, lambda: array, part=array.size, root=root)


def reduce_scatter(array: Array, how: Options, comm: CollectiveCalls, *, out: Array | None = None) -> Handle:
    """Prepare an allreduce of which each rank keeps its part; raises UsageError or UnsupportedDtype."""
    check_array("reduce_scatter", array)
    if array.ndim == 0 or array.shape[0] % comm.world_size:
        raise UsageError(f"reduce_scatter splits the first axis into {comm.world_size} parts; shape {array.shape}")
    shape = (array.shape[0] // comm.world_size, *array.shape[1:])
    out = check_out("reduce_scatter", out, shape, array.dtype)
    values = _values(array, how, copy=True)

    def finish() -> Array:
        out.view(np.ndarray)[...] = values.reshape(comm.world_size, *shape)[comm.rank]
        return out

    return _reduction("reduce_scatter", how, values, array, comm, finish, part=values.size // comm.world_size)


def check_array(name: str, array: Array) -> None:
    """Refuse what is no array of numbers; raises UsageError or UnsupportedDtype."""
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{name} takes a numpy array, not {_foreign(array)}")
    if array.dtype.hasobject:
        raise UnsupportedDtype(f"{name} of Python objects: their addresses mean nothing elsewhere")


def _foreign(value: object) -> str:
    """Name the type of what is no numpy array, and how to make one of it; torch need not be imported to tell."""
    name = type(value).__name__
    return f"{name}: pass tensor.numpy(), which shares its memory" if type(value).__module__ == "torch" else name


def check_written(name: str, array: Array) -> None:
    """Refuse what a result cannot be put into; raises UsageError or UnsupportedDtype."""
    check_array(name, array)
    if not array.flags.writeable:
        raise UsageError(f"{name} works in place, and this array is read-only")


def is_integer(value: object) -> bool:
    """Whether a caller's argument is an integer, of Python's or of numpy's kinds."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_root(root: int, comm: CollectiveCalls) -> None:
    """Refuse what is no rank; raises UsageError."""
    if not is_integer(root) or not 0 <= root < comm.world_size:
        raise UsageError(f"root must be a rank, 0 to {comm.world_size - 1}, not {root!r}")


def check_out(name: str, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array for the result."""
    if out is None:
        return np.empty(shape, dtype)
    check_written(name, out)
    if out.shape != shape or out.dtype != dtype:
        raise UsageError(f"out of {name} must be {dtype}{list(shape)}, not {out.dtype}{list(out.shape)}")
    return out


def _values(array: Array, how: Options, *, copy: bool = False) -> Array:
    """Return an array's values as the engine can add them: the array's own memory, or a copy."""
    dtype = array.dtype.newbyteorder("=")
    if how.narrow and dtype == np.float64 and how.operator in ("sum", "average"):
        dtype = np.dtype(np.float32)
    check(dtype, how.operator, how.lanes)
    in_place = array.flags.c_contiguous and array.flags.aligned and array.dtype == dtype and not copy
    with np.errstate(over="ignore"):  # beyond float32 is infinite there
        values = array if in_place else np.array(array, dtype=dtype, order="C")
    return values.view(np.ndarray).reshape(-1)


def _reduction(
    kind: str,
    how: Options,
    values: Array,
    array: Array,
    comm: CollectiveCalls,
    finish: Callable[[], Any],
    *,
    exact: bool = False,
    part: int = 0,
    root: int = 0,
) -> Handle:
    """Prepare a reduction of which each rank gets its part, of so many values, the first one `root`; 0: all get all."""
    if values.dtype.kind in "iu" and how.operator == "sum":
        part = 0  # every rank must see each sum of integers, for an overflow is an error on all of them
    operation = Operation(
        kind=kind,
        operator=how.operator,
        lanes=how.lanes,
        dtype=values.dtype,
        size=values.size,
        shape=array.shape,
        dtype_name=array.dtype.name,
        exact=exact,
        part=part,
        root=root,
    )
    return Handle(comm, comm._prepare(operation), values, finish, saturates=how.saturate)


def _returned(values: Array, array: Array) -> Array:
    """Write results to the caller's array, where they are not already."""
    if not np.may_share_memory(values, array):
        array.view(np.ndarray)[...] = values.reshape(array.shape)
    return array
