"""Callers' arrays as the engine wants them, and back.

Everything is an allreduce to the engine.  Where one rank alone has values (a broadcast's root, each rank's part of an
allgather) the others contribute blocks of zeros, which do not travel, and the bits come through whatever they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.host.operation import Operation, check
from switchsum.protocol.errors import UnsupportedDtype, UsageError

Array = npt.NDArray[Any]

_WORD: Final = np.dtype(np.int32)
"""What bits travel as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A collective that is ready for the engine."""

    operation: Operation
    """What the engine runs: on the caller's array itself if it can be, else on a copy."""
    finish: Callable[[], Array | None]
    """Put the result where the caller wants it, and return it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Who asks."""

    rank: int
    world_size: int


def barrier() -> Call:
    """Prepare a barrier."""
    return Call(operation=Operation(kind="barrier"), finish=lambda: None)


def allreduce(array: Array, operator: str, *, narrow: bool = False) -> Call:
    """Prepare an allreduce in place; raises UsageError or UnsupportedDtype.

    An array that is contiguous in C's order, aligned and in the machine's byte order is reduced where it is; any other
    one is copied, so that all ranks add the same elements whatever their arrays' layout.
    """
    _check_written("allreduce", array)
    values = _values(array, operator, narrow)
    return Call(operation=_operation("allreduce", operator, values, array), finish=lambda: _returned(values, array))


def reduce(array: Array, root: int, operator: str, place: Place, *, narrow: bool = False) -> Call:
    """Prepare an allreduce whose result only `root` keeps; raises UsageError or UnsupportedDtype."""
    _check_root(root, place)
    kind = f"reduce to rank {root}"
    if place.rank == root:
        _check_written("reduce", array)
        values = _values(array, operator, narrow)
        return Call(operation=_operation(kind, operator, values, array), finish=lambda: _returned(values, array))
    _check_array("reduce", array)
    copy = _values(array, operator, narrow, copy=True)
    return Call(operation=_operation(kind, operator, copy, array), finish=lambda: array)


def reduce_scatter(
    array: Array, operator: str, place: Place, *, out: Array | None = None, narrow: bool = False
) -> Call:
    """Prepare an allreduce of which each rank keeps its part; raises UsageError or UnsupportedDtype."""
    _check_array("reduce_scatter", array)
    if array.ndim == 0 or array.shape[0] % place.world_size:
        raise UsageError(f"reduce_scatter splits the first axis into {place.world_size} parts; shape {array.shape}")
    shape = (array.shape[0] // place.world_size, *array.shape[1:])
    out = _check_out("reduce_scatter", out, shape, array.dtype)
    values = _values(array, operator, narrow, copy=True)

    def finish() -> Array:
        out[...] = values.reshape(place.world_size, *shape)[place.rank]
        return out

    return Call(operation=_operation("reduce_scatter", operator, values, array), finish=finish)


def broadcast(array: Array, root: int, place: Place) -> Call:
    """Prepare a broadcast in place, bit by bit; raises UsageError or UnsupportedDtype."""
    _check_root(root, place)
    if place.rank == root:
        _check_array("broadcast", array)
        words = _words(array, copy=not array.flags.writeable)
        finish = lambda: array  # noqa: E731
    else:
        _check_written("broadcast", array)
        words = _words(array, zero=True)
        finish = lambda: _restored(words, array)  # noqa: E731
    return Call(operation=_bits(f"broadcast from rank {root}", words, array), finish=finish)


def allgather(array: Array, place: Place, *, out: Array | None = None) -> Call:
    """Prepare the gathering of all ranks' arrays, bit by bit, along a new first axis; raises UsageError."""
    _check_array("allgather", array)
    out = _check_out("allgather", out, (place.world_size, *array.shape), array.dtype)
    parts = np.zeros_like(out) if np.may_share_memory(out, array) else out
    parts[...] = np.zeros((), array.dtype)
    parts[place.rank] = array
    words = _words(parts)

    def finish() -> Array:
        if _restored(words, parts) is not out:
            out[...] = parts
        return out

    return Call(operation=_bits("allgather", words, array), finish=finish)


def _check_array(name: str, array: Array) -> None:
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{name} takes a numpy array, not {type(array).__name__}")
    if array.dtype.hasobject:
        raise UnsupportedDtype(f"{name} of Python objects: their addresses mean nothing elsewhere")


def _check_written(name: str, array: Array) -> None:
    _check_array(name, array)
    if not array.flags.writeable:
        raise UsageError(f"{name} works in place, and this array is read-only")


def _check_root(root: int, place: Place) -> None:
    if not 0 <= root < place.world_size:
        raise UsageError(f"root must be a rank, 0 to {place.world_size - 1}, not {root}")


def _check_out(name: str, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array for the result."""
    if out is None:
        return np.empty(shape, dtype)
    _check_written(name, out)
    if out.shape != shape or out.dtype != dtype:
        raise UsageError(f"out of {name} must be {dtype}{list(shape)}, not {out.dtype}{list(out.shape)}")
    return out


def _values(array: Array, operator: str, narrow: bool, *, copy: bool = False) -> Array:
    """Return an array's values as the engine can add them: the array's own memory, or a copy."""
    dtype = array.dtype.newbyteorder("=")
    if narrow and dtype == np.float64:
        dtype = np.dtype(np.float32)
    check(dtype, operator)
    in_place = array.flags.c_contiguous and array.flags.aligned and array.dtype == dtype and not copy
    with np.errstate(over="ignore"):  # beyond float32 is infinite there
        values = array if in_place else np.array(array, dtype=dtype, order="C")
    return values.reshape(-1).view(np.ndarray)


def _operation(kind: str, operator: str, values: Array, array: Array) -> Operation:
    return Operation(kind=kind, operator=operator, values=values, shape=array.shape, dtype=array.dtype.name)


def _returned(values: Array, array: Array) -> Array:
    """Write results to the caller's array, where they are not already."""
    if not np.may_share_memory(values, array):
        array[...] = values.reshape(array.shape)
    return array


def _words(array: Array, *, zero: bool = False, copy: bool = False) -> Array:
    """Return an array's bits as words: its own memory or a copy, filled up to whole words; `zero`: zeros instead."""
    if array.flags.c_contiguous and array.nbytes % _WORD.itemsize == 0 and not copy:
        words = array.reshape(-1).view(np.ndarray).view(np.uint8).view(_WORD)
        if words.flags.aligned:
            if zero:
                words[:] = 0
            return words
    words = np.zeros(-(-array.nbytes // _WORD.itemsize), _WORD)
    if not zero:
        words.view(np.uint8)[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.ndarray).view(np.uint8)
    return words


def _restored(words: Array, array: Array) -> Array:
    """Write bits to the array that they are of, where they are not already."""
    if not np.may_share_memory(words, array):
        array[...] = words.view(np.uint8)[: array.nbytes].view(array.dtype).reshape(array.shape)
    return array


def _bits(kind: str, words: Array, array: Array) -> Operation:
    dtype = array.dtype.name + array.dtype.byteorder.replace("=", "").replace("|", "")
    return Operation(kind=kind, values=words, shape=array.shape, dtype=dtype)
