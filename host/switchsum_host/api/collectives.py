"""Collectives as operations: callers' arrays as the engine wants them, and how results come back.

Everything is an allreduce to the engine.  Collectives in which ranks have parts of their own are in `parts.py`.
Nothing here knows a communicator.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UnsupportedDtype, UsageError
from switchsum_protocol.frame import MAX_WORKERS

from ..engine.dtypes import most_values
from ..engine.operation import INT4, INT4_LEAST, INT4_MOST, Operation, check

Array = npt.NDArray[Any]

_MOST_KNOWN: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Who takes part."""

    rank: int
    """This one, 0 to world_size - 1."""
    world_size: int
    lanes_per_frame: int
    """32-bit lanes in a frame of the switch."""
    known: dict[Hashable, Operation] = field(default_factory=dict, compare=False, repr=False)
    """Operations of several steps by what they are: to describe one takes longer than to add a few values."""

    def operation(self, key: Hashable, make: Callable[[], Operation]) -> Operation:
        """Return the operation that was made for this key before, or make it."""
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            found = self.known[key] = make()
        return found


class Way(IntEnum):
    """How the ranks of a sparse sum find the union of their rows, and add the values."""

    SAME = 0
    """All ranks have the same rows, so that the values travel at once."""
    PAIRS = 1
    """Each rank gets the places and values of all others, and adds them itself."""
    PLACES = 2
    """Each rank gets the places of all others. Then the switch adds the values of the union."""
    BITMAPS = 3
    """The switch unites a bit for each row. Then it adds the values of the union."""
    ALL = 4
    """Nearly all rows are in the union: the switch adds all of them."""


class Collective(NamedTuple):
    """What one rank does for a collective."""

    operation: Operation
    values: Array | None = None
    """Values that the engine adds, in place: the caller's array itself if possible, else a copy."""
    finish: Callable[[], Any] | None = None
    """Puts the result where the caller wants it, and returns it; None: it is in `values`."""
    saturates: bool = False
    """Whether the nearest value will do where an integer sum does not fit."""
    at_end: Callable[[], object] | None = None  # makes the result of what was added; whoever drives it calls it
    holds: Array | None = None  # memory that is the collective's until then, if not that of `values`


class Options(NamedTuple):
    """How arrays are combined: what a caller has said beside the array.

    A tuple, for each small sum makes one, and finds by it what was prepared for an earlier sum.
    """

    operator: str = "sum"
    """One of `switchsum_host.engine.operation.OPERATORS`."""
    lanes: str = "int32"
    """One of `switchsum_host.engine.operation.LANES`."""
    narrow: bool = False
    """Sums of float64 may go through float32."""
    saturate: bool = False
    """The nearest value will do where an integer sum does not fit."""
    label: str = ""
    """Label that the caller gave."""

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


def allreduce(array: Array, how: Options, ranks: Ranks, *, kind: str = "allreduce", words: str = "") -> Collective:
    """Return an allreduce in place; raises UsageError or UnsupportedDtype.

    Sums of float32 that are so few that they fit one frame as integers so wide that nothing is lost take one round.

    An array that is contiguous in C's order, aligned and in the machine's byte order is reduced where it is; any other
    one is copied, so that all ranks add the same elements whatever their arrays' layout.
    """
    check_written("allreduce", array)
    values = native_values(array, how)
    exact = is_exact(array, how.operator, how.lanes, ranks)
    return reduction(kind, how, values, array, lambda: returned(values, array), exact=exact, words=words)


def is_exact(array: Array, operator: str, lanes: str, ranks: Ranks) -> bool:
    """Tell whether an allreduce is one whose values travel as integers so wide that nothing is lost."""
    adds = operator in ("sum", "average") and lanes == "int32" and ranks.world_size <= MAX_WORKERS
    return adds and array.dtype.newbyteorder("=") == np.float32 and 0 < array.size <= most_values(ranks.lanes_per_frame)


def check_array(name: str, array: Array) -> None:
    """Refuse what is no array of numbers; raises UsageError or UnsupportedDtype."""
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{name} takes a numpy array, not {_foreign(array)}")
    if is_masked(array):
        raise UsageError(f"{name} would ignore the mask of this array: pass array.filled(0), or array.data")
    if array.dtype.hasobject:
        raise UnsupportedDtype(f"{name} cannot send Python objects: convert them to numbers")
    if array.dtype.itemsize == 0:
        raise UsageError(f"{name} cannot send {array.dtype.str}, because its elements have no bytes")


def is_masked(value: object) -> bool:
    """Tell whether a value is a masked array: there is none before somebody has imported `numpy.ma`."""
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


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


@cache
def warn_of_infinity() -> None:
    """Warn, once in a process, of values that `narrow` has made infinite."""
    warnings.warn(
        "narrow=True has made a float64 beyond float32 (3.4e38) infinite: its frame comes out as NaN on every rank. "
        "Scale the array first. This is said once.",
        RuntimeWarning,
        stacklevel=2,
    )


def native_values(array: Array, how: Options, *, copy: bool = False) -> Array:
    """Return an array's values as the engine can add them: the array's own memory, or a copy."""
    dtype = array.dtype.newbyteorder("=")
    if how.narrow and dtype == np.float64 and how.operator in ("sum", "average"):
        dtype = np.dtype(np.float32)
    check(dtype, how.operator, how.lanes)
    if how.lanes == INT4 and array.size and (array.min() < INT4_LEAST or array.max() > INT4_MOST):
        raise UsageError(f"int4 lanes take values from {INT4_LEAST} to {INT4_MOST}, not {array.min()} to {array.max()}")
    in_place = array.flags.c_contiguous and array.flags.aligned and array.dtype == dtype and not copy
    with np.errstate(over="call", call=lambda *_: warn_of_infinity()):
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
