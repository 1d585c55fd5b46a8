"""Memory that two processes share, as kernels see it: atomic words, fences and raw copies by address.

A plain load in a loop may be hoisted out of it and a plain store may sink below a later one; every word through which
two processes talk goes through these functions.  Addresses and words are int64 (numba turns a mix of int64 and uint64
into float64); words are 8 bytes and aligned.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

from .intrinsics import cgutils, intrinsic, ir, types

_LOCK: Final = threading.Lock()


def _load_acquire(_context: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.int64), generate


def _store_release(_context: Any, address: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store_atomic(arguments[1], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _fence(_context: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


def _copy_bytes(_context: Any, target: Any, source: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, source = (builder.inttoptr(pointer, cgutils.voidptr_t) for pointer in arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], itemsize=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _same_bytes(_context: Any, first: Any, second: Any, count: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointers = [builder.inttoptr(pointer, cgutils.voidptr_t) for pointer in arguments[:2]]
        kind = ir.FunctionType(ir.IntType(32), [cgutils.voidptr_t, cgutils.voidptr_t, ir.IntType(64)])
        compare = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
        return builder.icmp_signed(
            "==", builder.call(compare, [*pointers, arguments[2]]), ir.Constant(ir.IntType(32), 0)
        )

    return types.boolean(types.int64, types.int64, types.int64), generate


@intrinsic(_load_acquire)
def load_acquire(address: int) -> int:
    """Load the word at an address; what its writer stored before `store_release` is visible afterwards."""
    return ctypes.c_int64.from_address(int(address)).value


@intrinsic(_store_release)
def store_release(address: int, word: int) -> None:
    """Store a word at an address, after everything stored before."""
    ctypes.c_int64.from_address(int(address)).value = word


@intrinsic(_fence)
def fence() -> None:
    """Let no load or store cross this point, in either direction; a store before it comes before a load after it."""
    with _LOCK:  # to take a lock and to give it back are atomic instructions, which order all others
        pass


@intrinsic(_copy_bytes)
def copy_bytes(target: int, source: int, count: int) -> None:
    """Copy `count` bytes; source and target must not overlap."""
    ctypes.memmove(int(target), int(source), int(count))


@intrinsic(_same_bytes)
def same_bytes(first: int, second: int, count: int) -> bool:
    """Tell whether `count` bytes at two addresses are the same."""
    return ctypes.string_at(int(first), int(count)) == ctypes.string_at(int(second), int(count))
