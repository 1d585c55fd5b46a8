"""Memory inside kernels: raw addresses, so that one compiled kernel serves operations of every dtype."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ll
import numpy.typing as npt
from numba.core import cgutils, types
from numba.extending import intrinsic

from switchsum.protocol.memory import bytes_at, call, floats_at, halves_at, longs_at, pointer, words_at

__all__ = [
    "Scalar",
    "address_of",
    "bytes_at",
    "call",
    "floats_at",
    "halves_at",
    "longs_at",
    "pointer",
    "prefetch",
    "swap",
    "words_at",
]

Scalar = Any
"""A number inside a kernel, of the type that its expression says."""


def _byte_swap(_context: Any, value: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return arguments[0] if value.bitwidth == 8 else builder.bswap(arguments[0])

    return value(value), generate


swap: Callable[[Any], Any] = intrinsic(_byte_swap)
"""Reverse the bytes of an integer of any width."""


def _prefetch(_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ll.IntType(32)
        kind = ll.FunctionType(ll.VoidType(), [cgutils.voidptr_t, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        reading, soon, data = (ll.Constant(word, value) for value in (0, 3, 1))
        builder.call(prefetch, [builder.inttoptr(arguments[0], cgutils.voidptr_t), reading, soon, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


prefetch: Callable[[int], None] = intrinsic(_prefetch)
"""Have the cache line at an address, which need not be one of ours, brought near."""


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first byte."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (
        ValueError,
        TypeError,
        BufferError,
    ):  # empty, read-only, or of a dtype that numpy does not have
        address: int = array.__array_interface__["data"][0]
        return address
