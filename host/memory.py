"""Arrays over raw addresses inside kernels, so that one compiled kernel serves operations of every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic

from switchsum.protocol.kernels import kernel

Scalar = Any
"""A number inside a kernel, of the type that its expression says."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def inner(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function that only kernels call: without its wrapper for Python, which takes a third of the time."""
    return kernel(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)


def _pointer(_context: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


pointer: Callable[[int], Any] = intrinsic(_pointer)
"""Turn an int64 address into a pointer."""


@inner
def bytes_at(address: int, count: int) -> npt.NDArray[np.uint8]:
    """View `count` bytes."""
    return carray(pointer(address), (count,), np.uint8)  # type: ignore[no-any-return]


@inner
def halves_at(address: int, count: int) -> npt.NDArray[np.uint16]:
    """View `count` 16-bit words."""
    return carray(pointer(address), (count,), np.uint16)  # type: ignore[no-any-return]


@inner
def words_at(address: int, count: int) -> npt.NDArray[np.uint32]:
    """View `count` 32-bit words."""
    return carray(pointer(address), (count,), np.uint32)  # type: ignore[no-any-return]


@inner
def floats_at(address: int, count: int) -> npt.NDArray[np.float32]:
    """View `count` float32."""
    return carray(pointer(address), (count,), np.float32)  # type: ignore[no-any-return]


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first byte."""
    address: int = array.__array_interface__["data"][0]
    return address
