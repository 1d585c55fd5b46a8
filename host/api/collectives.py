"""Collectives as operations: callers' arrays as the engine wants them, and how results come back.

Everything is an allreduce to the engine.  Where one rank alone wants values (a reduce's root, each rank's part of a
reduce_scatter), or has them already, the switch leaves the lanes out of what it sends to the others, or to that one.

Where one rank alone has values (a broadcast's root, each rank's part of an allgather) the others contribute blocks of
zeros, which do not travel, and its bytes, added to nothing in lanes of 8 bits, come through whatever they mean.

Nothing here knows a communicator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import UnsupportedDtype, UsageError
from switchsum.protocol.frame import MAX_WORKERS

from ..engine.dtypes import most_values
from ..engine.operation import Operation, check, described

Array = npt.NDArray[Any]

_BYTE: Final = np.dtype(np.int8)
"""What bits travel as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Who takes part."""

    rank: int
    """This one, 0 to world_size - 1."""
    world_size: int
    lanes_per_frame: int
    """32-bit lanes in a frame of the switch."""


class Collective(NamedTuple):
    """What one rank does for a collective."""

    operation: Operation
    values: Array | None = None
    """What the engine adds, in place: the caller's array itself if that can be, else a copy."""
    finish: Callable[[], Any] | None = None
    """Puts the result where the caller wants it, and returns it; None: it is in `values`."""
    saturates: bool = False
    """Whether the nearest value will do where an integer sum does not fit."""


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
    label: str = ""
    """What the caller calls it."""

    @property
    def switches(self) -> tuple[str, ...]:
        """Names of those that are on."""
        return ("narrow",) * self.narrow + ("saturate",) * self.saturate


def barrier(label: str = "") -> Collective:
    """Return a barrier."""
    return Collective(Operation(kind="barrier", label=label))


def refused() -> Collective:
    """Return what takes the place of a call that was refused, so that other ranks' calls do not match it."""
    return Collective(Operation(kind="a call that was refused"))


def allreduce(array: Array, how: Options, members: Members, *, kind: str = "allreduce", words: str = "") -> Collective:
    """Return an allreduce in place; raises UsageError or UnsupportedDtype.

    Sums of float32 that are so few that they fit one frame as integers so wide that nothing is lost take one round.

    An array that is contiguous in C's order, aligned and in the machine's byte order is reduced where it is; any other
    one is copied, so that all ranks add the same elements whatever their arrays' layout.
    """
    check_written("allreduce", array)
    values = native_values(array, how)
    exact = is_exact(array, how.operator, how.lanes, members)
    return reduction(kind, how, values, array, lambda: returned(values, array), exact=exact, words=words)


def is_exact(array: Array, operator: str, lanes: str, members: Members) -> bool:
    """Tell whether an allreduce is one whose values travel as integers so wide that nothing is lost."""
    adds = operator in ("sum", "average") and lanes == "int32" and members.world_size <= MAX_WORKERS
    return (
        adds and array.dtype.newbyteorder("=") == np.float32 and 0 < array.size <= most_values(members.lanes_per_frame)
    )


def reduce(array: Array, root: int, how: Options, members: Members) -> Collective:
    """Return an allreduce whose result only `root` keeps; raises UsageError or UnsupportedDtype."""
    check_root(root, members)
    kind = f"reduce to rank {root}"
    if members.rank == root:
        check_written("reduce", array)
        values = native_values(array, how)
        return reduction(kind, how, values, array, lambda: returned(values, array), part=array.size, root=root)
    check_array("reduce", array)
    values = native_values(array, how, copy=True)
    return reduction(kind, how, values, array, lambda: array, part=array.size, root=root)


