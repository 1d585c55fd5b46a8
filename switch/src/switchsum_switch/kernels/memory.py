"""Memory by its address, inside kernels, so that a compiled one serves every dtype; native code by its address."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from .decorators import inner
from .intrinsics import carray, cgutils, intrinsic, ir, pointer, types
from .plain import call_at

Scalar = Any
"""A number inside a kernel; its type follows from the expression."""


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
def longs_at(address: int, count: int) -> npt.NDArray[np.uint64]:
    """View `count` 64-bit words."""
    return carray(pointer(address), (count,), np.uint64)  # type: ignore[no-any-return]


@inner
def floats_at(address: int, count: int) -> npt.NDArray[np.float32]:
    """View `count` float32."""
    return carray(pointer(address), (count,), np.float32)  # type: ignore[no-any-return]


@inner
def integers_at(address: int, count: int) -> npt.NDArray[np.int64]:
    """View `count` 64-bit integers."""
    return carray(pointer(address), (count,), np.int64)  # type: ignore[no-any-return]


def _call(_context: Any, _address: Any, *arguments: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        unpacked = list(cgutils.unpack_tuple(builder, values[1]))
        kind = ir.FunctionType(ir.IntType(64), [value.type for value in unpacked])
        return builder.call(builder.inttoptr(values[0], kind.as_pointer()), unpacked)

    return types.int64(types.int64, types.Tuple(arguments)), generate


@intrinsic(_call)
def call(address: int, *arguments: Any) -> Any:
    """Call an `Outlined` kernel, or other native code, by its address.

    It takes arguments of exactly two types: int64, also for addresses, and float64.
    """
    return call_at(address, arguments)


def _long_at(_context: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(address), generate


@intrinsic(_long_at)
def long_at(address: Scalar) -> Scalar:
    """Return the 64-bit word at an address, which need not be a multiple of eight."""
    return np.uint64(ctypes.c_uint64.from_address(int(address)).value)


def _byte_swap(_context: Any, value: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return arguments[0] if value.bitwidth == 8 else builder.bswap(arguments[0])

    return value(value), generate


@intrinsic(_byte_swap)
def swap(value: Scalar) -> Scalar:
    """Reverse the bytes of an integer of any width."""
    return value.byteswap()


def _prefetch(_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        reading, soon, data = (ir.Constant(word, value) for value in (0, 3, 1))
        builder.call(prefetch, [builder.inttoptr(arguments[0], cgutils.voidptr_t), reading, soon, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic(_prefetch)
def prefetch(address: int) -> None:
    """Prefetch the cache line at an address, which need not be valid."""


__all__ = [
    "Scalar",
    "bytes_at",
    "call",
    "carray",
    "floats_at",
    "halves_at",
    "integers_at",
    "long_at",
    "longs_at",
    "pointer",
    "prefetch",
    "swap",
    "words_at",
]
