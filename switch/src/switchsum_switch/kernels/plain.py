"""The same source without a compiler: with `NUMBA_DISABLE_JIT=1` a kernel is the Python function that it is written as.

A debugger then steps through a worker, and a coverage tool counts its lines.  What kernels ask of the compiler is here,
or in the Python body that each intrinsic has beside its native one: memory by its address, functions by their address,
records of structured arrays.  Numbers mean the same: fields of records are Python integers where native code has int64,
and wrap around when they are written; elements of arrays are numpy's scalars, as wide as they are.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

VARIABLE: Final = "NUMBA_DISABLE_JIT"
"""Environment variable; numba reads it as well."""
PLAIN: Final = os.environ.get(VARIABLE, "0") not in ("", "0")
"""Whether kernels are Python in this process."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

_INTEGERS: Final[dict[str, Any]] = {
    **{"i1": ctypes.c_int8, "i2": ctypes.c_int16, "i4": ctypes.c_int32, "i8": ctypes.c_int64},
    **{"u1": ctypes.c_uint8, "u2": ctypes.c_uint16, "u4": ctypes.c_uint32, "u8": ctypes.c_uint64},
}
_NUMBERS: Final[dict[str, Any]] = {**_INTEGERS, "f4": ctypes.c_float, "f8": ctypes.c_double}

_functions: dict[int, Callable[..., int]] = {}
"""Python functions by the addresses that native code could call them by."""
_callbacks: list[Any] = []
"""Callbacks that stay alive, because others know their addresses."""


def wrapping(function: _Function) -> _Function:
    """Let numbers of fixed width wrap around in a function without a word of numpy's."""
    return np.errstate(over="ignore", invalid="ignore")(function) if PLAIN else function


def callback(function: Callable[..., int], result: Any, arguments: Sequence[Any]) -> int:
    """Return an address by which native code, and `call_at`, calls a Python function of such C types."""
    made = ctypes.CFUNCTYPE(result, *arguments)(function)
    _callbacks.append(made)
    address = ctypes.cast(made, ctypes.c_void_p).value or 0
    _functions[address] = function
    return address


def call_at(address: int, arguments: Sequence[Any]) -> int:
    """Call a function by its address: a Python one as it is, so that a debugger steps into it."""
    function = _functions.get(address)
    if function is not None:
        return function(*arguments)
    kinds = [ctypes.c_double if isinstance(argument, float) else ctypes.c_int64 for argument in arguments]
    found: int = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(int(address))(*arguments)
    return found


def array_at(address: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """View memory as an array; nothing checks that the address is valid."""
    kind = np.dtype(dtype)
    count = kind.itemsize
    for length in shape:
        count *= int(length)
    memory: Any = (ctypes.c_char * count).from_address(int(address))
    array: npt.NDArray[Any] = np.ndarray(shape, kind, memory)
    return array if kind.names is None else array.view(Entries)


class Entry(ctypes.Structure):
    """One entry of a structured array: numbers are read and written by their names, arrays are numpy's."""

    table: Any
    """Table that holds the memory of this entry."""

    def __repr__(self) -> str:
        """Show all fields, as a debugger prints them."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.table.dtype.names)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        field = getattr(self, name)
        if isinstance(field, np.ndarray):
            field[...] = value
        else:
            setattr(self, name, value)


class Entries(np.ndarray[Any, Any]):
    """A structured array whose entries show their fields as attributes, as they do to numba."""

    _address: int | None = None

    def __getitem__(self, index: Any) -> Any:
        if self.dtype.names is None or not isinstance(index, (int, np.integer)):
            return super().__getitem__(index)
        if not 0 <= index < len(self):
            raise IndexError(f"{index} of {len(self)}")
        if self._address is None:
            self._address = self.ctypes.data
        entry = _entry_class(self.dtype).from_address(self._address + int(index) * self.strides[0])
        entry.table = self
        return entry


@cache
def _entry_class(dtype: np.dtype[Any]) -> type[Entry]:
    """Return the class for the entries of arrays of this dtype."""
    numbers: list[tuple[str, Any]] = []
    members: dict[str, Any] = {"_pack_": 1, "_layout_": "ms", "_fields_": numbers}
    end = 0
    assert dtype.fields is not None
    for name, (kind, offset, *_) in sorted(dtype.fields.items(), key=lambda field: field[1][1]):
        if offset > end:
            numbers.append((f"_before_{name}", ctypes.c_char * (offset - end)))
        if kind.names is not None:
            numbers.append((name, _entry_class(kind)))
        elif kind.subdtype is None:
            numbers.append((name, _NUMBERS[kind.str[1:]]))
        else:
            numbers.append((f"_{name}", ctypes.c_char * kind.itemsize))
            members[name] = _array_field(kind, offset)
        end = offset + kind.itemsize
    if dtype.itemsize > end:
        numbers.append(("_behind", ctypes.c_char * (dtype.itemsize - end)))
    return type("Entry", (Entry,), members)


def _array_field(kind: np.dtype[Any], offset: int) -> property:
    """Return the value of a field that is an array."""
    assert kind.subdtype is not None
    base, shape = kind.subdtype

    def view(memory: Any) -> npt.NDArray[Any]:
        return np.ndarray(shape, base, memory, offset)

    return property(view)