def reduce_scatter(array: Array, how: Options, members: Members, *, out: Array | None = None) -> Collective:
    """Return an allreduce of which each rank keeps its part; raises UsageError or UnsupportedDtype."""
    check_array("reduce_scatter", array)
    if array.ndim == 0 or array.shape[0] % members.world_size:
        raise UsageError(f"reduce_scatter splits the first axis into {members.world_size} parts; shape {array.shape}")
    shape = (array.shape[0] // members.world_size, *array.shape[1:])
    out = check_out("reduce_scatter", out, shape, array.dtype)
    values = native_values(array, how, copy=True)

    def finish() -> Array:
        out.view(np.ndarray)[...] = values.reshape(members.world_size, *shape)[members.rank]
        return out

    return reduction("reduce_scatter", how, values, array, finish, part=values.size // members.world_size)


def broadcast(array: Array, root: int, members: Members, *, label: str = "") -> Collective:
    """Return a broadcast in place, bit by bit; raises UsageError or UnsupportedDtype."""
    check_root(root, members)
    if members.rank == root:
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


def allgather(array: Array, members: Members, *, out: Array | None = None, label: str = "") -> Collective:
    """Return the gathering of all ranks' arrays, bit by bit, along a new first axis; raises UsageError."""
    check_array("allgather", array)
    shape = (members.world_size, *array.shape)
    parts = np.zeros(shape, array.dtype)  # not the caller's memory, which ranks of one machine may share
    result = parts if out is None else check_out("allgather", out, shape, array.dtype)
    parts[members.rank] = array
    octets = _bytes_of(parts)

    def finish() -> Array:
        return _restored(octets, result)

    return Collective(_bits("allgather", octets, array, label), octets, finish)


def check_array(name: str, array: Array) -> None:
    """Refuse what is no array of numbers; raises UsageError or UnsupportedDtype."""
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{name} takes a numpy array, not {_foreign(array)}")
    if array.dtype.hasobject:
        raise UnsupportedDtype(f"{name} of Python objects: their addresses mean nothing elsewhere")
    if array.dtype.itemsize == 0:
        raise UsageError(f"{name} of {array.dtype.str}, whose elements have no bytes")


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


def check_root(root: int, members: Members) -> None:
    """Refuse what is no rank; raises UsageError."""
    if not is_integer(root) or not 0 <= root < members.world_size:
        raise UsageError(f"root must be a rank, 0 to {members.world_size - 1}, not {root!r}")


def check_out(name: str, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array for the result."""
    if out is None:
        return np.empty(shape, dtype)
    check_written(name, out)
    if out.shape != shape or out.dtype != dtype:
        raise UsageError(f"out of {name} must be {dtype}{list(shape)}, not {out.dtype}{list(out.shape)}")
    return out


def native_values(array: Array, how: Options, *, copy: bool = False) -> Array:
    """Return an array's values as the engine can add them: the array's own memory, or a copy."""
    dtype = array.dtype.newbyteorder("=")
    if how.narrow and dtype == np.float64 and how.operator in ("sum", "average"):
        dtype = np.dtype(np.float32)
    check(dtype, how.operator, how.lanes)
    in_place = array.flags.c_contiguous and array.flags.aligned and array.dtype == dtype and not copy
    with np.errstate(over="ignore"):  # beyond float32 is infinite there
        values = array if in_place else np.array(array, dtype=dtype, order="C")
    return values.view(np.ndarray).reshape(-1)


def reduction(
    kind: str,
    how: Options,
    values: Array,
    array: Array,
    finish: Callable[[], Any],
    *,
    exact: bool = False,
    part: int = 0,
    root: int = 0,
    words: str = "",
) -> Collective:
    """Return a reduction of which each rank gets its part, of so many values, the first one `root`; 0: all get all."""
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
        options=how.switches,
        label=how.label,
        words=words,
        exact=exact,
        part=part,
        root=root,
    )
    return Collective(operation, values, finish, how.saturate)


def returned(values: Array, array: Array) -> Array:
    """Write results to the caller's array, where they are not already."""
    if not np.may_share_memory(values, array):
        array.view(np.ndarray)[...] = values.reshape(array.shape)
    return array


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
